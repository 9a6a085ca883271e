/* SPDX-License-Identifier: Apache-2.0 */
/* Finds launches with an address between two bindings that lay side by side. */
#include "format/artifact/artifact.h"

static bool lies_in(const struct md_artifact *artifact, const struct md_pointer *pointer, uint32_t binding)
{
	const struct md_artifact_alloc *alloc = &artifact->allocs[pointer->alloc];
	return alloc->class == MD_CLASS_BOUND && alloc->binding == binding;
}

static bool begins(const struct md_artifact *artifact, const struct md_artifact_graph *graph, uint32_t pointer,
		   uint32_t binding)
{
	const struct md_pointer *p = &graph->pointers[pointer];
	return lies_in(artifact, p, binding) && p->offset == 0 && p->at < MD_ATTRIBUTES_AT &&
	       graph->nodes[p->node].type == MD_NODE_KERNEL;
}

static bool node_has(const struct md_artifact *artifact, const struct md_artifact_graph *graph, uint32_t pointer,
		     uint32_t binding)
{
	uint32_t node = graph->pointers[pointer].node, first = pointer;
	while (first && graph->pointers[first - 1].node == node)
		first--;
	for (uint32_t i = first; i < graph->pointer_count && graph->pointers[i].node == node; i++)
		if (lies_in(artifact, &graph->pointers[i], binding))
			return true;
	return false;
}

bool md_artifact_graph_adjoins(const struct md_artifact *artifact, const struct md_artifact_graph *graph,
			       uint32_t before, uint32_t behind)
{
	for (uint32_t i = 0; i < graph->pointer_count; i++)
		if (begins(artifact, graph, i, behind) && node_has(artifact, graph, i, before))
			return true;
	return false;
}
