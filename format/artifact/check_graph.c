/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of one graph of an artifact: its nodes, edges, pointers, noise and outputs refer to something that exists. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "format/artifact/bad.h"
#include "format/artifact/check_graph.h"
#include "format/artifact/check_values.h"
#include "format/artifact/sections.h"
#include "format/codec/columns.h"

/* ---- nodes ---- */

/* A buffer may end within a struct: NCCL's kernels declare one of 4,096 bytes, and are given what they use of it. */
static bool is_cut_struct(const struct md_node *node, const struct md_param *last)
{
	return node->via_extra && last->size > sizeof(uint64_t) && last->offset < node->params_size;
}

static enum md_status check_kernel_node(const struct md_graph_check *c, uint32_t index)
{
	const struct md_node *node = &c->graph->nodes[index];
	if (node->kernel >= c->artifact->kernel_count)
		return md_bad_node(c, index, "kernel index %u of %u", node->kernel, c->artifact->kernel_count);
	for (int i = 0; i < 3; i++) {
		if (!node->grid[i] || !node->block[i])
			return md_bad_node(c, index, "grid %ux%ux%u, block %ux%ux%u", node->grid[0], node->grid[1],
					   node->grid[2], node->block[0], node->block[1], node->block[2]);
	}
	if (node->params_size > MD_PARAMS_MAX || (node->params_size && !node->params))
		return md_bad_node(c, index, "%u bytes of parameters", node->params_size);
	if (node->attribute_count > MD_ATTRIBUTES_MAX || (node->attribute_count && !node->attributes))
		return md_bad_node(c, index, "%u attributes", node->attribute_count);
	const struct md_kernel *kernel = &c->artifact->kernels[node->kernel];
	if (kernel->param_count) { /* parameters ascend, so the last one reaches farthest */
		const struct md_param *last = &kernel->params[kernel->param_count - 1];
		if (!md_is_inside(last->offset, last->size, node->params_size) && !is_cut_struct(node, last))
			return md_bad_node(c, index, "parameter %u at %u of %u bytes, in a block of %u",
					   kernel->param_count - 1, last->offset, last->size, node->params_size);
	}
	return MD_OK;
}

static bool memory_type_ok(uint32_t type)
{
	return type == 1 || type == 2 || type == 4; /* CU_MEMORYTYPE_HOST, _DEVICE, _UNIFIED */
}

static enum md_status check_node(const struct md_graph_check *c, uint32_t index)
{
	const struct md_node *node = &c->graph->nodes[index];
	if (node->type == MD_NODE_KERNEL)
		return check_kernel_node(c, index);
	if (node->kernel != MD_NONE || node->params_size || node->attribute_count)
		return md_bad_node(c, index, "has a kernel, parameters or attributes, but is of type %u", node->type);
	switch (node->type) {
	case MD_NODE_EMPTY:
	case MD_NODE_CHILD: /* check_edges looks at what is inside */
		return MD_OK;
	case MD_NODE_EVENT_WAIT:
	case MD_NODE_EVENT_RECORD:
		if (node->event >= c->graph->node_count && node->event - c->graph->node_count >= MD_LIBRARY_EVENTS_MOST)
			return md_bad_node(c, index, "event %u, of a graph of %u nodes", node->event,
					   c->graph->node_count);
		return MD_OK;
	case MD_NODE_MEMSET:
		if (node->memset.element_size != 1 && node->memset.element_size != 2 && node->memset.element_size != 4)
			return md_bad_node(c, index, "sets elements of %u bytes", node->memset.element_size);
		return MD_OK;
	case MD_NODE_MEMCPY:
		if (!memory_type_ok(node->memcpy.src_type) || !memory_type_ok(node->memcpy.dst_type))
			return md_bad_node(c, index, "copies from memory of type %u to type %u", node->memcpy.src_type,
					   node->memcpy.dst_type);
		return MD_OK;
	default:
		return md_bad_node(c, index, "type %u is not one that can be restored", node->type);
	}
}

/* ---- edges ---- */

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

/*
 * Finds a topological order by counting predecessors; nodes that are
 * never released lie on a cycle. keys are sorted from << 32 | to.
 */
static enum md_status check_acyclic(const struct md_graph_check *c, const uint64_t *keys)
{
	uint32_t nodes = c->graph->node_count, edges = c->graph->edge_count, released = 0;
	MD_AUTO_FREE uint32_t *waits = calloc((size_t)nodes + 1, sizeof(*waits));
	MD_AUTO_FREE uint32_t *queue = calloc((size_t)nodes + 1, sizeof(*queue));
	MD_AUTO_FREE uint32_t *start = calloc((size_t)nodes + 2, sizeof(*start));
	if (!waits || !queue || !start)
		return md_bad_memory(c->err, "graphs");
	for (uint32_t i = 0; i < edges; i++) {
		waits[(uint32_t)keys[i]]++;
		start[(keys[i] >> 32) + 1]++;
	}
	for (uint32_t i = 0; i < nodes; i++) {
		start[i + 1] += start[i];
		if (!waits[i])
			queue[released++] = i;
	}
	for (uint32_t at = 0; at < released; at++) {
		for (uint32_t i = start[queue[at]]; i < start[queue[at] + 1]; i++) {
			if (--waits[(uint32_t)keys[i]] == 0)
				queue[released++] = (uint32_t)keys[i];
		}
	}
	if (released != nodes)
		return md_bad_section(c->err, "graphs", "graph %.100s/%u: its edges form a cycle", c->graph->label,
				      c->graph->batch);
	return MD_OK;
}

