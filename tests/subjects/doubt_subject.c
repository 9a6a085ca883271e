/* SPDX-License-Identifier: Apache-2.0 */
/* An engine whose allocator takes other ones of equal blocks in the second capture. argv: image, "swap" or "keep", then
 * what each further graph does with a word that changes its block. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/cuda_driver.h"
#include "medusa/medusa.h"
#include "tests/subjects/image_file.h"

/*
 * Two tables lie in two blocks of one size that nobody binds. swap: each lies in the other's block in the second
 * capture. keep: they stay, and the graphs behind the first one have a word that points into the first block in the
 * first, and to the same place of the second block in the second capture: ignored, read, peeked (is it NULL?),
 * followed (read unless it is NULL) or touched (read for nothing).
 */
enum { WIDTH = 64, BYTES = WIDTH * 4, BLOCK_BYTES = 65536, REPLAYS = 3, AT = 1024, ENTRIES = 8 };

#define TRY(entry, ...)                                                                                                \
	do {                                                                                                           \
		CUresult result_ = md_cuda.entry(__VA_ARGS__);                                                         \
		if (result_ != CUDA_SUCCESS) {                                                                         \
			fprintf(stderr, "%s: %s\n", #entry, md_cuda_error_name(result_));                              \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static const char *const kinds[] = {"ignored", "read", "peeked", "followed", "touched"};
static CUdeviceptr input, output, blocks[2], tables[2];
static CUfunction doubt;
static CUstream stream;

static int32_t kind_of(const char *word)
{
	for (int32_t i = 0; i < (int32_t)(sizeof(kinds) / sizeof(kinds[0])); i++)
		if (!strcmp(word, kinds[i]))
			return i;
	exit(9);
}

static bool is_second(void)
{
	return getenv("MEDUSA_SHIFT") != NULL;
}

static void fill_tables(void)
{
	float values[ENTRIES];

	for (unsigned t = 0; t < 2; t++) {
		for (unsigned i = 0; i < ENTRIES; i++)
			values[i] = (float)(1 + i + 10 * t);
		TRY(cuMemsetD8_v2, tables[t], 0, BLOCK_BYTES);
		TRY(cuMemcpyHtoD_v2, tables[t], values, sizeof(values));
		for (unsigned i = 0; i < ENTRIES; i++)
			values[i] = 100; /* the same in both */
		TRY(cuMemcpyHtoD_v2, tables[t] + AT, values, sizeof(values));
	}
}

static void set_up(const char *path, bool swap)
{
	void *image = read_file(path);
	CUmodule module;

	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	TRY(cuMemAlloc_v2, &input, BYTES);
	TRY(cuMemAlloc_v2, &output, BYTES);
	for (unsigned i = 0; i < 2; i++)
		TRY(cuMemAlloc_v2, &blocks[i], BLOCK_BYTES);
	for (unsigned i = 0; i < 2; i++)
		tables[i] = blocks[swap && is_second() ? 1 - i : i];
	fill_tables();
	TRY(cuMemsetD8_v2, output, 0, BYTES);
	TRY(cuModuleLoadData, &module, image);
	TRY(cuModuleGetFunction, &doubt, module, "doubt");
	free(image);
	if (getenv("SUBJECT_BINDS_NOTHING"))
		return;
	medusa_bind("input", input, BYTES, MEDUSA_BIND_INPUT);
	medusa_bind("output", output, BYTES, MEDUSA_BIND_OUTPUT);
}

static CUgraphExec capture(unsigned batch, CUdeviceptr table, CUdeviceptr word, int32_t kind)
{
	int32_t n = WIDTH;
	void *params[] = {&output, &input, &table, &word, &n, &kind};
	CUgraphExec exec;
	CUgraph graph;

	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	TRY(cuLaunchKernel, doubt, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
	TRY(cuStreamEndCapture, stream, &graph);
	TRY(cuGraphInstantiateWithFlags, &exec, graph, 0);
	TRY(cuGraphDestroy, graph);
	medusa_graph_label(exec, "step", batch);
	return exec;
}

static CUgraphExec make_graph(unsigned batch, CUdeviceptr table, CUdeviceptr word, int32_t kind)
{
	void *exec = NULL;
	int result = medusa_graph_get("step", batch, UINT64_MAX, &exec);

	fprintf(stderr, "graph %u is %s %s\n", batch, result == MEDUSA_OK ? "restored" : "live",
		result == MEDUSA_OK ? "" : medusa_reason());
	return result == MEDUSA_OK ? exec : capture(batch, table, word, kind);
}

static void replay(CUgraphExec exec, unsigned batch)
{
	float values[WIDTH], sum = 0;

	for (unsigned turn = 0; turn < REPLAYS; turn++) {
		for (unsigned i = 0; i < WIDTH; i++)
			values[i] = (float)((i * 31u + turn * 17u + batch) % 101u);
		TRY(cuMemcpyHtoD_v2, input, values, BYTES);
		TRY(cuCtxSynchronize);
		TRY(cuGraphLaunch, exec, stream);
		TRY(cuStreamSynchronize, stream);
		TRY(cuMemcpyDtoH_v2, values, output, BYTES);
		for (unsigned i = 0; i < WIDTH; i++)
			sum += values[i];
	}
	printf("%u %.6g\n", batch, (double)sum);
}

int main(int argc, char *argv[])
{
	struct md_error err = {0};
	CUcontext context;

	if (argc < 3 || md_cuda_load(&err) != MD_OK) {
		fprintf(stderr, "%s\n", argc < 3 ? "image and mode are wanted" : err.message);
		return 1;
	}
	TRY(cuInit, 0);
	TRY(cuDevicePrimaryCtxRetain, &context, 0);
	TRY(cuCtxSetCurrent, context);
	set_up(argv[1], !strcmp(argv[2], "swap"));
	replay(make_graph(1, tables[0], tables[1], 1), 1);
	replay(make_graph(2, tables[1], tables[0], 1), 2);
	for (int i = 3; i < argc; i++) {
		CUdeviceptr word = blocks[is_second()] + AT;
		replay(make_graph((unsigned)i, tables[0], word, kind_of(argv[i])), (unsigned)i);
	}
	return 0;
}
