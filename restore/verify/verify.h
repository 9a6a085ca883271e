/* SPDX-License-Identifier: Apache-2.0 */
/* Verify mode: restored graphs are replayed beside the engine's own ones, and compared byte for byte. */
#ifndef MD_RESTORE_VERIFY_VERIFY_H
#define MD_RESTORE_VERIFY_VERIFY_H

#include "restore/restore.h"
#include "restore/verify/live_graphs.h"

/*
 * Compares a labelled graph with its restored twin and reports it; false: not now, a capture is in progress. own: the
 * engine has just made the graph or launches it, so its inputs are valid for it.
 */
bool md_verify_compare(struct md_live_graph *live, bool own) MD_REQUIRES(md_verify_table_lock);

#endif
