/* SPDX-License-Identifier: Apache-2.0 */
/* An engine under test with one kind of graph, (step, batch), from an input to an output: how it comes by one, and what
 * comes out of it. */
#ifndef TESTS_SUBJECTS_STEPPER_H
#define TESTS_SUBJECTS_STEPPER_H

#include "medusa/medusa.h"
#include "tests/subjects/image_file.h"
#include "tests/subjects/subject.h"

enum { WIDTH = 64, BYTES = WIDTH * 4, REPLAYS = 3 };

static CUdeviceptr input, output;
static CUfunction function;
static CUstream stream;

/* The stream, the two buffers, and the kernel of the image's. */
static inline void set_up_stepper(const char *path, const char *kernel)
{
	void *image = read_file(path);
	CUmodule module;
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	TRY(cuMemAlloc_v2, &input, BYTES);
	TRY(cuMemAlloc_v2, &output, BYTES);
	TRY(cuMemsetD8_v2, output, 0, BYTES);
	TRY(cuModuleLoadData, &module, image);
	TRY(cuModuleGetFunction, &function, module, kernel);
	free(image);
}

static inline void bind_stepper(void)
{
	medusa_bind("input", input, BYTES, MEDUSA_BIND_INPUT);
	medusa_bind("output", output, BYTES, MEDUSA_BIND_OUTPUT);
}

/* The place of word among count kinds. */
static inline int32_t kind_among(const char *const *kinds, size_t count, const char *word)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(word, kinds[i]))
			return (int32_t)i;
	exit(9);
}

static inline CUgraphExec capture_step(void **params)
{
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	TRY(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
	return end_capture(stream);
}

/* NULL: it is to be captured live. Says on stderr how it went. */
static inline CUgraphExec ask_for_step(unsigned batch)
{
	void *exec = NULL;
	int result = medusa_graph_get("step", batch, UINT64_MAX, &exec);
	fprintf(stderr, "graph %u is %s %s\n", batch, result == MEDUSA_OK ? "restored" : "live",
		result == MEDUSA_OK ? "" : medusa_reason());
	return result == MEDUSA_OK ? exec : NULL;
}

/* Replays it on inputs of which no two are alike, and prints what that comes to. */
static inline void replay_step(CUgraphExec exec, unsigned batch)
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

#endif
