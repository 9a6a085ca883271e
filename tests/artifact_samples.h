/* SPDX-License-Identifier: Apache-2.0 */
/* Artifacts made up for tests: a small one with everything in it, and one of a decode step's size. */
#ifndef TESTS_ARTIFACT_SAMPLES_H
#define TESTS_ARTIFACT_SAMPLES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "format/artifact/artifact.h"

static inline void *sample_array(uint32_t count, size_t size)
{
	void *array = calloc(count ? count : 1, size);
	if (!array)
		exit(1);
	return array;
}

static inline void sample_kernel_node(struct md_artifact_graph *graph, uint32_t index, uint32_t kernel, uint32_t grid,
				      uint32_t params_size)
{
	struct md_node *node = &graph->nodes[index];
	*node = (struct md_node){.type = MD_NODE_KERNEL,
				 .kernel = kernel,
				 .grid = {grid, 1, 1},
				 .block = {128, 1, 1},
				 .params_size = params_size};
	node->params = md_arena_alloc(&graph->arena, params_size);
}

static inline void sample_attribute(struct md_artifact_graph *graph, uint32_t index)
{
	struct md_node *node = &graph->nodes[index];
	node->attributes = md_arena_alloc(&graph->arena, 2 * sizeof(*node->attributes));
	node->attribute_count = 2;
	node->attributes[0] = (struct md_attribute){.id = 4, .value = {2, 0, 0, 0, 1}};
	node->attributes[1] = (struct md_attribute){.id = 6, .value = {[0] = 1, [63] = 0xee}};
}

/* Five nodes of all types, a programmatic edge, a diamond; grid and parameters depend on the batch. */
static inline void sample_graph(struct md_artifact_graph *graph, const char *label, uint32_t batch)
{
	*graph = (struct md_artifact_graph){.label = strdup(label),
					    .batch = batch,
					    .proof = MD_PROOF_TWO,
					    .instantiate_flags = 8,
					    .constant_words = 20,
					    .pointer_words = 19,
					    .noise_words = 1};
	graph->node_count = 6;
	graph->nodes = sample_array(6, sizeof(*graph->nodes));
	sample_kernel_node(graph, 0, 0, batch, 40);
	sample_kernel_node(graph, 1, 1, 2 * batch, 256);
	sample_kernel_node(graph, 2, 0, batch, 40);
	graph->nodes[1].via_extra = true;
	graph->nodes[1].shared_bytes = 99 * 1024;
	graph->nodes[0].params[16] = (uint8_t)batch;
	graph->nodes[2].params[17] = 7;
	memset(graph->nodes[1].params + 140, 0xa5, 40);
	sample_attribute(graph, 1);
	graph->nodes[3] = (struct md_node){
	    .type = MD_NODE_MEMSET,
	    .kernel = MD_NONE,
	    .memset = {.pitch = 512, .width = batch, .height = 1, .value = 0xffffffff, .element_size = 4}};
	graph->nodes[4] = (struct md_node){.type = MD_NODE_MEMCPY,
					   .kernel = MD_NONE,
					   .memcpy = {.src_type = 2,
						      .dst_type = 2,
						      .src_x = 8,
						      .dst_pitch = 64,
						      .width = 4 * batch,
						      .height = 1,
						      .depth = 1}};
	graph->nodes[5] = (struct md_node){.type = MD_NODE_EMPTY, .kernel = MD_NONE};
	graph->edge_count = 6;
	graph->edges = sample_array(6, sizeof(*graph->edges));
	const struct md_edge edges[] = {{0, 1, 1, 0, 1, 0}, {1, 2, 0, 0, 0, 0}, {1, 3, 0, 0, 0, 0},
					{3, 4, 0, 0, 0, 0}, {2, 5, 0, 0, 0, 0}, {4, 5, 0, 0, 0, 0}};
	memcpy(graph->edges, edges, sizeof(edges));
	const struct md_pointer pointers[] = {
	    {0, 0, 0, MD_POINTER_PLAIN, 0},        {0, 8, 2, MD_POINTER_PLAIN, 64 * batch},
	    {1, 0, 1, MD_POINTER_TENSOR_MAP, 128}, {1, 128, 2, MD_POINTER_PLAIN, 64 * batch},
	    {2, 0, 0, MD_POINTER_PLAIN, 0},        {2, 8, 2, MD_POINTER_PLAIN, -16},
	    {3, 0, 3, MD_POINTER_PLAIN, 0},        {4, 0, 2, MD_POINTER_PLAIN, 0},
	    {4, 8, 3, MD_POINTER_PLAIN, 4096},
	};
	graph->pointer_count = sizeof(pointers) / sizeof(*pointers);
	graph->pointers = sample_array(graph->pointer_count, sizeof(*pointers));
	memcpy(graph->pointers, pointers, sizeof(pointers));
	const struct md_noise noise[] = {{0, 20, 4}, {0, 36, 4}, {2, 20, 4}};
	graph->noise_count = sizeof(noise) / sizeof(*noise);
	graph->noise = sample_array(graph->noise_count, sizeof(*noise));
	memcpy(graph->noise, noise, sizeof(noise));
}

