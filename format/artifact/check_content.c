/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checks that every artifact passes when it is read and before
 * it is written: everything in it refers to something that exists.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "format/artifact/bad.h"
#include "format/artifact/sections.h"
#include "format/codec/columns.h"

#define NAME_MAX_BYTES 4096u
#define ARENA_ALIGNMENT 512u

static enum md_status no_memory(struct md_error *err, const char *section)
{
	return md_error_set(err, MD_ERR_NO_MEMORY, "section \"%s\": out of memory for its check", section);
}

static bool inside(uint64_t at, uint64_t size, uint64_t whole)
{
	return at <= whole && size <= whole - at;
}

static bool name_ok(const char *name)
{
	return name && name[0] && strnlen(name, NAME_MAX_BYTES + 1) <= NAME_MAX_BYTES;
}

/* ---- bindings and allocations ---- */

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/*
 * Checks the place of a binding: its alignment, and the binding that
 * it shares memory with, which is the first of all that share it.
 */
static enum md_status check_place(const struct md_artifact *artifact, uint32_t index, struct md_error *err)
{
	const struct md_binding *binding = &artifact->bindings[index];
	if (binding->align > MD_BINDING_ALIGN_MAX || (binding->align & (binding->align - 1)))
		return md_bad_section(err, "bindings", "binding %u: aligned to %u bytes", index, binding->align);
	if (!binding->overlaps)
		return MD_OK;
	if (binding->within >= artifact->binding_count || binding->within == index ||
	    artifact->bindings[binding->within].overlaps)
		return md_bad_section(err, "bindings", "binding %u: it lies within binding %u of %u", index,
				      binding->within, artifact->binding_count);
	return MD_OK;
}

static enum md_status check_bindings(const struct md_artifact *artifact, struct md_error *err)
{
	uint32_t count = artifact->binding_count;
	MD_AUTO_FREE const char **names = calloc((size_t)count + 1, sizeof(*names));
	if (!names)
		return no_memory(err, "bindings");
	for (uint32_t i = 0; i < count; i++) {
		const struct md_binding *binding = &artifact->bindings[i];
		if (!name_ok(binding->name))
			return md_bad_section(err, "bindings", "binding %u: no name, or one of over %u bytes", i,
					      NAME_MAX_BYTES);
		if (binding->role < MD_BIND_CONSTANT || binding->role > MD_BIND_OUTPUT)
			return md_bad_section(err, "bindings", "binding %u: role %u", i, (unsigned)binding->role);
		if (binding->varied && !binding->hashed)
			return md_bad_section(err, "bindings", "binding %u varied, but has no hash", i);
		if (binding->adjoins && (binding->before >= count || binding->before == i))
			return md_bad_section(err, "bindings", "binding %u: its neighbour is binding %u of %u", i,
					      binding->before, count);
		MD_FORWARD(check_place(artifact, i, err));
		names[i] = binding->name;
	}
	qsort(names, count, sizeof(*names), by_text);
	for (uint32_t i = 1; i < count; i++) {
		if (!strcmp(names[i - 1], names[i]))
			return md_bad_section(err, "bindings", "the name %.200s appears twice", names[i]);
	}
	return MD_OK;
}

static enum md_status check_alloc(const struct md_artifact *artifact, uint32_t index, struct md_error *err)
{
	const struct md_artifact_alloc *alloc = &artifact->allocs[index];
	bool bound = alloc->class == MD_CLASS_BOUND;
	bool variable = alloc->class == MD_CLASS_VARIABLE;
	if (alloc->class < MD_CLASS_BOUND || alloc->class > MD_CLASS_VARIABLE)
		return md_bad_section(err, "allocations", "allocation %u: class %u", index, (unsigned)alloc->class);
	if (alloc->family < MD_ALLOC_DEVICE || alloc->family > MD_ALLOC_GLOBAL)
		return md_bad_section(err, "allocations", "allocation %u: family %u", index, (unsigned)alloc->family);
	if (bound && alloc->binding >= artifact->binding_count)
		return md_bad_section(err, "allocations", "allocation %u: binding %u of %u", index, alloc->binding,
				      artifact->binding_count);
	if (!bound && alloc->binding != MD_NONE)
		return md_bad_section(err, "allocations", "allocation %u: binding %u, but it is not bound", index,
				      alloc->binding);
	if (variable != (alloc->variable != NULL) ||
	    (variable && (!name_ok(alloc->variable) || alloc->image >= artifact->image_count)))
		return md_bad_section(err, "allocations", "allocation %u: variable \"%.200s\" of image %u of %u", index,
				      alloc->variable ? alloc->variable : "", alloc->image, artifact->image_count);
	if (alloc->class != MD_CLASS_PRIVATE)
		return MD_OK;
	if (alloc->arena_offset % ARENA_ALIGNMENT || !inside(alloc->arena_offset, alloc->size, artifact->arena_size))
		return md_bad_section(err, "allocations",
				      "allocation %u: %" PRIu64 " bytes at %" PRIu64 " of an arena of %" PRIu64
				      " (at multiples of %u)",
				      index, alloc->size, alloc->arena_offset, artifact->arena_size, ARENA_ALIGNMENT);
	return MD_OK;
}

