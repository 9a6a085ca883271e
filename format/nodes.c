/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of a graph and of its child graphs in one list, and the attributes of kernel nodes. */
#include "format/model.h"

static uint32_t last_of(const struct md_node *nodes, uint32_t count, uint32_t child)
{
	return child == MD_NONE ? count - 1 : child + nodes[child].child_nodes;
}

bool md_nodes_parents(const struct md_node *nodes, uint32_t count, uint32_t *parents)
{
	uint32_t inside = MD_NONE, depth = 0;
	for (uint32_t i = 0; i < count; i++) {
		for (; i > last_of(nodes, count, inside); depth--)
			inside = parents[inside];
		parents[i] = inside;
		if (nodes[i].type != MD_NODE_CHILD)
			continue;
		if (nodes[i].child_nodes > last_of(nodes, count, inside) - i || ++depth > MD_CHILD_DEPTH_MAX)
			return false;
		inside = i;
	}
	return true;
}

struct md_attribute *md_node_attribute_at(const struct md_node *node, uint32_t at)
{
	uint32_t index = (at - MD_ATTRIBUTES_AT) / sizeof(node->attributes->value);
	if (node->type != MD_NODE_KERNEL || at < MD_ATTRIBUTES_AT || index >= node->attribute_count ||
	    (at - MD_ATTRIBUTES_AT) % sizeof(node->attributes->value))
		return NULL;
	return &node->attributes[index];
}
