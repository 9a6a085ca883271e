/* SPDX-License-Identifier: Apache-2.0 */
/* Edges of a graph that is being built. */
#ifndef MD_RESTORE_EDGES_H
#define MD_RESTORE_EDGES_H

#include "restore/restore.h"

/*
 * Adds all edges between nodes that exist; there is scratch memory for them. MD_ERR_DRIVER: what the driver says of a
 * graph with programmatic edges, or of any graph in a verification, is not what the artifact has.
 */
enum md_status md_restore_edges_add(struct md_restore *r, const struct md_restore_graph *graph, struct md_error *err);

#endif