static bool has_children(const struct md_artifact_graph *graph)
{
	for (uint32_t i = 0; i < graph->node_count; i++)
		if (graph->nodes[i].type == MD_NODE_CHILD)
			return true;
	return false;
}

/* Graphs of all batch sizes mostly have the same edges: those that were just checked are right here, too. */
static bool has_edges_of(const struct md_artifact_graph *graph, const struct md_artifact_graph *checked)
{
	return graph->node_count == checked->node_count && graph->edge_count == checked->edge_count &&
	       (!graph->edge_count ||
		!memcmp(graph->edges, checked->edges, graph->edge_count * sizeof(*graph->edges))) &&
	       !has_children(graph) && !has_children(checked);
}

static enum md_status check_edges(const struct md_graph_check *c)
{
	const struct md_artifact_graph *graph = c->graph;
	MD_AUTO_FREE uint64_t *keys = calloc((size_t)graph->edge_count + 1, sizeof(*keys));
	MD_AUTO_FREE uint32_t *parents = calloc((size_t)graph->node_count + 1, sizeof(*parents));
	bool sorted = true, forward = true;
	if (!keys || !parents)
		return md_bad_memory(c->err, "graphs");
	if (!md_nodes_parents(graph->nodes, graph->node_count, parents))
		return md_bad_section(c->err, "graphs",
				      "graph %.100s/%u: child graphs reach too far, or are over %u deep", graph->label,
				      graph->batch, MD_CHILD_DEPTH_MAX);
	for (uint32_t i = 0; i < graph->edge_count; i++) {
		const struct md_edge *edge = &graph->edges[i];
		if (edge->from >= graph->node_count || edge->to >= graph->node_count || edge->from == edge->to)
			return md_bad_section(c->err, "graphs", "edge %u of graph %.100s/%u: from %u to %u of %u nodes",
					      i, graph->label, graph->batch, edge->from, edge->to, graph->node_count);
		if (parents[edge->from] != parents[edge->to])
			return md_bad_section(c->err, "graphs",
					      "edge %u of graph %.100s/%u: from %u to %u, in another graph", i,
					      graph->label, graph->batch, edge->from, edge->to);
		keys[i] = (uint64_t)edge->from << 32 | edge->to;
		sorted = sorted && (!i || keys[i - 1] <= keys[i]);
		forward = forward && edge->from < edge->to;
	}
	if (!sorted)
		qsort(keys, graph->edge_count, sizeof(*keys), by_number);
	for (uint32_t i = 1; i < graph->edge_count; i++) {
		if (keys[i - 1] == keys[i])
			return md_bad_section(c->err, "graphs", "graph %.100s/%u: two edges from %u to %u",
					      graph->label, graph->batch, (uint32_t)(keys[i] >> 32), (uint32_t)keys[i]);
	}
	return forward ? MD_OK : check_acyclic(c, keys);
}

/* ---- pointers and noise ---- */

static uint32_t bytes_of(const struct md_node *node)
{
	switch (node->type) {
	case MD_NODE_KERNEL:
		return node->params_size;
	case MD_NODE_MEMSET:
		return 8; /* dst */
	case MD_NODE_MEMCPY:
		return 16; /* src, dst */
	default:
		return 0;
	}
}

static bool in_attribute(const struct md_node *node, const struct md_pointer *pointer)
{
	const struct md_attribute *attribute = md_node_attribute_at(node, pointer->at);
	return attribute && attribute->id == MD_ATTRIBUTE_WINDOW && pointer->kind == MD_POINTER_PLAIN;
}

static enum md_status bad_place(const struct md_graph_check *c, const char *what, uint32_t index, uint32_t node,
				uint32_t at)
{
	return md_bad_section(c->err, "pointers",
			      "%s %u of graph %.100s/%u: byte %u of node %u of %u is outside, or not behind the "
			      "one before",
			      what, index, c->graph->label, c->graph->batch, at, node, c->graph->node_count);
}

static enum md_status check_pointers(const struct md_graph_check *c)
{
	uint32_t node = 0;
	uint64_t end = 0;
	for (uint32_t i = 0; i < c->graph->pointer_count; i++) {
		const struct md_pointer *p = &c->graph->pointers[i];
		if (p->kind > MD_POINTER_TENSOR_MAP)
			return md_bad_section(c->err, "pointers", "pointer %u of graph %.100s/%u: kind %u", i,
					      c->graph->label, c->graph->batch, p->kind);
		if (p->node != node)
			end = 0;
		if (p->node < node || p->node >= c->graph->node_count || p->at < end ||
		    (!md_is_inside(p->at, md_pointer_bytes(p), bytes_of(&c->graph->nodes[p->node])) &&
		     !in_attribute(&c->graph->nodes[p->node], p)))
			return bad_place(c, "pointer", i, p->node, p->at);
		if (p->alloc >= c->artifact->alloc_count)
			return md_bad_section(c->err, "pointers",
					      "pointer %u of graph %.100s/%u: allocation index %u of %u", i,
					      c->graph->label, c->graph->batch, p->alloc, c->artifact->alloc_count);
		node = p->node;
		end = (uint64_t)p->at + md_pointer_bytes(p);
	}
	return MD_OK;
}

