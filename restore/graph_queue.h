/* SPDX-License-Identifier: Apache-2.0 */
/* Finds graphs without looking through all of them: by name, the next one to build, and those with something to drop. */
#ifndef MD_RESTORE_GRAPH_QUEUE_H
#define MD_RESTORE_GRAPH_QUEUE_H

#include "restore/restore.h"

/* Lists the artifact's graphs by name, and makes room for the lists; false when out of memory. */
bool md_graph_queue_init(struct md_restore *r);
void md_graph_queue_finish(struct md_restore *r);
/* A number that stands for the name of a graph, in every process. */
uint64_t md_graph_name_key(const char *label, unsigned batch);
/* A graph of the artifact by its name; NULL: the artifact has none of that name. */
struct md_restore_graph *md_restore_find(const struct md_restore *r, const char *label, unsigned batch);
/* Called when a graph begins to wait, or the order has changed: the next search begins at the first graph. */
void md_graph_queue_rewind(struct md_restore *r) MD_REQUIRES(md_restore_lock);
/* The first place in the order at which a graph may wait. */
uint32_t md_graph_queue_first(struct md_restore *r) MD_REQUIRES(md_restore_lock);
/* Lists the graph, because it may have something to drop. */
void md_graph_queue_drop(struct md_restore *r, struct md_restore_graph *graph) MD_REQUIRES(md_restore_lock);
/* The next graph of this list; NULL: there is none. The graph stays in the list until it is taken off. */
struct md_restore_graph *md_graph_queue_look(struct md_restore *r) MD_REQUIRES(md_restore_lock);
void md_graph_queue_take_off(struct md_restore *r) MD_REQUIRES(md_restore_lock);

#endif