/* Outputs in private and in bound memory, one that was not given between them; a note of all byte values. */
static inline void sample_said(struct md_artifact_graph *graph)
{
	const struct md_artifact_output outputs[] = {{2, 512, 1024}, {MD_NONE, 0, 0}, {0, 0, 1 << 20}};
	graph->output_count = 3;
	graph->outputs = sample_array(3, sizeof(*outputs));
	memcpy(graph->outputs, outputs, sizeof(outputs));
	graph->note_size = 256;
	graph->note = sample_array(256, 1);
	for (int i = 0; i < 256; i++)
		graph->note[i] = (uint8_t)i;
}

/* A word that has a place in an allocation, and one that has none. */
static inline void sample_doubtful(struct md_artifact_graph *graph)
{
	const struct md_doubtful doubtful[] = {{0, 24, 2, -8, {47, 49}, {0, 0}}, {1, 144, MD_NONE, 0, {3, 3}, {8, 16}}};
	graph->doubtful_count = 2;
	graph->doubtful = sample_array(2, sizeof(*doubtful));
	memcpy(graph->doubtful, doubtful, sizeof(doubtful));
}

/* The first two graphs hand something on: the first one writes what the second one reads, and the other way round. */
static inline void sample_group(struct md_artifact *artifact)
{
	const struct md_artifact_handed handed[] = {{2, 0, 4096, false, true}, {2, 8192, 512, true, false}};
	for (int i = 0; i < 2; i++) {
		struct md_artifact_graph *graph = &artifact->graphs[i];
		graph->group = 7;
		graph->handed_count = 2;
		graph->handed = sample_array(2, sizeof(*handed));
		memcpy(graph->handed, handed, sizeof(handed));
		for (int k = 0; k < 2 && i; k++) {
			graph->handed[k].reads = handed[k].writes;
			graph->handed[k].writes = handed[k].reads;
		}
	}
}

static inline void sample_fact(struct md_fingerprint *fingerprint, const char *name, const char *value)
{
	if (md_fingerprint_set_fact(fingerprint, name, value, NULL) != MD_OK)
		exit(1);
}