static enum md_status check_noise(const struct md_graph_check *c)
{
	uint32_t node = 0;
	uint64_t end = 0;
	for (uint32_t i = 0; i < c->graph->noise_count; i++) {
		const struct md_noise *noise = &c->graph->noise[i];
		if (noise->node != node)
			end = 0;
		if (noise->node < node || noise->node >= c->graph->node_count || noise->at < end || !noise->size ||
		    !md_is_inside(noise->at, noise->size, bytes_of(&c->graph->nodes[noise->node])))
			return bad_place(c, "noise", i, noise->node, noise->at);
		node = noise->node;
		end = (uint64_t)noise->at + noise->size;
	}
	return MD_OK;
}

/* ---- outputs ---- */

/* An output that was not declared has no bytes and no place. */
static enum md_status check_outputs(const struct md_graph_check *c)
{
	const struct md_artifact_graph *graph = c->graph;
	if (graph->output_count > MD_OUTPUTS_MAX)
		return md_bad_section(c->err, "graphs", "graph %.100s/%u has %u outputs, at most %d", graph->label,
				      graph->batch, graph->output_count, MD_OUTPUTS_MAX);
	for (uint32_t i = 0; i < graph->output_count; i++) {
		const struct md_artifact_output *output = &graph->outputs[i];
		if (!output->size && output->alloc == MD_NONE && !output->offset)
			continue;
		if (output->alloc >= c->artifact->alloc_count)
			return md_bad_section(c->err, "graphs",
					      "output %u of graph %.100s/%u: allocation index %u of %u", i,
					      graph->label, graph->batch, output->alloc, c->artifact->alloc_count);
		uint64_t room = c->artifact->allocs[output->alloc].size;
		if (c->artifact->allocs[output->alloc].class == MD_CLASS_VARIABLE)
			return md_bad_section(c->err, "graphs",
					      "output %u of graph %.100s/%u lies in a module's variable", i,
					      c->graph->label, c->graph->batch);
		if (!output->size || !md_is_inside(output->offset, output->size, room))
			return md_bad_section(c->err, "graphs",
					      "output %u of graph %.100s/%u: %" PRIu64 " bytes at %" PRIu64
					      " of an allocation of %" PRIu64,
					      i, graph->label, graph->batch, output->size, output->offset, room);
	}
	return MD_OK;
}

/* ---- a whole graph ---- */

static enum md_status check_note(const struct md_graph_check *c)
{
	if (c->graph->note_size > MD_NOTE_MAX || !c->graph->note != !c->graph->note_size)
		return md_bad_section(c->err, "graphs", "graph %.100s/%u: a note of %" PRIu64 " bytes, at most %u",
				      c->graph->label, c->graph->batch, c->graph->note_size, MD_NOTE_MAX);
	return MD_OK;
}

enum md_status md_artifact_check_graph(const struct md_artifact *artifact, uint32_t index,
				       const struct md_artifact_graph *checked, struct md_error *err)
{
	const struct md_graph_check c = {artifact, &artifact->graphs[index], err};
	if (!md_is_name(c.graph->label))
		return md_bad_section(err, "graphs", "graph %u has no label, or one of over %u bytes", index,
				      MD_NAME_MAX);
	if (c.graph->accepted.given &&
	    (c.graph->accepted.type < MD_ELEMENT_F32 || c.graph->accepted.type >= MD_ELEMENT_TYPES ||
	     c.graph->accepted.ulps > MD_TOLERANCE_ULPS_MAX))
		return md_bad_section(err, "graphs", "graph %.100s/%u: accepted within %" PRIu64 " ULP of type %u",
				      c.graph->label, c.graph->batch, c.graph->accepted.ulps,
				      (unsigned)c.graph->accepted.type);
	if (c.graph->proof > MD_PROOF_REPLAY)
		return md_bad_section(err, "graphs", "graph %.100s/%u: proof %u", c.graph->label, c.graph->batch,
				      (unsigned)c.graph->proof);
	for (uint32_t i = 0; i < c.graph->node_count; i++)
		MD_FORWARD(check_node(&c, i));
	if (!checked || !has_edges_of(c.graph, checked))
		MD_FORWARD(check_edges(&c));
	MD_FORWARD(check_pointers(&c));
	MD_FORWARD(check_outputs(&c));
	MD_FORWARD(check_note(&c));
	MD_FORWARD(check_noise(&c));
	MD_FORWARD(md_artifact_check_graph_numbers(artifact, c.graph, err));
	MD_FORWARD(md_artifact_check_handed(artifact, c.graph, err));
	return md_artifact_check_doubtful(artifact, c.graph, err);
}
