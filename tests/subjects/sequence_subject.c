/* SPDX-License-Identifier: Apache-2.0 */
/* An engine that binds nothing and is linked with libcuda: what it has allocated is known by order and size alone. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "medusa/medusa.h"

/*
 * Arguments: IMAGE [extra] [bigger] [gone] [late] [named]. extra: one more allocation before the others; bigger: its
 * weights are; gone: it frees one of its allocations before it asks for graphs; late: it allocates more once it has
 * asked; named: it asks for a name that is Medusa's own.
 */
enum { GRAPHS = 3, WIDTH = 64, FLOATS = GRAPHS * WIDTH, BYTES = FLOATS * 4, REPLAYS = 3 };

#define CALL(call)                                                                                                     \
	do {                                                                                                           \
		CUresult result_ = (call);                                                                             \
		if (result_) {                                                                                         \
			fprintf(stderr, "%s: %d\n", #call, (int)result_);                                              \
			exit(5);                                                                                       \
		}                                                                                                      \
	} while (0)

static CUdeviceptr weights, input, cache, output, workspace;
static CUfunction scale_add;
static CUmodule module;
static CUstream stream;
static const char *image;

static int has(int argc, char **argv, const char *word)
{
	for (int i = 2; i < argc; i++)
		if (!strcmp(argv[i], word))
			return 1;
	return 0;
}

static void load(void)
{
	if (module)
		return;
	CALL(cuModuleLoad(&module, image));
	CALL(cuModuleGetFunction(&scale_add, module, "scale_add"));
}

static void fill(CUdeviceptr to, float first)
{
	float values[FLOATS];
	for (int i = 0; i < FLOATS; i++)
		values[i] = first + (float)i / 8;
	CALL(cuMemcpyHtoD(to, values, BYTES));
	CALL(cuCtxSynchronize()); /* the copy may still be on its way, and the stream does not wait for it */
}

static void launch(CUdeviceptr out, CUdeviceptr by, CUdeviceptr in, int n)
{
	float bias = 0.5f;
	void *params[] = {&out, &by, &in, &n, &bias};
	CALL(cuLaunchKernel(scale_add, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

/* As a library takes its workspace: when it is first needed, and so never in a restore. */
static CUgraphExec capture(unsigned batch)
{
	CUgraph graph;
	CUgraphExec exec;
	load();
	if (!workspace)
		CALL(cuMemAlloc(&workspace, 2 * BYTES));
	CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	launch(workspace, weights, input, (int)batch * WIDTH);
	launch(cache, weights, workspace, (int)batch * WIDTH);
	launch(output, weights, cache, (int)batch * WIDTH);
	CALL(cuStreamEndCapture(stream, &graph));
	CALL(cuGraphInstantiate(&exec, graph, 0));
	CALL(cuGraphDestroy(graph));
	if (medusa_graph_label(exec, "step", batch) != MEDUSA_OK)
		fprintf(stderr, "label: %s\n", medusa_reason());
	return exec;
}

static void set_up(int argc, char **argv)
{
	CUdeviceptr first = 0, gone;
	if (has(argc, argv, "extra"))
		CALL(cuMemAlloc(&first, 3 * BYTES));
	CALL(cuMemAlloc(&weights, has(argc, argv, "bigger") ? BYTES + 256 : BYTES));
	CALL(cuMemAlloc(&gone, 4 * BYTES)); /* counts, and is bound to nothing */
	CALL(cuMemFree(gone));
	CALL(cuMemAlloc(&input, BYTES));
	CALL(cuMemAlloc(&cache, BYTES));
	CALL(cuMemAlloc(&output, BYTES));
	CALL(cuMemsetD8(cache, 0, BYTES));
	CALL(cuMemsetD8(output, 0, BYTES));
	fill(weights, 1);
	if (has(argc, argv, "gone")) {
		CALL(cuMemAlloc(&first, BYTES));
		CALL(cuMemFree(cache));
		cache = first;
		CALL(cuMemsetD8(cache, 0, BYTES));
	}
	if (has(argc, argv, "named"))
		fprintf(stderr, "named: %d %s\n", medusa_bind("@allocation.0", weights, BYTES, MEDUSA_BIND_CONSTANT),
			medusa_reason());
}

static void replay(CUgraphExec exec, unsigned batch)
{
	float values[FLOATS];
	for (int i = 0; i < REPLAYS; i++) {
		fill(input, (float)(i + (int)batch));
		CALL(cuGraphLaunch(exec, stream));
		CALL(cuStreamSynchronize(stream));
		CALL(cuMemcpyDtoH(values, output, BYTES));
		printf("%u %d", batch, i);
		for (unsigned at = 0; at < batch * WIDTH; at += 7)
			printf(" %a", (double)values[at]);
		printf("\n");
	}
}

int main(int argc, char **argv)
{
	CUgraphExec execs[GRAPHS + 1];
	CUdeviceptr more;
	CUcontext context;
	if (argc < 2)
		return 2;
	image = argv[1];
	CALL(cuInit(0));
	CALL(cuDevicePrimaryCtxRetain(&context, 0));
	CALL(cuCtxSetCurrent(context));
	CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	set_up(argc, argv);
	for (unsigned batch = 1; batch <= GRAPHS; batch++) {
		void *exec = NULL;
		int result = medusa_graph_get("step", batch, UINT64_MAX, &exec);
		fprintf(stderr, "graph %u %s %s\n", batch, result == MEDUSA_OK ? "restored" : "live",
			result == MEDUSA_OK ? "" : medusa_reason());
		execs[batch] = result == MEDUSA_OK ? (CUgraphExec)exec : capture(batch);
		if (has(argc, argv, "late"))
			CALL(cuMemAlloc(&more, batch * BYTES));
	}
	medusa_mark("ready");
	for (unsigned batch = 1; batch <= GRAPHS; batch++)
		replay(execs[batch], batch);
	medusa_release();
	return 0;
}
