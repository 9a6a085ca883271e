/* SPDX-License-Identifier: Apache-2.0 */
/* The artifact that belongs to the restore subject, made by hand, and a way to run the subject over hostcuda. */
#ifndef TESTS_RESTORE_FIXTURE_H
#define TESTS_RESTORE_FIXTURE_H

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/cuda_driver.h"
#include "driver/device_hash.h"
#include "format/artifact/artifact.h"
#include "format/checks.h"
#include "tests/subjects/restore_subject.h"

#define TEXT_BYTES 65536

/* ---- places ---- */

static char build_folder[3000], work_folder[256];

static const char *built(const char *name)
{
	static char paths[8][4096];
	static unsigned next;
	char *path = paths[next++ % 8];
	snprintf(path, 4096, "%s/%s", build_folder, name);
	return path;
}

static const char *made(const char *name)
{
	static char paths[8][512];
	static unsigned next;
	char *path = paths[next++ % 8];
	snprintf(path, 512, "%s/%s", work_folder, name);
	return path;
}

/* Images are never sanitized; they lie beside the unsanitized build when the sanitized one has none. */
static const char *image_path(void)
{
	return built("tests/images/restore_kernels.host.so");
}

static void set_up_places(void)
{
	ssize_t length = readlink("/proc/self/exe", build_folder, sizeof(build_folder) - 1);
	cr_assert(length > 0, "own path");
	build_folder[length] = '\0';
	for (int up = 0; up < 2; up++)
		*strrchr(build_folder, '/') = '\0';
	strcpy(work_folder, "/tmp/medusa-restore-XXXXXX");
	cr_assert(mkdtemp(work_folder), "temporary folder");
	setenv("MEDUSA_LIBCUDA", built("lib/hostcuda/libcuda.so.1"), 1);
}

static void remove_places(void)
{
	char command[512];
	snprintf(command, sizeof(command), "rm -rf '%s'", work_folder);
	cr_assert(system(command) == 0, "clean up");
}

static char *read_text(const char *path)
{
	static char texts[4][TEXT_BYTES];
	static unsigned next;
	char *text = texts[next++ % 4];
	FILE *file = fopen(path, "rb");
	size_t size = file ? fread(text, 1, TEXT_BYTES - 1, file) : 0;
	text[size] = '\0';
	if (file)
		fclose(file);
	return text;
}

/* ---- the artifact ---- */

enum { K_SCALE, K_TABLE, K_ACCUMULATE, K_GATHER, KERNELS };
enum { B_WEIGHTS, B_INPUT, B_STATE, B_OUTPUT, BINDINGS };
enum { A_TEMPORARY = BINDINGS, A_TABLE, A_LIST, ALLOCS }; /* bound ones first, by their binding's number */
enum { N_MEMSET, N_TABLE, N_SCALE, N_JOIN, N_ACCUMULATE, N_COPY, N_GATHER, NODES };

static void *image_bytes;

static void fill_image(struct md_artifact *a, bool stored)
{
	struct stat info;
	int fd = open(image_path(), O_RDONLY);
	cr_assert(fd >= 0 && fstat(fd, &info) == 0, "image %s", image_path());
	image_bytes = malloc((size_t)info.st_size);
	cr_assert(read(fd, image_bytes, (size_t)info.st_size) == info.st_size, "image is read");
	close(fd);
	struct md_image_span span;
	struct md_error err = {0};
	cr_assert(md_image_span(image_bytes, &span, &err) == MD_OK, "%s", err.message);
	a->images = calloc(1, sizeof(*a->images));
	a->image_count = 1;
	a->images[0] =
	    (struct md_image){.hash = md_hash_bytes(span.data, span.size), .kind = span.kind, .size = span.size};
	if (stored) {
		a->images[0].data = malloc(span.size);
		memcpy(a->images[0].data, span.data, span.size);
	} else {
		a->images[0].path = strdup(image_path());
	}
	free(image_bytes);
}

