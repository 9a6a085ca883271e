/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-inspect --graph: the nodes of one graph, with kernels, geometry and pointers. */
#include <inttypes.h>

#include "base/plain.h"
#include "tools/inspect.h"

static const char *kernel_name(const struct md_artifact *artifact, const struct md_node *node)
{
	return node->kernel < artifact->kernel_count ? artifact->kernels[node->kernel].name : "?";
}

/* A place in memory: "weights+128", or "private 3+0". */
static void format_place(const struct md_artifact *artifact, uint32_t index, int64_t offset, char *text, size_t size)
{
	const struct md_artifact_alloc *alloc = &artifact->allocs[index];
	if (alloc->class == MD_CLASS_BOUND && alloc->binding < artifact->binding_count)
		snprintf(text, size, "%s%+" PRId64, artifact->bindings[alloc->binding].name, offset);
	else if (alloc->class == MD_CLASS_VARIABLE)
		snprintf(text, size, "variable %s%+" PRId64, alloc->variable, offset);
	else
		snprintf(text, size, "%s %" PRIu32 "%+" PRId64,
			 alloc->class == MD_CLASS_PRIVATE ? "private" : "sequence", index, offset);
}

static void print_node(const struct md_artifact *artifact, uint32_t index, const struct md_node *node, FILE *out)
{
	switch (node->type) {
	case MD_NODE_KERNEL:
		md_plain_line(out,
			      "%5" PRIu32 "  %s  grid %" PRIu32 ",%" PRIu32 ",%" PRIu32 "  block %" PRIu32 ",%" PRIu32
			      ",%" PRIu32 "  shared %" PRIu32 "  parameters %" PRIu32 " bytes%s",
			      index, kernel_name(artifact, node), node->grid[0], node->grid[1], node->grid[2],
			      node->block[0], node->block[1], node->block[2], node->shared_bytes, node->params_size,
			      node->via_extra ? " in one buffer" : "");
		break;
	case MD_NODE_MEMSET:
		fprintf(out,
			"%5" PRIu32 "  memset  %" PRIu64 " x %" PRIu64 " elements of %" PRIu32 " bytes, value %#" PRIx32
			"\n",
			index, node->memset.width, node->memset.height, node->memset.element_size, node->memset.value);
		break;
	case MD_NODE_MEMCPY:
		fprintf(out, "%5" PRIu32 "  memcpy  %" PRIu64 " x %" PRIu64 " x %" PRIu64 " bytes\n", index,
			node->memcpy.width, node->memcpy.height, node->memcpy.depth);
		break;
	case MD_NODE_CHILD:
		fprintf(out, "%5" PRIu32 "  child graph  the next %" PRIu32 " nodes\n", index, node->child_nodes);
		break;
	case MD_NODE_EVENT_WAIT:
	case MD_NODE_EVENT_RECORD:
		md_plain_line(out, "%5" PRIu32 "  %s  event %" PRIu32, index, md_inspect_node(node->type), node->event);
		break;
	default:
		md_plain_line(out, "%5" PRIu32 "  %s", index, md_inspect_node(node->type));
	}
}

static void print_incoming(const struct md_artifact_graph *graph, uint32_t node, FILE *out)
{
	const char *before = "         after";
	for (uint32_t i = 0; i < graph->edge_count; i++) {
		const struct md_edge *edge = &graph->edges[i];
		if (edge->to != node)
			continue;
		md_plain_print(out, "%s %" PRIu32, before, edge->from);
		if (edge->type || edge->from_port || edge->to_port)
			fprintf(out, " (type %u, ports %u to %u)", edge->type, edge->from_port, edge->to_port);
		before = ",";
	}
	if (before[0] == ',')
		fputc('\n', out);
}

static void print_said(const struct md_artifact *artifact, const struct md_artifact_graph *graph, FILE *out)
{
	char place[512];
	for (uint32_t i = 0; i < graph->output_count; i++) {
		if (!graph->outputs[i].size)
			continue;
		format_place(artifact, graph->outputs[i].alloc, (int64_t)graph->outputs[i].offset, place,
			     sizeof(place));
		md_plain_line(out, "output %" PRIu32 ": %" PRIu64 " bytes at %s", i, graph->outputs[i].size, place);
	}
	for (uint32_t i = 0; i < graph->handed_count; i++) {
		const struct md_artifact_handed *part = &graph->handed[i];
		format_place(artifact, part->alloc, (int64_t)part->offset, place, sizeof(place));
		md_plain_line(out, "hands on: %s %" PRIu64 " bytes at %s, with other graphs",
			      part->reads && part->writes ? "reads and writes"
			      : part->reads               ? "reads"
							  : "writes",
			      part->size, place);
	}
	if (graph->note_size)
		fprintf(out, "note of %" PRIu64 " bytes\n", graph->note_size);
}