static inline void sample_tables(struct md_artifact *artifact)
{
	const struct md_artifact_alloc allocs[] = {
	    {MD_CLASS_BOUND, MD_ALLOC_DEVICE, 0, 0, 1 << 20, 0, 0, NULL},
	    {MD_CLASS_SEQUENCE, MD_ALLOC_ASYNC, MD_NONE, 1, 4096, 0, 0, NULL},
	    {MD_CLASS_PRIVATE, MD_ALLOC_DEVICE, MD_NONE, 2, 1 << 16, 0, 0, NULL},
	    {MD_CLASS_PRIVATE, MD_ALLOC_GLOBAL, MD_NONE, 5, 8192, 1 << 16, 0, NULL},
	};
	artifact->alloc_count = 4;
	artifact->allocs = sample_array(4, sizeof(*allocs));
	memcpy(artifact->allocs, allocs, sizeof(allocs));
	artifact->arena_size = (1 << 16) + 8192;
	artifact->binding_count = 2;
	artifact->bindings = sample_array(2, sizeof(*artifact->bindings));
	artifact->bindings[0] =
	    (struct md_binding){.name = strdup("weights \"0\"\n\\"), .size = 1 << 20, .role = MD_BIND_CONSTANT};
	artifact->bindings[1] = (struct md_binding){.name = strdup("input"), .size = 64, .role = MD_BIND_INPUT};
	artifact->image_count = 2;
	artifact->images = sample_array(2, sizeof(*artifact->images));
	artifact->images[0] = (struct md_image){.hash = md_hash_bytes("abc", 3),
						.kind = MD_IMAGE_FATBIN,
						.size = 3,
						.path = strdup("/opt/lib with space.so"),
						.build_id = strdup("00ff"),
						.file_offset = 4096};
	artifact->images[1] = (struct md_image){.hash = md_hash_bytes("x", 1), .kind = MD_IMAGE_ELF, .size = 1000};
	artifact->images[1].data = sample_array(1000, 1);
	for (int i = 0; i < 1000; i++)
		artifact->images[1].data[i] = (uint8_t)(i * i);
	artifact->kernel_count = 2;
	artifact->kernels = sample_array(2, sizeof(*artifact->kernels));
	for (uint32_t i = 0; i < 2; i++) {
		struct md_kernel *kernel = &artifact->kernels[i];
		*kernel = (struct md_kernel){.image = i ? MD_NONE : 1,
					     .name = strdup(i ? "nvjet" : "_Z3addPfS_i"),
					     .param_count = i ? 1 : 3,
					     .state = {.max_dynamic_shared_bytes = 1 << 16,
						       .preferred_carveout = -1,
						       .non_portable_cluster = 1,
						       .registers = 40}};
		kernel->params = sample_array(kernel->param_count, sizeof(*kernel->params));
		kernel->params[0] = (struct md_param){0, i ? 256 : 8};
		if (!i) {
			kernel->params[1] = (struct md_param){8, 8};
			kernel->params[2] = (struct md_param){16, 24};
		}
	}
}

static inline void sample_text(struct md_argument_list *list, const char *text)
{
	if (!md_arguments_add(list, text))
		abort();
}

static inline void sample_rest(struct md_artifact *artifact)
{
	struct md_fingerprint *fingerprint = &artifact->fingerprint;
	*fingerprint = (struct md_fingerprint){.device_name = "Test device",
					       .compute_major = 9,
					       .multiprocessors = 132,
					       .device_memory = 150ull << 30,
					       .driver_version = 13000};
	fingerprint->library_count = 1;
	fingerprint->libraries = sample_array(1, sizeof(*fingerprint->libraries));
	fingerprint->libraries[0] = (struct md_fingerprint_library){strdup("/opt/lib.so"), strdup("")};
	sample_fact(fingerprint, "torch", "2.11.0+\"cu130\"");
	sample_fact(fingerprint, "model", "");
	sample_text(&fingerprint->arguments, "engine");
	sample_text(&fingerprint->arguments, "--prompt=a \"b\"\n\x01");
	sample_text(&fingerprint->vary, "--port=*");
	artifact->refusal_count = 1;
	artifact->refusals = sample_array(1, sizeof(*artifact->refusals));
	artifact->refusals[0] = (struct md_artifact_refusal){NULL, 3, strdup("host node at index 4")};
	artifact->content_count = 1;
	artifact->contents = sample_array(1, sizeof(*artifact->contents));
	struct md_artifact_content *content = &artifact->contents[0];
	*content = (struct md_artifact_content){.alloc = 3, .offset = 128, .size = 100, .pointer_count = 1};
	content->data = sample_array(100, 1);
	memset(content->data, 0x5a, 100);
	content->pointers = sample_array(1, sizeof(*content->pointers));
	content->pointers[0] = (struct md_pointer){MD_NONE, 16, 1, MD_POINTER_PLAIN, -8};
	artifact->kv = (struct md_kv){true, 50, 2, 3, 30, 5, 6, 900000, "key of the engine"};
	artifact->provenance = (struct md_provenance){.tool_version = strdup("0.1.0"),
						      .command = strdup("engine --a \"b\""),
						      .created = strdup("2025-01-01T00:00:00Z"),
						      .capture_count = 2,
						      .stage_count = 1};
	artifact->provenance.stages = sample_array(1, sizeof(struct md_stage_time));
	artifact->provenance.stages[0] = (struct md_stage_time){"warmup", 123456789012};
}

