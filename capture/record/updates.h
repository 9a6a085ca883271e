/* SPDX-License-Identifier: Apache-2.0 */
/* Executables that are changed after they were instantiated. */
#ifndef MD_CAPTURE_RECORD_UPDATES_H
#define MD_CAPTURE_RECORD_UPDATES_H

#include "capture/capture.h"
#include "capture/record/graphs.h"

/* The executable was updated to the nodes of the graph. */
void md_capture_exec_updated(CUgraphExec exec, CUgraph graph, const char *call);
/* The changed node; NULL: the executable was changed in a way that is not recorded. */
void md_capture_exec_changed(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *params, const char *call);
void md_capture_exec_switched(CUgraphExec exec, CUgraphNode node, bool on, const char *call);
/* Writes the graph as it is by now to the trace, before any other record about it. */
void md_capture_graph_flush(struct md_capture_graph *graph) MD_CAPTURE_HELD;
void md_capture_graphs_flush(void) MD_CAPTURE_HELD; /* all */
/* Takes over what was walked: nodes, edges and handles. Lock held. */
struct md_capture_walk;
void md_capture_graph_keep(struct md_capture_graph *graph, struct md_capture_walk *walk, CUgraph source);
void md_capture_graph_drop(struct md_capture_graph *graph);
bool md_capture_graph_take_candidates(struct md_capture_graph *graph, struct md_capture_walk *walk) MD_CAPTURE_HELD;

#endif
