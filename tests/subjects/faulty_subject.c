/* SPDX-License-Identifier: Apache-2.0 */
/* An engine with graphs that break it when their private memory is not what it was. argv: image, then a kind for each
 * batch size: plain, fault, hang, die, slow; behind a dash, the graph has no label. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/cuda_driver.h"
#include "medusa/medusa.h"
#include "tests/subjects/image_file.h"

/* SUBJECT_OWN=WHEN: it fails by itself, in any of its runs ("always") or under verification ("verify"). */
enum { WIDTH = 64, BYTES = WIDTH * 4, KEY_BYTES = 4096, REPLAYS = 3 };

#define TRY(entry, ...)                                                                                                \
	do {                                                                                                           \
		CUresult result_ = md_cuda.entry(__VA_ARGS__);                                                         \
		if (result_ != CUDA_SUCCESS) {                                                                         \
			fprintf(stderr, "%s: %s\n", #entry, md_cuda_error_name(result_));                              \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static const char *const kinds[] = {"plain", "fault", "hang", "die", "slow"};
static CUdeviceptr input, output, key;
static CUfunction faulty;
static CUstream stream;

static int kind_of(const char *word)
{
	for (int i = 0; i < (int)(sizeof(kinds) / sizeof(kinds[0])); i++)
		if (!strcmp(word + (*word == '-'), kinds[i]))
			return i;
	exit(9);
}

static void set_up(const char *path)
{
	const uint64_t value = 0x123456789abcdef0;
	void *image = read_file(path);
	CUmodule module;

	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	TRY(cuMemAlloc_v2, &input, BYTES);
	TRY(cuMemAlloc_v2, &output, BYTES);
	TRY(cuMemAlloc_v2, &key, KEY_BYTES);
	TRY(cuMemcpyHtoD_v2, key, &value, sizeof(value));
	TRY(cuMemsetD8_v2, output, 0, BYTES);
	TRY(cuModuleLoadData, &module, image);
	TRY(cuModuleGetFunction, &faulty, module, "faulty");
	free(image);
	medusa_bind("input", input, BYTES, MEDUSA_BIND_INPUT);
	medusa_bind("output", output, BYTES, MEDUSA_BIND_OUTPUT);
}

static CUgraphExec capture(unsigned batch, const char *word)
{
	int32_t n = WIDTH, kind = kind_of(word);
	void *params[] = {&output, &input, &key, &n, &kind};
	CUgraphExec exec;
	CUgraph graph;

	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	TRY(cuLaunchKernel, faulty, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
	TRY(cuStreamEndCapture, stream, &graph);
	TRY(cuGraphInstantiateWithFlags, &exec, graph, 0);
	TRY(cuGraphDestroy, graph);
	if (*word != '-')
		medusa_graph_label(exec, "step", batch);
	return exec;
}

static CUgraphExec make_graph(unsigned batch, const char *word)
{
	void *exec = NULL;
	int result = *word == '-' ? 1 : medusa_graph_get("step", batch, UINT64_MAX, &exec);

	fprintf(stderr, "graph %u %s %s\n", batch, result == MEDUSA_OK ? "restored" : "live",
		result == MEDUSA_OK || *word == '-' ? "" : medusa_reason());
	return result == MEDUSA_OK ? exec : capture(batch, word);
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

static void fail_by_itself(void)
{
	const char *when = getenv("SUBJECT_OWN");

	if (when && (!strcmp(when, "always") || getenv("MEDUSA_VERIFY")))
		abort();
}

int main(int argc, char *argv[])
{
	struct md_error err = {0};
	CUcontext context;

	if (argc < 3 || md_cuda_load(&err) != MD_OK) {
		fprintf(stderr, "%s\n", argc < 3 ? "image and kinds are wanted" : err.message);
		return 1;
	}
	TRY(cuInit, 0);
	TRY(cuDevicePrimaryCtxRetain, &context, 0);
	TRY(cuCtxSetCurrent, context);
	set_up(argv[1]);
	for (int i = 2; i < argc; i++)
		replay(make_graph((unsigned)i - 1, argv[i]), (unsigned)i - 1);
	fail_by_itself();
	return 0;
}
