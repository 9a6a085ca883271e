/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs and their nodes. */
#ifndef HOSTCUDA_GRAPH_H
#define HOSTCUDA_GRAPH_H

#include "hostcuda/device_state.h"

struct hc_graph *hc_graph_new(void);
void hc_graph_free(struct hc_graph *graph);
CUresult hc_graph_copy(const struct hc_graph *graph, struct hc_graph **copy);
CUresult hc_node_new(struct hc_graph *graph, CUgraphNodeType type, struct hc_node **node); /* not in the graph yet */
CUresult hc_node_attach(struct hc_node *node); /* adds the node to its graph; frees it on failure */
void hc_node_free(struct hc_node *node);

#endif