static void fill_kernel(struct md_kernel *k, const char *name, uint32_t count, const struct md_param *params)
{
	*k = (struct md_kernel){.image = 0, .name = strdup(name), .param_count = count, .state.preferred_carveout = -1};
	k->params = malloc(count * sizeof(*params));
	memcpy(k->params, params, count * sizeof(*params));
}

/* Contents may be made of the weights. */
static void hash_weights(struct md_artifact *a)
{
	float values[FLOATS];
	for (uint32_t i = 0; i < FLOATS; i++)
		values[i] = weight_at(i);
	a->bindings[0].hashed = true;
	a->bindings[0].hash = md_device_hash_bytes(values, sizeof(values));
}

static void fill_tables(struct md_artifact *a)
{
	static const struct {
		const char *name;
		uint64_t size;
		enum md_bind_role role;
	} bindings[BINDINGS] = {
	    {"weights", BYTES, MD_BIND_CONSTANT},
	    {"input", BYTES, MD_BIND_INPUT},
	    {"state", BYTES, MD_BIND_STATE},
	    {"output", OUTPUT_BYTES, MD_BIND_OUTPUT},
	};
	static const uint64_t private_sizes[] = {BYTES, TABLE_FLOATS * 4, 16};
	a->bindings = calloc(BINDINGS, sizeof(*a->bindings));
	a->binding_count = BINDINGS;
	a->allocs = calloc(ALLOCS, sizeof(*a->allocs));
	a->alloc_count = ALLOCS;
	for (uint32_t i = 0; i < BINDINGS; i++) {
		a->bindings[i] = (struct md_binding){
		    .name = strdup(bindings[i].name), .size = bindings[i].size, .role = bindings[i].role};
		a->allocs[i] =
		    (struct md_artifact_alloc){MD_CLASS_BOUND, MD_ALLOC_DEVICE, i, i, bindings[i].size, 0, 0, NULL};
	}
	hash_weights(a);
	for (uint32_t i = BINDINGS; i < ALLOCS; i++) {
		uint64_t size = private_sizes[i - BINDINGS];
		a->allocs[i] = (struct md_artifact_alloc){
		    MD_CLASS_PRIVATE, MD_ALLOC_DEVICE, MD_NONE, i, size, a->arena_size, 0, NULL};
		a->arena_size += (size + 511) & ~(uint64_t)511;
	}
	a->kernels = calloc(KERNELS, sizeof(*a->kernels));
	a->kernel_count = KERNELS;
	fill_kernel(&a->kernels[K_SCALE], "scale_add", 5,
		    (struct md_param[]){{0, 8}, {8, 8}, {16, 8}, {24, 4}, {28, 4}});
	fill_kernel(&a->kernels[K_TABLE], "table_apply", 1, (struct md_param[]){{0, 32}});
	fill_kernel(&a->kernels[K_ACCUMULATE], "accumulate", 4, (struct md_param[]){{0, 8}, {8, 8}, {16, 8}, {24, 4}});
	fill_kernel(&a->kernels[K_GATHER], "gather", 3, (struct md_param[]){{0, 8}, {8, 8}, {16, 4}});
}

static void fill_contents(struct md_artifact *a)
{
	a->contents = calloc(2, sizeof(*a->contents));
	a->content_count = 2;
	float *table = malloc(TABLE_FLOATS * 4);
	for (uint32_t i = 0; i < TABLE_FLOATS; i++)
		table[i] = table_at(i);
	a->contents[0] =
	    (struct md_artifact_content){.alloc = A_TABLE, .size = TABLE_FLOATS * 4, .data = (uint8_t *)table};
	struct md_pointer *pointers = calloc(2, sizeof(*pointers));
	pointers[0] = (struct md_pointer){.node = MD_NONE, .at = 0, .alloc = B_WEIGHTS};
	pointers[1] = (struct md_pointer){.node = MD_NONE, .at = 8, .alloc = A_TEMPORARY};
	a->contents[1] = (struct md_artifact_content){
	    .alloc = A_LIST, .size = 16, .data = calloc(1, 16), .pointers = pointers, .pointer_count = 2};
}

