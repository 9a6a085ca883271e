/* SPDX-License-Identifier: Apache-2.0 */
/* The states of a graph: waiting, ready, refused. */
#ifndef MD_RESTORE_GRAPH_STATE_H
#define MD_RESTORE_GRAPH_STATE_H

#include "base/log.h"
#include "restore/graph_queue.h"
#include "restore/restore.h"

/* The graph can be handed out; it counts as restored. */
void md_restore_graph_ready(struct md_restore *r, struct md_restore_graph *graph) MD_REQUIRES(md_restore_lock);
/* A graph that was ready waits again, and no longer counts as restored. */
void md_restore_graph_unmake(struct md_restore *r, struct md_restore_graph *graph) MD_REQUIRES(md_restore_lock);
/* Sets REFUSED with the reason and logs it, as a warning or as told. The graph must not have been handed out. */
void md_restore_refuse(struct md_restore *r, struct md_restore_graph *graph, const struct md_error *err)
    MD_REQUIRES(md_restore_lock);
void md_restore_refuse_at(struct md_restore *r, struct md_restore_graph *graph, const struct md_error *err,
			  enum md_log_level level) MD_REQUIRES(md_restore_lock);

#endif
