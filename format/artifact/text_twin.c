/* SPDX-License-Identifier: Apache-2.0 */
/* The text twin of an artifact: the same sections, with graphs item by item. */
#include <stdlib.h>
#include <string.h>

#include "format/artifact/sections.h"
#include "format/codec/columns.h"

#define TEXT_VERSION 1
#define CACHES "[" MD_CACHE_SECTION "]" /* behind the others, of artifacts with caches */
#define SIGNATURE "[signature]"         /* the last section, of signed artifacts */
#define BUDGET_MAX (4ull << 30)         /* bytes */

/* ---- nodes ---- */

static const struct {
	uint8_t type;
	const char *name;
} node_types[] = {
    {MD_NODE_KERNEL, "kernel"},
    {MD_NODE_MEMCPY, "memcpy"},
    {MD_NODE_MEMSET, "memset"},
    {MD_NODE_CHILD, "child"},
    {MD_NODE_EMPTY, "empty"},
    {MD_NODE_EVENT_WAIT, "event_wait"},
    {MD_NODE_EVENT_RECORD, "event_record"},
};

static void visit_attribute(struct md_archive *a, void *item, void *user)
{
	struct md_attribute *attribute = item;
	(void)user;
	md_archive_u32(a, "id", &attribute->id);
	md_archive_bytes(a, "value", attribute->value, sizeof(attribute->value));
}

/* Attributes belong to the graph's arena, so md_archive_list, which allocates from the heap, cannot be used. */
static void visit_attributes(struct md_archive *a, struct md_node *node, struct md_artifact_graph *graph)
{
	if (a->ops->reading && node->attribute_count) {
		if (node->attribute_count > MD_ATTRIBUTES_MAX) {
			md_archive_fail(a, MD_ERR_CORRUPT, "%u attributes, at most %u", node->attribute_count,
					MD_ATTRIBUTES_MAX);
			return;
		}
		node->attributes =
		    md_budget_arena(a->budget, &graph->arena, node->attribute_count, sizeof(*node->attributes));
		if (!node->attributes) {
			md_archive_fail_memory(a);
			return;
		}
	}
	for (uint32_t i = 0; i < node->attribute_count && a->status == MD_OK; i++)
		md_archive_record(a, "attribute", visit_attribute, &node->attributes[i], NULL);
}

static void visit_params(struct md_archive *a, struct md_node *node, struct md_artifact_graph *graph)
{
	md_archive_u32(a, "params_size", &node->params_size);
	if (a->status != MD_OK || !node->params_size)
		return;
	if (node->params_size > MD_PARAMS_MAX) {
		md_archive_fail(a, MD_ERR_CORRUPT, "%u bytes of parameters, at most %u", node->params_size,
				MD_PARAMS_MAX);
		return;
	}
	if (a->ops->reading)
		node->params = md_budget_arena(a->budget, &graph->arena, node->params_size, 1);
	if (node->params)
		md_archive_bytes(a, "params", node->params, node->params_size);
	else
		md_archive_fail_memory(a);
}

static void visit_kernel_node(struct md_archive *a, struct md_node *node, struct md_artifact_graph *graph)
{
	static const char *const axes[] = {"x", "y", "z"};
	char name[16];
	md_archive_u32(a, "kernel", &node->kernel);
	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "grid_%s", axes[i]);
		md_archive_u32(a, name, &node->grid[i]);
	}
	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "block_%s", axes[i]);
		md_archive_u32(a, name, &node->block[i]);
	}
	md_archive_u32(a, "shared_bytes", &node->shared_bytes);
	md_archive_bool(a, "via_extra", &node->via_extra);
	md_archive_u32(a, "attributes", &node->attribute_count);
	visit_params(a, node, graph);
	visit_attributes(a, node, graph);
}

static void visit_memset(struct md_archive *a, struct md_memset *set)
{
	md_archive_u64(a, "dst", &set->dst);
	md_archive_u64(a, "pitch", &set->pitch);
	md_archive_u64(a, "width", &set->width);
	md_archive_u64(a, "height", &set->height);
	md_archive_u32(a, "value", &set->value);
	md_archive_u32(a, "element_size", &set->element_size);
}

static void visit_memcpy(struct md_archive *a, struct md_memcpy *copy)
{
	md_archive_u64(a, "src", &copy->src);
	md_archive_u64(a, "dst", &copy->dst);
	md_archive_u32(a, "src_type", &copy->src_type);
	md_archive_u32(a, "dst_type", &copy->dst_type);
	md_archive_u64(a, "src_x", &copy->src_x);
	md_archive_u64(a, "src_y", &copy->src_y);
	md_archive_u64(a, "src_z", &copy->src_z);
	md_archive_u64(a, "src_pitch", &copy->src_pitch);
	md_archive_u64(a, "src_height", &copy->src_height);
	md_archive_u64(a, "dst_x", &copy->dst_x);
	md_archive_u64(a, "dst_y", &copy->dst_y);
	md_archive_u64(a, "dst_z", &copy->dst_z);
	md_archive_u64(a, "dst_pitch", &copy->dst_pitch);
	md_archive_u64(a, "dst_height", &copy->dst_height);
	md_archive_u64(a, "width", &copy->width);
	md_archive_u64(a, "height", &copy->height);
	md_archive_u64(a, "depth", &copy->depth);
}

static void visit_type(struct md_archive *a, struct md_node *node)
{
	char *name = NULL;
	size_t count = sizeof(node_types) / sizeof(*node_types);
	if (!a->ops->reading) {
		for (size_t i = 0; i < count; i++) {
			if (node_types[i].type == node->type)
				name = (char *)node_types[i].name;
		}
		md_archive_string(a, "type", &name);
		return;
	}
	md_archive_string(a, "type", &name);
	for (size_t i = 0; name && i < count; i++) {
		if (!strcmp(name, node_types[i].name)) {
			node->type = node_types[i].type;
			free(name);
			return;
		}
	}
	md_archive_fail(a, MD_ERR_CORRUPT, "node type %.100s is not known", name ? name : "(none)");
	free(name);
}