static int by_arena_offset(const void *a, const void *b)
{
	const struct md_artifact_alloc *x = *(const struct md_artifact_alloc *const *)a,
				       *y = *(const struct md_artifact_alloc *const *)b;
	return x->arena_offset < y->arena_offset ? -1 : x->arena_offset > y->arena_offset;
}

static enum md_status check_arena(const struct md_artifact *artifact, struct md_error *err)
{
	uint32_t count = 0;
	MD_AUTO_FREE const struct md_artifact_alloc **sorted =
	    calloc((size_t)artifact->alloc_count + 1, sizeof(*sorted));
	if (!sorted)
		return no_memory(err, "allocations");
	for (uint32_t i = 0; i < artifact->alloc_count; i++) {
		if (artifact->allocs[i].class == MD_CLASS_PRIVATE && artifact->allocs[i].size)
			sorted[count++] = &artifact->allocs[i];
	}
	qsort(sorted, count, sizeof(*sorted), by_arena_offset);
	for (uint32_t i = 1; i < count; i++) {
		if (sorted[i - 1]->arena_offset + sorted[i - 1]->size > sorted[i]->arena_offset)
			return md_bad_section(err, "allocations", "allocations %u and %u overlap in the arena",
					      (unsigned)(sorted[i - 1] - artifact->allocs),
					      (unsigned)(sorted[i] - artifact->allocs));
	}
	return MD_OK;
}

static enum md_status check_allocations(const struct md_artifact *artifact, struct md_error *err)
{
	for (uint32_t i = 0; i < artifact->alloc_count; i++)
		MD_FORWARD(check_alloc(artifact, i, err));
	return check_arena(artifact, err);
}

/* ---- kernels and images ---- */

static enum md_status check_kernels(const struct md_artifact *artifact, struct md_error *err)
{
	for (uint32_t i = 0; i < artifact->kernel_count; i++) {
		const struct md_kernel *kernel = &artifact->kernels[i];
		uint64_t end = 0;
		if (!kernel->name || !kernel->name[0])
			return md_bad_section(err, "kernels", "kernel %u has no name", i);
		if (kernel->image != MD_NONE && kernel->image >= artifact->image_count)
			return md_bad_section(err, "kernels", "kernel %u: image index %u of %u", i, kernel->image,
					      artifact->image_count);
		for (uint32_t k = 0; k < kernel->param_count; k++) {
			const struct md_param *param = &kernel->params[k];
			if (param->offset < end || !inside(param->offset, param->size, MD_PARAMS_MAX))
				return md_bad_section(err, "kernels", "kernel %u: parameter %u of %u bytes at %u", i, k,
						      param->size, param->offset);
			end = (uint64_t)param->offset + param->size;
		}
	}
	return MD_OK;
}

static uint32_t pointer_bytes(const struct md_pointer *pointer)
{
	return pointer->kind == MD_POINTER_TENSOR_MAP ? 128 : 8;
}

/* Checks the pointers in contents, or in the value of a variable; index: the first that breaks a rule. */
static bool words_ok(const struct md_artifact *artifact, const struct md_pointer *pointers, uint32_t count,
		     uint64_t size, uint32_t *index)
{
	uint64_t end = 0;
	for (*index = 0; *index < count; ++*index) {
		const struct md_pointer *p = &pointers[*index];
		if (p->node != MD_NONE || p->kind > MD_POINTER_TENSOR_MAP || p->at < end ||
		    !inside(p->at, pointer_bytes(p), size) || p->alloc >= artifact->alloc_count)
			return false;
		end = (uint64_t)p->at + pointer_bytes(p);
	}
	return true;
}

static enum md_status check_value(const struct md_artifact *artifact, uint32_t image, uint32_t index,
				  struct md_error *err)
{
	const struct md_image_value *value = &artifact->images[image].values[index];
	uint32_t pointer;
	if (!name_ok(value->name) || !value->size || value->size > MD_IMAGE_VALUE_MAX || !value->data ||
	    artifact->images[image].variable)
		return md_bad_section(
		    err, "images", "image %u: value %u has no name or no bytes, or the engine writes another variable",
		    image, index);
	if (!words_ok(artifact, value->pointers, value->pointer_count, value->size, &pointer))
		return md_bad_section(err, "images",
				      "image %u: value %u: pointer %u at %u of %" PRIu64 ", allocation index %u of %u",
				      image, index, pointer, value->pointers[pointer].at, value->size,
				      value->pointers[pointer].alloc, artifact->alloc_count);
	return MD_OK;
}

