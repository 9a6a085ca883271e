/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of graph nodes. */
#ifndef HOSTCUDA_GRAPH_NODE_H
#define HOSTCUDA_GRAPH_NODE_H

#include "hostcuda/device_state.h"

bool hc_node_set_attribute(struct hc_node *node, const CUlaunchAttribute *attribute);
/* The value as it was set, or its default; false: not an attribute of a node. */
bool hc_node_tell_attribute(const struct hc_node *node, CUlaunchAttributeID id, CUlaunchAttributeValue *value);

CUresult hc_node_set_kernel(struct hc_node *node, const CUDA_KERNEL_NODE_PARAMS *params) HC_STATE_HELD;
CUresult hc_node_copy_content(struct hc_node *to, const struct hc_node *from);
void hc_node_clear_content(struct hc_node *node);

#endif
