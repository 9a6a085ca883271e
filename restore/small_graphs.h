/* SPDX-License-Identifier: Apache-2.0 */
/* Small graphs are made many at a time: one wait for the device, one waking of who waits. */
#ifndef MD_RESTORE_SMALL_GRAPHS_H
#define MD_RESTORE_SMALL_GRAPHS_H

#include "restore/work.h"

/* The graph is small and not begun, and no replay wants the driver. */
bool md_restore_batch_fits(struct md_restore *r, const struct md_work *work) MD_RESTORE_HELD;
/* Makes this graph, and then those that come next as long as they fit, for a fraction of a millisecond. */
void md_restore_batch_make(struct md_restore *r, const struct md_work *first) MD_REQUIRES(md_restore_work);

#endif