static void fill_kernel_node(struct md_artifact_graph *g, uint32_t at, uint32_t kernel, uint32_t size, bool via_extra)
{
	struct md_node *node = &g->nodes[at];
	*node = (struct md_node){.type = MD_NODE_KERNEL,
				 .via_extra = via_extra,
				 .kernel = kernel,
				 .grid = {1, 1, 1},
				 .block = {32, 1, 1},
				 .params_size = size,
				 .params = md_arena_alloc(&g->arena, size)};
	cr_assert(node->params, "memory");
	memset(node->params, 0, size);
}

static void put_int(struct md_artifact_graph *g, uint32_t node, uint32_t at, const void *value)
{
	memcpy(g->nodes[node].params + at, value, 4);
}

static void fill_graph(struct md_artifact_graph *g, uint32_t batch)
{
	int32_t n = (int32_t)(batch * WIDTH);
	float bias = BIAS;
	static const struct md_pointer pointers[] = {
	    {N_MEMSET, 0, A_TEMPORARY, 0, 0},      {N_TABLE, 0, A_TEMPORARY, 0, 0},  {N_TABLE, 8, A_TABLE, 0, 0},
	    {N_TABLE, 16, B_INPUT, 0, 0},          {N_SCALE, 0, B_OUTPUT, 0, 0},     {N_SCALE, 8, B_WEIGHTS, 0, 0},
	    {N_SCALE, 16, B_INPUT, 0, 0},          {N_ACCUMULATE, 0, B_STATE, 0, 0}, {N_ACCUMULATE, 8, B_OUTPUT, 0, 0},
	    {N_ACCUMULATE, 16, A_TEMPORARY, 0, 0}, {N_COPY, 0, A_TEMPORARY, 0, 0},   {N_COPY, 8, B_OUTPUT, 0, BYTES},
	    {N_GATHER, 0, B_OUTPUT, 0, 2 * BYTES}, {N_GATHER, 8, A_LIST, 0, 0},
	};
	static const struct md_edge edges[] = {
	    {N_MEMSET, N_TABLE, 0, 0, 0, 0},    {N_TABLE, N_JOIN, 0, 0, 0, 0},
	    {N_SCALE, N_JOIN, 0, 0, 0, 0},      {N_JOIN, N_ACCUMULATE, 0, 0, 0, 0},
	    {N_ACCUMULATE, N_COPY, 0, 0, 0, 0}, {N_ACCUMULATE, N_GATHER, 1, 0, 1, 0}};
	*g = (struct md_artifact_graph){
	    .label = strdup(LABEL), .batch = batch, .proof = MD_PROOF_TWO, .node_count = NODES};
	g->nodes = calloc(NODES, sizeof(*g->nodes));
	g->nodes[N_MEMSET] = (struct md_node){.type = MD_NODE_MEMSET,
					      .kernel = MD_NONE,
					      .memset = {.width = (uint64_t)n, .height = 1, .element_size = 4}};
	fill_kernel_node(g, N_TABLE, K_TABLE, 32, true);
	put_int(g, N_TABLE, 24, &n);
	fill_kernel_node(g, N_SCALE, K_SCALE, 32, false);
	put_int(g, N_SCALE, 24, &n);
	put_int(g, N_SCALE, 28, &bias);
	g->nodes[N_SCALE].attribute_count = 1;
	g->nodes[N_SCALE].attributes = md_arena_alloc(&g->arena, sizeof(struct md_attribute));
	memset(g->nodes[N_SCALE].attributes, 0, sizeof(struct md_attribute));
	g->nodes[N_SCALE].attributes[0].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
	g->nodes[N_JOIN] = (struct md_node){.type = MD_NODE_EMPTY, .kernel = MD_NONE};
	fill_kernel_node(g, N_ACCUMULATE, K_ACCUMULATE, 28, false);
	put_int(g, N_ACCUMULATE, 24, &n);
	g->nodes[N_COPY] = (struct md_node){.type = MD_NODE_MEMCPY,
					    .kernel = MD_NONE,
					    .memcpy = {.src_type = CU_MEMORYTYPE_DEVICE,
						       .dst_type = CU_MEMORYTYPE_DEVICE,
						       .width = (uint64_t)n * 4,
						       .height = 1,
						       .depth = 1}};
	fill_kernel_node(g, N_GATHER, K_GATHER, 20, false);
	put_int(g, N_GATHER, 16, &n);
	g->pointer_count = sizeof(pointers) / sizeof(pointers[0]);
	g->pointers = malloc(sizeof(pointers));
	memcpy(g->pointers, pointers, sizeof(pointers));
	g->edge_count = sizeof(edges) / sizeof(edges[0]);
	g->edges = malloc(sizeof(edges));
	memcpy(g->edges, edges, sizeof(edges));
	g->noise_count = 1;
	g->noise = malloc(sizeof(*g->noise));
	g->noise[0] = (struct md_noise){N_TABLE, 28, 4};
}

