/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA graphs from patched nodes. */
#ifndef MD_RESTORE_BUILD_H
#define MD_RESTORE_BUILD_H

#include "restore/restore.h"

/* Adds up to graph->slice nodes; then, once all nodes exist, the edges. */
enum md_status md_restore_build_nodes(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err);
enum md_status md_restore_build_edges(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err);
/* Frees memory that only building needs; destroys the events, after the nodes that use them. */
void md_restore_build_finish(struct md_restore_graph *graph);
void md_restore_events_destroy(struct md_restore_graph *graph);
void md_restore_scratch_finish(struct md_scratch *scratch);

#endif