static enum md_status check_images(const struct md_artifact *artifact, struct md_error *err)
{
	for (uint32_t i = 0; i < artifact->image_count; i++) {
		const struct md_image *image = &artifact->images[i];
		if (image->kind < MD_IMAGE_ELF || image->kind > MD_IMAGE_PTX)
			return md_bad_section(err, "images", "image %u: kind %u", i, (unsigned)image->kind);
		for (uint32_t v = 0; v < image->value_count; v++)
			MD_FORWARD(check_value(artifact, i, v, err));
		if (image->variable && (!name_ok(image->variable) || image->path || md_image_is_stored(image)))
			return md_bad_section(err, "images",
					      "image %u: its variable has no name, or it is stored all the same", i);
	}
	return MD_OK;
}

/* ---- graphs ---- */

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
		if (!inside(last->offset, last->size, node->params_size))
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
		if (node->event >= c->graph->node_count)
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
		return no_memory(c->err, "graphs");
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

static enum md_status check_edges(const struct md_graph_check *c)
{
	const struct md_artifact_graph *graph = c->graph;
	MD_AUTO_FREE uint64_t *keys = calloc((size_t)graph->edge_count + 1, sizeof(*keys));
	MD_AUTO_FREE uint32_t *parents = calloc((size_t)graph->node_count + 1, sizeof(*parents));
	bool sorted = true, forward = true;
	if (!keys || !parents)
		return no_memory(c->err, "graphs");
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
		    (!inside(p->at, pointer_bytes(p), bytes_of(&c->graph->nodes[p->node])) &&
		     !in_attribute(&c->graph->nodes[p->node], p)))
			return bad_place(c, "pointer", i, p->node, p->at);
		if (p->alloc >= c->artifact->alloc_count)
			return md_bad_section(c->err, "pointers",
					      "pointer %u of graph %.100s/%u: allocation index %u of %u", i,
					      c->graph->label, c->graph->batch, p->alloc, c->artifact->alloc_count);
		node = p->node;
		end = (uint64_t)p->at + pointer_bytes(p);
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
		    !inside(noise->at, noise->size, bytes_of(&c->graph->nodes[noise->node])))
			return bad_place(c, "noise", i, noise->node, noise->at);
		node = noise->node;
		end = (uint64_t)noise->at + noise->size;
	}
	return MD_OK;
}

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
		if (!output->size || !inside(output->offset, output->size, room))
			return md_bad_section(c->err, "graphs",
					      "output %u of graph %.100s/%u: %" PRIu64 " bytes at %" PRIu64
					      " of an allocation of %" PRIu64,
					      i, graph->label, graph->batch, output->size, output->offset, room);
	}
	return MD_OK;
}

static enum md_status check_note(const struct md_graph_check *c)
{
	if (c->graph->note_size > MD_NOTE_MAX || !c->graph->note != !c->graph->note_size)
		return md_bad_section(c->err, "graphs", "graph %.100s/%u: a note of %" PRIu64 " bytes, at most %u",
				      c->graph->label, c->graph->batch, c->graph->note_size, MD_NOTE_MAX);
	return MD_OK;
}

static enum md_status check_graph(const struct md_artifact *artifact, uint32_t index, struct md_error *err)
{
	const struct md_graph_check c = {artifact, &artifact->graphs[index], err};
	if (!name_ok(c.graph->label))
		return md_bad_section(err, "graphs", "graph %u has no label, or one of over %u bytes", index,
				      NAME_MAX_BYTES);
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
	MD_FORWARD(check_edges(&c));
	MD_FORWARD(check_pointers(&c));
	MD_FORWARD(check_outputs(&c));
	MD_FORWARD(check_note(&c));
	MD_FORWARD(check_noise(&c));
	MD_FORWARD(md_artifact_check_graph_numbers(artifact, c.graph, err));
	MD_FORWARD(md_artifact_check_handed(artifact, c.graph, err));
	return md_artifact_check_doubtful(artifact, c.graph, err);
}

static int by_label_and_batch(const void *a, const void *b)
{
	const struct md_artifact_graph *x = *(const struct md_artifact_graph *const *)a,
				       *y = *(const struct md_artifact_graph *const *)b;
	int labels = strcmp(x->label, y->label);
	return labels ? labels : x->batch < y->batch ? -1 : x->batch > y->batch;
}

