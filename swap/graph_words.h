/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses in the nodes of each executable graph, found when it is instantiated. */
#ifndef MD_SWAP_GRAPH_WORDS_H
#define MD_SWAP_GRAPH_WORDS_H

#include "driver/cuda_driver.h"

/* Adds all that a launch of the graph may touch to the wish: everything, where that is not known. */
void md_swap_graph_wish(CUgraphExec exec);

#endif