static inline void sample_artifact(struct md_artifact *artifact)
{
	*artifact = (struct md_artifact){0};
	sample_tables(artifact);
	sample_rest(artifact);
	artifact->graph_count = 4;
	artifact->graphs = sample_array(4, sizeof(*artifact->graphs));
	sample_graph(&artifact->graphs[0], "decode", 1);
	sample_graph(&artifact->graphs[1], "decode", 2);
	sample_graph(&artifact->graphs[2], "decode", 4);
	sample_graph(&artifact->graphs[3], "encode", 1);
	sample_said(&artifact->graphs[1]);
	/* one without any edge, pointer or noise, and with another kernel than its neighbour has */
	artifact->graphs[3].edge_count = artifact->graphs[3].pointer_count = artifact->graphs[3].noise_count = 0;
	artifact->graphs[3].nodes[0].kernel = 1;
	artifact->graphs[3].nodes[0].params_size = 256;
	artifact->graphs[3].nodes[0].params = md_arena_alloc(&artifact->graphs[3].arena, 256);
}

static inline void sample_cache_file(struct md_cache_folder *folder, const char *path, uint64_t size, bool noise)
{
	struct md_cache_file *file = &folder->files[folder->file_count++];
	uint32_t random = (uint32_t)size | 1;
	*file = (struct md_cache_file){.path = strdup(path), .size = size};
	file->data = size ? sample_array((uint32_t)size, 1) : NULL;
	for (uint64_t i = 0; i < size; i++) {
		random = random * 1664525 + 1013904223;
		file->data[i] = noise ? (uint8_t)(random >> 24) : (uint8_t)(i / 16);
	}
	file->hash = md_hash_bytes(size ? (const void *)file->data : "", size);
}

/* Two folders of caches: files without bytes, some that share a block, and one of `large` bytes, which has several. */
static inline void sample_caches(struct md_artifact *artifact, uint64_t large)
{
	static const struct md_cache_folder folders[] = {
	    {"VLLM_CACHE_ROOT", true, "torch_compile_cache", "/c/vllm", NULL, 0},
	    {"triton", false, "", "/c/triton", NULL, 0}};
	artifact->caches.folder_count = 2;
	artifact->caches.folders = sample_array(2, sizeof(*artifact->caches.folders));
	for (uint32_t i = 0; i < 2; i++) {
		struct md_cache_folder *folder = &artifact->caches.folders[i];
		folder->name = strdup(folders[i].name);
		folder->variable = folders[i].variable;
		folder->inside = strdup(folders[i].inside);
		folder->path = strdup(folders[i].path);
		folder->files = sample_array(6, sizeof(*folder->files));
	}
	sample_cache_file(&artifact->caches.folders[0], "a", 0, false);
	sample_cache_file(&artifact->caches.folders[0], "b/c.py", 700, false);
	sample_cache_file(&artifact->caches.folders[0], "b/d.so", large, true);
	sample_cache_file(&artifact->caches.folders[0], "b-c", 33, false);
	sample_cache_file(&artifact->caches.folders[0], "e", 0, false);
	sample_cache_file(&artifact->caches.folders[1], "k.cubin", 5000, true);
	artifact->caches.folders[0].files[2].executable = true;
}

/* A decode step: layers of 18 nodes, sizes, temporaries and some kernels depending on the batch. */
enum { LARGE_GRAPHS = 35, LARGE_NODES = 450, LARGE_PERIOD = 18, LARGE_KERNELS = 40 };

