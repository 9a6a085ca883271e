/* SPDX-License-Identifier: Apache-2.0 */
/* Builds traces in memory, for tests of what reads them: every call is the next moment of the capture. */
#ifndef TESTS_TRACE_BUILDER_H
#define TESTS_TRACE_BUILDER_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "format/artifact/artifact.h"
#include "format/trace/trace.h"

struct builder {
	struct md_trace trace;
	uint64_t sequence;
};

/* Appends a zeroed item to an array of the trace. */
static inline void *builder_grow(void *array_slot, uint32_t *count, size_t item)
{
	void **array = array_slot;
	char *grown = md_array_resize(*array, (uint64_t)*count + 1, item);
	cr_assert(grown, "memory for the test");
	*array = grown;
	memset(grown + *count * item, 0, item);
	return grown + (*count)++ * item;
}

static inline char *builder_text(const char *text)
{
	char *copy = text ? strdup(text) : NULL;
	cr_assert(!text || copy, "memory for the test");
	return copy;
}

static inline void builder_init(struct builder *b)
{
	memset(b, 0, sizeof(*b));
	b->trace.complete = true;
	b->trace.version = MD_TRACE_ANALYZED_FROM;
	b->trace.path = builder_text("test.mtrace");
	b->trace.command = builder_text("engine --model m");
	b->trace.tool_version = builder_text("0.1.0");
	strcpy(b->trace.fingerprint.device_name, "Test Device");
	b->trace.fingerprint.compute_major = 9;
	b->trace.fingerprint.multiprocessors = 132;
	b->trace.fingerprint.device_memory = UINT64_C(1) << 37;
	b->trace.fingerprint.driver_version = 13000;
}

static inline uint32_t builder_alloc(struct builder *b, enum md_alloc_family family, uint64_t address, uint64_t size)
{
	struct md_trace_alloc *alloc = builder_grow(&b->trace.allocs, &b->trace.alloc_count, sizeof(*alloc));
	*alloc = (struct md_trace_alloc){family, family, address, size, ++b->sequence, UINT64_MAX};
	return b->trace.alloc_count - 1;
}

static inline void builder_free(struct builder *b, uint32_t alloc)
{
	b->trace.allocs[alloc].died = ++b->sequence;
}

/* An image in no file, whose bytes are all `fill`. */
static inline uint32_t builder_image(struct builder *b, uint8_t fill)
{
	struct md_image *image = builder_grow(&b->trace.images, &b->trace.image_count, sizeof(*image));
	b->sequence++;
	image->kind = MD_IMAGE_ELF;
	image->size = 64;
	image->data = malloc(64);
	cr_assert(image->data, "memory for the test");
	memset(image->data, fill, 64);
	image->hash = md_hash_bytes(image->data, 64);
	return b->trace.image_count - 1;
}

/* A kernel with one parameter of `bytes` bytes. */
static inline uint32_t builder_kernel(struct builder *b, uint32_t image, const char *name, uint32_t bytes)
{
	struct md_kernel *kernel = builder_grow(&b->trace.kernels, &b->trace.kernel_count, sizeof(*kernel));
	uint32_t launches = b->trace.kernel_count - 1;
	b->sequence++;
	kernel->image = image;
	kernel->name = builder_text(name);
	kernel->state.preferred_carveout = -1;
	builder_grow(&kernel->params, &kernel->param_count, sizeof(*kernel->params));
	kernel->params[0].size = bytes;
	builder_grow(&b->trace.launches, &launches, sizeof(*b->trace.launches));
	return b->trace.kernel_count - 1;
}

static inline struct md_trace_graph *builder_last(struct builder *b)
{
	return &b->trace.graphs[b->trace.graph_count - 1];
}

static inline struct md_trace_graph *builder_graph(struct builder *b, const char *label, uint32_t batch)
{
	struct md_trace_graph *graph = builder_grow(&b->trace.graphs, &b->trace.graph_count, sizeof(*graph));
	graph->id = b->trace.graph_count;
	graph->label = builder_text(label);
	graph->batch = batch;
	graph->sequence = ++b->sequence;
	return graph;
}

/* Appends a node to the last graph; the graph then counts as instantiated after it. */
static inline struct md_node *builder_node(struct builder *b, uint8_t type)
{
	struct md_trace_graph *graph = builder_last(b);
	struct md_node *node = builder_grow(&graph->nodes, &graph->node_count, sizeof(*node));
	node->type = type;
	node->kernel = MD_NONE;
	node->sequence = ++b->sequence;
	graph->sequence = b->sequence;
	return node;
}

static inline struct md_node *builder_launch(struct builder *b, uint32_t kernel, const void *params, uint32_t bytes)
{
	struct md_node *node = builder_node(b, MD_NODE_KERNEL);
	node->kernel = kernel;
	node->grid[0] = 4;
	node->grid[1] = node->grid[2] = 1;
	node->block[0] = 128;
	node->block[1] = node->block[2] = 1;
	node->params_size = bytes;
	node->params = md_arena_alloc(&builder_last(b)->arena, bytes);
	cr_assert(node->params, "memory for the test");
	memcpy(node->params, params, bytes);
	return node;
}

static inline void builder_edge(struct builder *b, uint32_t from, uint32_t to)
{
	struct md_trace_graph *graph = builder_last(b);
	struct md_edge *edge = builder_grow(&graph->edges, &graph->edge_count, sizeof(*edge));
	edge->from = from;
	edge->to = to;
}

static inline void builder_attribute(struct builder *b, uint32_t id, const void *value, size_t bytes)
{
	struct md_node *node = &builder_last(b)->nodes[builder_last(b)->node_count - 1];
	node->attributes = md_arena_alloc(&builder_last(b)->arena, sizeof(*node->attributes));
	cr_assert(node->attributes, "memory for the test");
	memset(node->attributes, 0, sizeof(*node->attributes));
	node->attributes->id = id;
	memcpy(node->attributes->value, value, bytes);
	node->attribute_count = 1;
}

static inline void builder_bind(struct builder *b, const char *name, uint64_t address, uint64_t size,
				enum md_bind_role role)
{
	struct md_trace_bind *bind = builder_grow(&b->trace.binds, &b->trace.bind_count, sizeof(*bind));
	*bind = (struct md_trace_bind){builder_text(name), address, size, ++b->sequence, role};
}

static inline void builder_content(struct builder *b, uint64_t address, const void *data, uint64_t size)
{
	struct md_trace_content *content = builder_grow(&b->trace.contents, &b->trace.content_count, sizeof(*content));
	*content = (struct md_trace_content){++b->sequence, address, size, malloc(size)};
	cr_assert(content->data, "memory for the test");
	memcpy(content->data, data, size);
}

static inline void builder_finish(struct builder *b)
{
	md_trace_finish(&b->trace);
}

static inline const struct md_artifact_graph *find_graph(const struct md_artifact *artifact, const char *label,
							 uint32_t batch)
{
	for (uint32_t i = 0; i < artifact->graph_count; i++) {
		if (strcmp(artifact->graphs[i].label, label) == 0 && artifact->graphs[i].batch == batch)
			return &artifact->graphs[i];
	}
	return NULL;
}

/* Why a graph was refused; "" when it was not. */
static inline const char *refusal_of(const struct md_artifact *artifact, const char *label, uint32_t batch)
{
	for (uint32_t i = 0; i < artifact->refusal_count; i++) {
		if (strcmp(artifact->refusals[i].label, label) == 0 && artifact->refusals[i].batch == batch)
			return artifact->refusals[i].why;
	}
	return "";
}

#endif
