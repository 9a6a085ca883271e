/* SPDX-License-Identifier: Apache-2.0 */
/* Makes small graphs many at a time, with one wait for the device. */
#ifndef MD_RESTORE_SMALL_GRAPHS_H
#define MD_RESTORE_SMALL_GRAPHS_H

#include "restore/work.h"

/* Whether the graph is small and has not begun, and no replay needs the driver. */
bool md_restore_batch_fits(struct md_restore *r, const struct md_work *work) MD_RESTORE_HELD;
/* Makes this graph, and then the next ones as long as they are small, for a fraction of a millisecond. */
void md_restore_batch_make(struct md_restore *r, const struct md_work *first) MD_REQUIRES(md_restore_work);

#endif