static inline void large_node(struct md_artifact_graph *graph, uint32_t i, uint32_t batch)
{
	uint32_t place = i % LARGE_PERIOD, layer = i / LARGE_PERIOD;
	bool gemm = place % 4 == 0;
	/* matrix products take another tile size at some batch sizes */
	uint32_t kernel = gemm ? LARGE_PERIOD + (place / 4) * 4 + (batch > 64) + (batch > 128) : place;
	uint32_t size = gemm ? 1720 : 32 + place * 8;
	sample_kernel_node(graph, i, kernel, gemm ? (batch + 63) / 64 * (1 + place) : batch * (1 + place % 3), size);
	struct md_node *node = &graph->nodes[i];
	if (gemm) {
		node->via_extra = true;
		sample_attribute(graph, i);
		for (uint32_t k = 400; k < 1700; k += 4)
			node->params[k] = (uint8_t)(k * 31 + place);
	}
	memcpy(node->params + 24, &batch, 4); /* rows */
	uint32_t strides = batch * 1024 * (1 + place % 5);
	memcpy(node->params + 28, &strides, 4);
	uint32_t pointers = gemm ? 8 : 3;
	for (uint32_t k = 0; k < pointers; k++) {
		struct md_pointer *p = &graph->pointers[graph->pointer_count++];
		bool weight = k == 1, kv = k == 2 && place == 5;
		*p = (struct md_pointer){.node = i, .at = gemm ? 32 + k * 40 : k * 8};
		if (weight)
			p->alloc = layer * LARGE_PERIOD + place;
		else if (kv)
			p->alloc = 500 + layer;
		else /* temporaries: a few per layer, their places depend on the batch in no simple way */
			p->alloc = 600, p->offset = (int64_t)((place + k) % 9) * ((batch * 2048 + 511) / 512 * 512) +
						    (batch % 3) * 4096;
	}
	if (gemm)
		graph->noise[graph->noise_count++] = (struct md_noise){i, 1704, 4 + (i * batch) % 3};
}

/* A variable of image 1, of which the first word points to what is bound, and the second to itself. */
static inline void sample_addresses(struct md_artifact *artifact)
{
	const struct md_pointer words[] = {{MD_NONE, 0, 0, MD_POINTER_PLAIN, 16}, {MD_NONE, 8, 1, MD_POINTER_PLAIN, 0}};
	struct md_image_value *value = sample_array(1, sizeof(*value));
	*value = (struct md_image_value){strdup("table"), 24, sample_array(24, 1), sample_array(2, sizeof(*words)), 2};
	memcpy(value->pointers, words, sizeof(words));
	artifact->images[1].values = value;
	artifact->images[1].value_count = 1;
	artifact->allocs[1] =
	    (struct md_artifact_alloc){MD_CLASS_VARIABLE, MD_ALLOC_GLOBAL, MD_NONE, 1, 24, 0, 1, strdup("table")};
}

static inline void large_artifact(struct md_artifact *artifact)
{
	*artifact =
	    (struct md_artifact){.alloc_count = 601, .kernel_count = LARGE_KERNELS, .graph_count = LARGE_GRAPHS};
	artifact->allocs = sample_array(601, sizeof(*artifact->allocs));
	for (uint32_t i = 0; i < 601; i++)
		artifact->allocs[i] =
		    (struct md_artifact_alloc){MD_CLASS_SEQUENCE, MD_ALLOC_DEVICE, MD_NONE, i, 1 << 20, 0, 0, NULL};
	artifact->kernels = sample_array(LARGE_KERNELS, sizeof(*artifact->kernels));
	for (uint32_t i = 0; i < LARGE_KERNELS; i++) {
		char name[32];
		snprintf(name, sizeof(name), "kernel_%u", i);
		artifact->kernels[i] = (struct md_kernel){.image = MD_NONE, .name = strdup(name)};
	}
	artifact->graphs = sample_array(LARGE_GRAPHS, sizeof(*artifact->graphs));
	for (uint32_t g = 0; g < LARGE_GRAPHS; g++) {
		struct md_artifact_graph *graph = &artifact->graphs[g];
		uint32_t batch = g < 3 ? 1u << g : (g - 2) * 8;
		graph->label = strdup("decode");
		graph->batch = batch;
		graph->node_count = LARGE_NODES;
		graph->edge_count = LARGE_NODES - 1;
		graph->nodes = sample_array(LARGE_NODES, sizeof(*graph->nodes));
		graph->edges = sample_array(LARGE_NODES, sizeof(*graph->edges));
		graph->pointers = sample_array(LARGE_NODES * 8, sizeof(*graph->pointers));
		graph->noise = sample_array(LARGE_NODES, sizeof(*graph->noise));
		for (uint32_t i = 0; i < LARGE_NODES; i++) {
			large_node(graph, i, batch);
			if (i)
				graph->edges[i - 1] = (struct md_edge){.from = i - 1, .to = i, .type = i % 18 == 1};
		}
	}
}

#endif
