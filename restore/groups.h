/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: graphs that are restored together or not at all. Under lock. */
#ifndef MD_RESTORE_GROUPS_H
#define MD_RESTORE_GROUPS_H

#include "restore/restore.h"

/* True if the graph, or another one of its group, was handed out. */
bool md_restore_group_is_out(const struct md_restore *r, const struct md_restore_graph *graph);
/* The graph itself, or another one of its group, that is not made yet; NULL: none. */
struct md_restore_graph *md_restore_group_waiting(const struct md_restore *r, struct md_restore_graph *graph);
/* Refuses the other graphs of the group of a refused graph. */
void md_restore_group_refuse(struct md_restore *r, const struct md_restore_graph *graph) MD_REQUIRES(md_restore_lock);
/* No graph of the group is handed out any more. */
void md_restore_group_stale(struct md_restore *r, struct md_restore_graph *graph);
/* All graphs of the group are built: may this one be handed out, and must a binding be hashed before? */
enum md_status md_restore_group_check(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
    MD_REQUIRES(md_restore_lock);
bool md_restore_group_open(const struct md_restore *r, const struct md_restore_graph *graph)
    MD_REQUIRES(md_restore_lock);
/* The engine was not given the graph: says so if another one of its group is in its hands. */
void md_restore_group_lost(struct md_restore *r, const char *label, unsigned batch, const char *why);
/* The engine has captured the graph live: none of its group is handed out; MD_ERR_MISMATCH when one was already. */
enum md_status md_restore_group_captured(struct md_restore *r, const char *label, unsigned batch, struct md_error *err)
    MD_REQUIRES(md_restore_lock);
/* Graphs that it has captured live before the artifact was open; a context that ends takes them with it. */
void md_restore_group_apply_live(struct md_restore *r) MD_REQUIRES(md_restore_lock);
void md_restore_group_forget_live(struct md_restore *r) MD_REQUIRES(md_restore_lock);
/* The graph is launched: the other graphs of its group may read what it writes. */
void md_restore_group_feed(struct md_restore *r, const struct md_restore_graph *writer);
/* The engine destroys an executable, which may be one that was handed out. */
void md_restore_graph_destroyed(struct md_restore *r, CUgraphExec exec) MD_REQUIRES(md_restore_lock);
/* A restored graph is launched. Called while md_restore_watching is set. */
void md_restore_group_launched(struct md_restore *r, CUgraphExec exec);
extern atomic_bool md_restore_watching;

#endif
