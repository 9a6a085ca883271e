/* SPDX-License-Identifier: Apache-2.0 */
/* The graphs of the artifact, read. */
#ifndef MD_RESTORE_GRAPHS_READ_H
#define MD_RESTORE_GRAPHS_READ_H

#include "restore/restore.h"

/* Reads the graphs on another thread, and resolves kernels meanwhile as their images come. */
enum md_status md_restore_graphs_read(struct md_restore *r, struct md_error *err);

#endif