/* What an analysis of the subject would say. Freed by md_artifact_finish. */
static void make_artifact(struct md_artifact *a, bool stored)
{
	struct md_error err = {0};
	CUcontext context;
	*a = (struct md_artifact){0};
	cr_assert(md_cuda_load(&err) == MD_OK, "%s", err.message);
	cr_assert(md_cuda.cuInit(0) == CUDA_SUCCESS && md_cuda.cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
		      md_cuda.cuCtxSetCurrent(context) == CUDA_SUCCESS,
		  "a context");
	cr_assert(md_fingerprint_read(&a->fingerprint, &err) == MD_OK, "%s", err.message);
	cr_assert(md_arguments_add(&a->fingerprint.arguments, "restore_subject") &&
		      md_arguments_add(&a->fingerprint.vary, "*"),
		  "arguments");
	fill_image(a, stored);
	fill_tables(a);
	fill_contents(a);
	a->graphs = calloc(GRAPHS, sizeof(*a->graphs));
	a->graph_count = GRAPHS;
	for (uint32_t i = 0; i < GRAPHS; i++)
		fill_graph(&a->graphs[i], i + 1);
	a->provenance = (struct md_provenance){.tool_version = strdup("test"),
					       .command = strdup("restore_subject"),
					       .created = strdup("2025-01-01T00:00:00Z"),
					       .capture_count = 2};
	cr_assert_eq(md_checks_state(a, NULL), MD_OK);
}

static const char *write_artifact(struct md_artifact *a)
{
	struct md_error err = {0};
	const char *path = made("subject.medusa");
	cr_assert(md_artifact_write(a, path, NULL, &err) == MD_OK, "%s", err.message);
	md_artifact_finish(a);
	return path;
}

/* ---- running the subject ---- */

struct run {
	int status;
	const char *out, *err, *log;
};

static void put_settings(const char *const *settings)
{
	for (; settings && *settings; settings++)
		putenv((char *)*settings);
}

/* settings: "NAME=value" ..., NULL. Without an artifact the subject runs alone. */
static struct run run_subject(const char *artifact, const char *const *settings)
{
	pid_t child = fork();
	if (child == 0) {
		int out = open(made("out"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
		int err = open(made("err"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
		dup2(out, 1);
		dup2(err, 2);
		unlink(made("log"));
		setenv("MEDUSA_LOG_FILE", made("log"), 1);
		if (artifact) {
			setenv("LD_PRELOAD", built("lib/libmedusa-restore.so"), 1);
			setenv("MEDUSA_ARTIFACT", artifact, 1);
		}
#ifdef MD_SANITIZED
		setenv("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0", 1);
#endif
		put_settings(settings);
		alarm(250);
		execl(built("tests/subjects/restore_subject"), "restore_subject", image_path(), (char *)NULL);
		_exit(127);
	}
	struct run run = {0};
	cr_assert(child > 0 && waitpid(child, &run.status, 0) == child, "the subject runs");
	run.out = read_text(made("out"));
	run.err = read_text(made("err"));
	run.log = read_text(made("log"));
	return run;
}

static unsigned count(const char *text, const char *wanted)
{
	unsigned found = 0;
	for (const char *at = text; (at = strstr(at, wanted)); at += strlen(wanted))
		found++;
	return found;
}

#endif
