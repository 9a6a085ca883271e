/* SPDX-License-Identifier: Apache-2.0 */
/* Finds graphs without looking through all of them: by name, the next one to build, and those with something to drop. */
#ifndef MD_RESTORE_GRAPH_QUEUE_H
#define MD_RESTORE_GRAPH_QUEUE_H

#include "restore/restore.h"

/* Lists the artifact's graphs by name, and makes room for the lists; false when out of memory. */
bool md_graph_queue_init(struct md_restore *r);
void md_graph_queue_finish(struct md_restore *r);
/* A graph of the artifact by its name; NULL: it has none of that name. */
struct md_restore_graph *md_restore_find(const struct md_restore *r, const char *label, unsigned batch);
/* Some graph waits that did not, or the order has changed: the next search begins at the first graph. */
void md_graph_queue_rewind(struct md_restore *r) MD_REQUIRES(md_restore_lock);
/* The first place in the order at which a graph may wait. */
uint32_t md_graph_queue_first(struct md_restore *r) MD_REQUIRES(md_restore_lock);
/* The graph may have something that is no longer needed. */
void md_graph_queue_drop(struct md_restore *r, struct md_restore_graph *graph) MD_REQUIRES(md_restore_lock);
/* The graph of these that is to be looked at next; NULL: there is none. It stays until it is taken off. */
struct md_restore_graph *md_graph_queue_look(struct md_restore *r) MD_REQUIRES(md_restore_lock);
void md_graph_queue_take_off(struct md_restore *r) MD_REQUIRES(md_restore_lock);

#endif