void md_inspect_graph(const struct md_artifact *artifact, const struct md_artifact_graph *graph, FILE *out)
{
	uint32_t p = 0, noise = 0;
	char proof[MD_PROOF_TEXT];
	md_plain_line(out, "%s/%" PRIu32 ": %" PRIu32 " nodes, %" PRIu32 " edges, %" PRIu32 " pointers, proof: %s",
		      graph->label, graph->batch, graph->node_count, graph->edge_count, graph->pointer_count,
		      md_inspect_proof(graph, proof));
	for (uint32_t n = 0; n < graph->node_count; n++) {
		const struct md_node *node = &graph->nodes[n];
		print_node(artifact, n, node, out);
		for (uint32_t i = 0; i < node->attribute_count; i++)
			fprintf(out, "         attribute %" PRIu32 "\n", node->attributes[i].id);
		print_incoming(graph, n, out);
		for (; p < graph->pointer_count && graph->pointers[p].node == n; p++) {
			char target[512];
			format_place(artifact, graph->pointers[p].alloc, graph->pointers[p].offset, target,
				     sizeof(target));
			if (graph->pointers[p].at >= MD_ATTRIBUTES_AT)
				md_plain_line(out, "         access policy window -> %s", target);
			else
				md_plain_line(out, "         byte %-5" PRIu32 "-> %s%s", graph->pointers[p].at, target,
					      graph->pointers[p].kind == MD_POINTER_TENSOR_MAP ? " (tensor map)" : "");
		}
		for (; noise < graph->noise_count && graph->noise[noise].node == n; noise++)
			fprintf(out, "         byte %-5" PRIu32 "noise, %" PRIu32 " bytes\n", graph->noise[noise].at,
				graph->noise[noise].size);
	}
	print_said(artifact, graph, out);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void put_dimensions(struct md_json *json, const char *key, const uint32_t dimensions[3])
{
	md_json_list(json, key);
	for (unsigned i = 0; i < 3; i++)
		md_json_number(json, NULL, dimensions[i]);
	md_json_end(json);
}

static const char *binding_name(const struct md_artifact *artifact, uint32_t index)
{
	const struct md_artifact_alloc *alloc = &artifact->allocs[index];
	return alloc->class == MD_CLASS_BOUND && alloc->binding < artifact->binding_count
		   ? artifact->bindings[alloc->binding].name
		   : NULL;
}

/* By index: null for an output that was not given. */
static void put_outputs(struct md_json *json, const struct md_artifact *artifact, const struct md_artifact_graph *graph)
{
	md_json_list(json, "outputs");
	for (uint32_t i = 0; i < graph->output_count; i++) {
		const struct md_artifact_output *output = &graph->outputs[i];
		if (!output->size) {
			md_json_text(json, NULL, NULL);
			continue;
		}
		md_json_object(json, NULL);
		md_json_number(json, "allocation", output->alloc);
		md_json_text(json, "binding", binding_name(artifact, output->alloc));
		md_json_number(json, "offset", output->offset);
		md_json_number(json, "size", output->size);
		md_json_end(json);
	}
	md_json_end(json);
	md_json_number(json, "note_bytes", graph->note_size);
}

static void put_handed(struct md_json *json, const struct md_artifact_graph *graph)
{
	if (!graph->group)
		return;
	md_json_number(json, "group", graph->group);
	md_json_list(json, "handed");
	for (uint32_t i = 0; i < graph->handed_count; i++) {
		md_json_object(json, NULL);
		md_json_number(json, "allocation", graph->handed[i].alloc);
		md_json_number(json, "offset", graph->handed[i].offset);
		md_json_number(json, "size", graph->handed[i].size);
		md_json_bool(json, "reads", graph->handed[i].reads);
		md_json_bool(json, "writes", graph->handed[i].writes);
		md_json_end(json);
	}
	md_json_end(json);
}

static void put_pointers(struct md_json *json, const struct md_artifact *artifact,
			 const struct md_artifact_graph *graph, uint32_t node, uint32_t *next)
{
	md_json_list(json, "pointers");
	for (; *next < graph->pointer_count && graph->pointers[*next].node == node; ++*next) {
		const struct md_pointer *pointer = &graph->pointers[*next];
		md_json_object(json, NULL);
		md_json_number(json, "at", pointer->at);
		md_json_number(json, "allocation", pointer->alloc);
		md_json_text(json, "binding", binding_name(artifact, pointer->alloc));
		md_json_signed(json, "offset", pointer->offset);
		md_json_end(json);
	}
	md_json_end(json);
}

void md_inspect_graph_json(const struct md_artifact *artifact, const struct md_artifact_graph *graph, FILE *out)
{
	struct md_json json;
	uint32_t next = 0;
	md_json_init(&json, out);
	md_json_object(&json, NULL);
	md_json_text(&json, "label", graph->label);
	md_json_number(&json, "batch", graph->batch);
	md_json_list(&json, "nodes");
	for (uint32_t n = 0; n < graph->node_count; n++) {
		const struct md_node *node = &graph->nodes[n];
		md_json_object(&json, NULL);
		md_json_text(&json, "type", md_inspect_node(node->type));
		if (node->type == MD_NODE_KERNEL) {
			md_json_text(&json, "kernel", kernel_name(artifact, node));
			put_dimensions(&json, "grid", node->grid);
			put_dimensions(&json, "block", node->block);
			md_json_number(&json, "shared_bytes", node->shared_bytes);
			md_json_number(&json, "parameter_bytes", node->params_size);
		}
		if (node->type == MD_NODE_CHILD)
			md_json_number(&json, "nodes", node->child_nodes);
		if (node->type == MD_NODE_EVENT_WAIT || node->type == MD_NODE_EVENT_RECORD)
			md_json_number(&json, "event", node->event);
		put_pointers(&json, artifact, graph, n, &next);
		md_json_end(&json);
	}
	md_json_end(&json);
	md_json_list(&json, "edges");
	for (uint32_t i = 0; i < graph->edge_count; i++) {
		md_json_object(&json, NULL);
		md_json_number(&json, "from", graph->edges[i].from);
		md_json_number(&json, "to", graph->edges[i].to);
		md_json_number(&json, "type", graph->edges[i].type);
		md_json_end(&json);
	}
	md_json_end(&json);
	put_outputs(&json, artifact, graph);
	put_handed(&json, graph);
	md_json_end(&json);
}
