/* SPDX-License-Identifier: Apache-2.0 */
/* The needs of each graph, and the order in which graphs are made. */
#ifndef MD_RESTORE_PLAN_H
#define MD_RESTORE_PLAN_H

#include "restore/restore.h"

/* Room for images and kernels, which a loader may need before the graphs are read; then the plan of the graphs. */
enum md_status md_restore_plan_tables(struct md_restore *r, struct md_error *err);
enum md_status md_restore_plan(struct md_restore *r, struct md_error *err);
/* What the engine has said while the artifact was being opened. The caller opens the restore before it lets go of the lock. */
void md_restore_plan_said(struct md_restore *r) MD_REQUIRES(md_restore_lock);
void md_restore_plan_finish(struct md_restore *r);
/* Orders graphs by what the engine wants. */
void md_restore_plan_order(struct md_restore *r) MD_REQUIRES(md_restore_lock);

#endif