static enum md_status check_graphs(const struct md_artifact *artifact, struct md_error *err)
{
	uint32_t count = artifact->graph_count;
	MD_AUTO_FREE const struct md_artifact_graph **sorted = calloc((size_t)count + 1, sizeof(*sorted));
	if (!sorted)
		return no_memory(err, "graphs");
	for (uint32_t i = 0; i < count; i++) {
		MD_FORWARD(check_graph(artifact, i, err));
		sorted[i] = &artifact->graphs[i];
	}
	qsort(sorted, count, sizeof(*sorted), by_label_and_batch);
	for (uint32_t i = 1; i < count; i++) {
		if (by_label_and_batch(&sorted[i - 1], &sorted[i]) == 0)
			return md_bad_section(err, "graphs",
					      "graph %.100s/%u appears twice, as graph %u with %u nodes and as graph "
					      "%u with %u; a graph is "
					      "asked for by its name: capture again with names of their own",
					      sorted[i]->label, sorted[i]->batch,
					      (unsigned)(sorted[i - 1] - artifact->graphs), sorted[i - 1]->node_count,
					      (unsigned)(sorted[i] - artifact->graphs), sorted[i]->node_count);
	}
	for (uint32_t i = 0; i < artifact->refusal_count; i++) {
		if (!artifact->refusals[i].why)
			return md_bad_section(err, "graphs", "refusal %u says no reason", i);
	}
	return MD_OK;
}

/* ---- contents, KV capacity, provenance ---- */

static enum md_status check_content(const struct md_artifact *artifact, uint32_t index, struct md_error *err)
{
	const struct md_artifact_content *content = &artifact->contents[index];
	uint32_t pointer;
	if (content->alloc >= artifact->alloc_count)
		return md_bad_section(err, "contents", "content %u: allocation index %u of %u", index, content->alloc,
				      artifact->alloc_count);
	const struct md_artifact_alloc *alloc = &artifact->allocs[content->alloc];
	if (alloc->class != MD_CLASS_PRIVATE || !inside(content->offset, content->size, alloc->size) ||
	    (content->size && !content->data))
		return md_bad_section(err, "contents",
				      "content %u: %" PRIu64 " bytes at %" PRIu64
				      " of allocation %u, which has %" PRIu64 " and must be private",
				      index, content->size, content->offset, content->alloc, alloc->size);
	if (!words_ok(artifact, content->pointers, content->pointer_count, content->size, &pointer))
		return md_bad_section(err, "contents",
				      "content %u: pointer %u at %u of %" PRIu64 ", allocation index %u of %u", index,
				      pointer, content->pointers[pointer].at, content->size,
				      content->pointers[pointer].alloc, artifact->alloc_count);
	return MD_OK;
}

static enum md_status check_rest(const struct md_artifact *artifact, struct md_error *err)
{
	const struct md_fingerprint *fingerprint = &artifact->fingerprint;
	for (uint32_t i = 0; i < fingerprint->library_count; i++) {
		if (!name_ok(fingerprint->libraries[i].path))
			return md_bad_section(err, "fingerprint", "library %u has no path, or one of over %u bytes", i,
					      NAME_MAX_BYTES);
	}
	MD_FORWARD(md_artifact_check_said(fingerprint, err));
	if (artifact->provenance.capture_count > 2)
		return md_bad_section(err, "provenance", "%u captures", artifact->provenance.capture_count);
	return MD_OK;
}

enum md_status md_artifact_check_head(const struct md_artifact *artifact, struct md_error *err)
{
	MD_FORWARD(check_bindings(artifact, err));
	if (md_sequence_check(artifact, err) != MD_OK)
		return md_error_prefix(err, "section \"bindings\"");
	MD_FORWARD(check_allocations(artifact, err));
	MD_FORWARD(check_images(artifact, err));
	MD_FORWARD(check_kernels(artifact, err));
	MD_FORWARD(check_rest(artifact, err));
	return md_artifact_check_numbers(artifact, err);
}

enum md_status md_artifact_check_graphs(const struct md_artifact *artifact, struct md_error *err)
{
	MD_FORWARD(check_graphs(artifact, err));
	MD_FORWARD(md_artifact_check_groups(artifact, err));
	for (uint32_t i = 0; i < artifact->content_count; i++)
		MD_FORWARD(check_content(artifact, i, err));
	return MD_OK;
}

enum md_status md_artifact_check(const struct md_artifact *artifact, struct md_error *err)
{
	MD_FORWARD(md_artifact_check_head(artifact, err));
	return md_artifact_check_graphs(artifact, err);
}