static void visit_node(struct md_archive *a, void *item, void *user)
{
	struct md_node *node = item;
	visit_type(a, node);
	if (a->ops->reading)
		node->kernel = MD_NONE;
	if (node->type == MD_NODE_KERNEL)
		visit_kernel_node(a, node, user);
	else if (node->type == MD_NODE_MEMSET)
		visit_memset(a, &node->memset);
	else if (node->type == MD_NODE_MEMCPY)
		visit_memcpy(a, &node->memcpy);
	else if (node->type == MD_NODE_CHILD)
		md_archive_u32(a, "nodes", &node->child_nodes);
	else if (node->type == MD_NODE_EVENT_WAIT || node->type == MD_NODE_EVENT_RECORD)
		md_archive_u32(a, "event", &node->event);
}

/* ---- graphs ---- */

static void visit_edge(struct md_archive *a, void *item, void *user)
{
	struct md_edge *edge = item;
	(void)user;
	md_archive_u32(a, "from", &edge->from);
	md_archive_u32(a, "to", &edge->to);
	md_archive_u8(a, "from_port", &edge->from_port);
	md_archive_u8(a, "to_port", &edge->to_port);
	md_archive_u8(a, "type", &edge->type);
}

static void visit_noise(struct md_archive *a, void *item, void *user)
{
	struct md_noise *noise = item;
	(void)user;
	md_archive_u32(a, "node", &noise->node);
	md_archive_u32(a, "at", &noise->at);
	md_archive_u32(a, "size", &noise->size);
}

static void visit_graph(struct md_archive *a, void *item, void *user)
{
	struct md_artifact_graph *graph = item;
	(void)user;
	md_visit_graph_head(a, graph);
	md_archive_list(a, "nodes", "node", &graph->nodes, &graph->node_count, sizeof(*graph->nodes), visit_node,
			graph);
	md_archive_list(a, "edges", "edge", &graph->edges, &graph->edge_count, sizeof(*graph->edges), visit_edge, NULL);
	md_archive_list(a, "pointers", "pointer", &graph->pointers, &graph->pointer_count, sizeof(*graph->pointers),
			md_visit_pointer, NULL);
	md_archive_list(a, "noise", "noise", &graph->noise, &graph->noise_count, sizeof(*graph->noise), visit_noise,
			NULL);
	md_visit_graph_tail(a, graph);
}

void md_section_graphs_text(struct md_archive *a, struct md_artifact *artifact)
{
	md_archive_list(a, "graphs", "graph", &artifact->graphs, &artifact->graph_count, sizeof(*artifact->graphs),
			visit_graph, NULL);
}

/* ---- the whole ---- */

static void visit_head(struct md_archive *a, void *item, void *user)
{
	uint32_t version = TEXT_VERSION;
	(void)item, (void)user;
	md_archive_u32(a, "version", &version);
	if (version != TEXT_VERSION)
		md_archive_fail(a, MD_ERR_VERSION, "text of version %u, this reader knows %d", version, TEXT_VERSION);
}

static void visit_signature(struct md_archive *a, void *item, void *user)
{
	struct md_artifact_signature *signature = item;
	(void)user;
	if (a->ops->reading)
		signature->present = true;
	md_archive_bytes(a, "key", signature->key.bytes, sizeof(signature->key.bytes));
	md_archive_bytes(a, "value", signature->bytes, sizeof(signature->bytes));
}

static void visit_sections(struct md_archive *a, struct md_artifact *artifact)
{
	md_archive_record(a, "medusa-artifact-text", visit_head, NULL, NULL);
	for (int i = 0; i < MD_SECTION_COUNT; i++) {
		const struct md_section_kind *kind = &md_section_kinds[i];
		char keyword[32];
		snprintf(keyword, sizeof(keyword), "[%s]", kind->name);
		if (kind->text)
			md_archive_record(a, keyword, kind->visit, artifact, NULL);
	}
	if (a->status != MD_OK)
		return;
	if (a->ops->reading ? md_archive_text_next(a, CACHES) : artifact->caches.folder_count != 0)
		md_archive_record(a, CACHES, md_cache_section_kind.visit, artifact, NULL);
	if (a->status != MD_OK)
		return;
	if (a->ops->reading ? md_archive_text_next(a, SIGNATURE) : artifact->signature.present)
		md_archive_record(a, SIGNATURE, visit_signature, &artifact->signature, NULL);
}

enum md_status md_artifact_print_text(const struct md_artifact *artifact, FILE *out, struct md_error *err)
{
	struct md_archive a;
	MD_FORWARD(md_artifact_check(artifact, err));
	MD_FORWARD(md_image_frames_complete(artifact, err));
	MD_FORWARD(md_archive_open_print(&a, out, err));
	visit_sections(&a, (struct md_artifact *)artifact); /* visitors only read when printing */
	return md_archive_close_text(&a);
}

enum md_status md_artifact_parse_text(FILE *in, struct md_artifact *out, struct md_error *err)
{
	struct md_archive a;
	struct md_budget budget = {.left = BUDGET_MAX};
	struct md_artifact artifact = {0};
	MD_FORWARD(md_archive_open_parse(&a, in, &budget, err));
	visit_sections(&a, &artifact);
	enum md_status status = md_archive_close_text(&a);
	if (status == MD_OK)
		status = md_artifact_check(&artifact, err);
	if (status == MD_OK)
		*out = artifact;
	else
		md_artifact_finish(&artifact);
	return status;
}
