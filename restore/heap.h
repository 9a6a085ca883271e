/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory for the driver. Under work, on the thread that makes the graphs. */
#ifndef MD_RESTORE_HEAP_H
#define MD_RESTORE_HEAP_H

#include "restore/restore.h"

/* The graphs that are still to be made will take more memory than is held. */
bool md_restore_heap_lacks(const struct md_restore *r) MD_REQUIRES(md_restore_lock);
/* Brings in some 4 MiB more. */
void md_restore_heap_add(struct md_restore *r);
/* Frees as much memory for the driver as this graph will take. A stage, which never fails. */
enum md_status md_restore_heap_take(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err);
void md_restore_heap_finish(struct md_heap *heap);

#endif
