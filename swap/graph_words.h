/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses in the nodes of each executable graph, found when it is instantiated. */
#ifndef MD_SWAP_GRAPH_WORDS_H
#define MD_SWAP_GRAPH_WORDS_H

#include "driver/cuda_driver.h"

/* Adds all memory that a launch of the graph may touch to the wish; if that is not known, everything. */
void md_swap_graph_wish(CUgraphExec exec);

/* Called when a context was destroyed, since new graphs may get the handles of its graphs. */
void md_swap_graphs_forget(void);

#endif
