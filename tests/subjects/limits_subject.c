/* SPDX-License-Identifier: Apache-2.0 */
/* An engine whose kernel needs more than a context has by default. argv: image, kernel (deep, heap), when it sets the
 * limit: "early" (before it asks for the graph), "warm_up" (when it captures the graph itself), "never", "bound" (a
 * while after all is bound, and it asks whether the graph is ready), "lowered" (before all is bound; it lowers the limit
 * until a while after that, and asks likewise). */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "medusa/medusa.h"
#include "tests/subjects/image_file.h"
#include "tests/subjects/subject.h"

enum { WIDTH = 64, BYTES = WIDTH * 4 };

static CUdeviceptr input, output;
static CUstream stream;
static CUfunction kernel;
static CUlimit limit;
static size_t wanted;

/* Until the artifact is open, and whatever works beside the engine has had its time. */
static void wait_for_artifact(void)
{
	struct medusa_stats stats = {.size = sizeof(stats)};
	for (int i = 0; i < 1000 && medusa_stats_read(&stats) == MEDUSA_OK && !stats.graphs_total; i++)
		usleep(10000);
	usleep(300000);
}

static void set_up(const char *image, const char *name, bool lowers)
{
	CUmodule module;
	load_driver();
	open_context();
	limit = strcmp(name, "deep") ? CU_LIMIT_MALLOC_HEAP_SIZE : CU_LIMIT_STACK_SIZE;
	wanted = strcmp(name, "deep") ? 64u << 20 : 8192;
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	TRY(cuModuleLoadData, &module, read_file(image));
	TRY(cuModuleGetFunction, &kernel, module, name);
	TRY(cuMemAlloc_v2, &input, BYTES);
	TRY(cuMemAlloc_v2, &output, BYTES);
	TRY(cuMemsetD8_v2, input, 0, BYTES);
	TRY(cuMemsetD8_v2, output, 0, BYTES);
	if (lowers) {
		size_t lower;
		TRY(cuCtxGetLimit, &lower, limit);
		TRY(cuCtxSetLimit, limit, wanted);
		wait_for_artifact();
		TRY(cuCtxSetLimit, limit, lower);
	}
	medusa_bind("input", input, BYTES, MEDUSA_BIND_INPUT);
	medusa_bind("output", output, BYTES, MEDUSA_BIND_OUTPUT);
}

static void set_and_poll(void)
{
	struct medusa_stats stats = {.size = sizeof(stats)};
	int ready = 0;
	wait_for_artifact();
	if (medusa_stats_read(&stats) == MEDUSA_OK)
		fprintf(stderr, "made with a low limit: %u\n", stats.graphs_restored);
	TRY(cuCtxSetLimit, limit, wanted);
	for (int i = 0; i < 1000 && medusa_mode() == MEDUSA_MODE_RESTORE && !ready; i++) {
		usleep(10000);
		ready = medusa_graph_ready("twice", 1);
	}
	fprintf(stderr, "graph is %s\n", ready ? "ready by itself" : "not ready");
}

static CUgraphExec make_graph(const char *when)
{
	void *exec = NULL;
	int result = medusa_graph_get("twice", 1, UINT64_MAX, &exec);
	fprintf(stderr, "graph is %s %s\n", result == MEDUSA_OK ? "restored" : "live",
		result == MEDUSA_OK ? "" : medusa_reason());
	if (result == MEDUSA_OK)
		return exec;
	if (!strcmp(when, "warm_up")) {
		usleep(300000); /* whatever works beside the engine has had its time */
		TRY(cuCtxSetLimit, limit, wanted);
	}
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	TRY(cuLaunchKernel, kernel, 1, 1, 1, 32, 1, 1, 0, stream, ((void *[]){&output, &input}), NULL);
	exec = end_capture(stream);
	medusa_graph_label(exec, "twice", 1);
	return exec;
}

static void replay(CUgraphExec exec, int value)
{
	float values[WIDTH];
	for (unsigned i = 0; i < WIDTH; i++)
		values[i] = (float)value;
	TRY(cuMemcpyHtoD_v2, input, values, BYTES);
	TRY(cuMemsetD8_v2, output, 0, BYTES);
	TRY(cuCtxSynchronize);
	TRY(cuGraphLaunch, exec, stream);
	TRY(cuStreamSynchronize, stream);
	TRY(cuMemcpyDtoH_v2, values, output, BYTES);
	printf("twice %d is %g\n", value, (double)values[0]);
}

int main(int argc, char *argv[])
{
	CUgraphExec exec;
	if (argc < 4) {
		fprintf(stderr, "an image, a kernel and when are wanted\n");
		return 1;
	}
	bool lowers = !strcmp(argv[3], "lowered");
	set_up(argv[1], argv[2], lowers);
	if (!strcmp(argv[3], "early"))
		TRY(cuCtxSetLimit, limit, wanted);
	if (lowers || !strcmp(argv[3], "bound"))
		set_and_poll();
	exec = make_graph(argv[3]);
	for (int value = 1; value < 4; value++)
		replay(exec, value);
	return 0;
}
