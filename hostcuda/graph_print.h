/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs as lines of text, for tests. */
#ifndef HOSTCUDA_GRAPH_PRINT_H
#define HOSTCUDA_GRAPH_PRINT_H

#include "hostcuda/device_state.h"

void hc_graph_print(const struct hc_graph *graph) HC_STATE_HELD; /* for tests */

#endif
