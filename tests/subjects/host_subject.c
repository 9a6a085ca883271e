/* SPDX-License-Identifier: Apache-2.0 */
/* A small engine with habits: what it does to its process before it uses the device, between graphs, and at its end. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/subjects/host_habits.h"
#include "tests/subjects/image_file.h"
#include "tests/subjects/subject.h"

/*
 * argv[1]: image. stdout: what it computed; stderr: how it came by its graphs. Environment, each a list of habits
 * (host_habits.h):
 *   HOST_BEFORE   before the first call of the driver
 *   HOST_BOUND    when all is bound, before it asks for a graph
 *   HOST_DURING   when the first of two graphs is there
 *   HOST_AFTER    when both are
 *   HOST_AT_END   when everything is computed and printed
 *   HOST_QUIET    nothing is written to stderr: what comes there is Medusa's
 */
enum { GRAPHS = 2, WIDTH = 64, FLOATS = GRAPHS * WIDTH, BYTES = FLOATS * 4, REPLAYS = 5 };

static CUdeviceptr weights, input, output;
static CUfunction scale_add;
static CUstream stream;
static CUmodule module;
static CUcontext context;
static CUgraphExec execs[GRAPHS + 1];

static void set_up(void *image)
{
	float values[FLOATS];
	TRY(cuMemAlloc_v2, &weights, BYTES);
	TRY(cuMemAlloc_v2, &input, BYTES);
	TRY(cuMemAlloc_v2, &output, BYTES);
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	for (int i = 0; i < FLOATS; i++)
		values[i] = 0.5f + (float)i;
	TRY(cuMemcpyHtoD_v2, weights, values, BYTES);
	medusa_bind("weights", weights, BYTES, MEDUSA_BIND_CONSTANT);
	medusa_bind("input", input, BYTES, MEDUSA_BIND_INPUT);
	medusa_bind("output", output, BYTES, MEDUSA_BIND_OUTPUT);
	TRY(cuModuleLoadData, &module, image);
	TRY(cuModuleGetFunction, &scale_add, module, "scale_add");
}

static CUgraphExec capture(unsigned batch)
{
	int32_t n = (int32_t)(batch * WIDTH);
	float bias = 0.25f;
	CUgraphExec exec;
	void *params[] = {&output, &weights, &input, &n, &bias};
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	TRY(cuLaunchKernel, scale_add, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
	exec = end_capture(stream);
	medusa_graph_label(exec, "host", batch);
	return exec;
}

static CUgraphExec get_graph(unsigned batch)
{
	void *exec = NULL;
	bool restored = medusa_graph_get("host", batch, UINT64_MAX, &exec) == MEDUSA_OK;
	if (!getenv("HOST_QUIET"))
		fprintf(stderr, "graph %u %s %s\n", batch, restored ? "restored" : "live",
			restored ? "" : medusa_reason());
	return restored ? exec : capture(batch);
}

static void replay(CUgraphExec exec, unsigned batch, unsigned iteration)
{
	float values[FLOATS];
	double sum = 0;
	for (unsigned i = 0; i < FLOATS; i++)
		values[i] = (float)((i * 31u + iteration * 17u + batch) % 101u);
	TRY(cuMemcpyHtoD_v2, input, values, BYTES);
	TRY(cuCtxSynchronize);
	TRY(cuGraphLaunch, exec, stream);
	TRY(cuStreamSynchronize, stream);
	TRY(cuMemcpyDtoH_v2, values, output, batch * WIDTH * 4);
	for (unsigned i = 0; i < batch * WIDTH; i++)
		sum += (double)values[i] * (i + 1);
	printf("%u %.9g\n", batch, sum);
}

static void launch_first(void)
{
	if (execs[1] && md_cuda.cuGraphLaunch(execs[1], stream) != CUDA_SUCCESS)
		fprintf(stderr, "a child cannot launch\n");
}

static void set_context(void)
{
	TRY(cuCtxSetCurrent, context);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	/* Read before they are gone. */
	const char *names[] = {"HOST_BEFORE", "HOST_DURING", "HOST_AFTER", "HOST_AT_END", "HOST_BOUND"};
	enum { POINTS = sizeof(names) / sizeof(names[0]) };
	char *habit[POINTS];
	for (int i = 0; i < POINTS; i++)
		habit[i] = strdup(getenv(names[i]) ? getenv(names[i]) : "");
	void *image = read_file(argv[1]);
	load_driver();
	launch_a_graph = launch_first, enter_the_context = set_context;
	run_habits(habit[0]);
	context = open_context();
	set_up(image);
	run_habits(habit[4]);
	for (unsigned batch = 1; batch <= GRAPHS; batch++) {
		execs[batch] = get_graph(batch);
		run_habits(batch == 1 ? habit[1] : habit[2]);
	}
	for (unsigned i = 0; i < GRAPHS * REPLAYS; i++)
		replay(execs[1 + i % GRAPHS], 1 + i % GRAPHS, i / GRAPHS);
	run_habits(habit[3]);
	for (int i = 0; i < POINTS; i++)
		free(habit[i]);
	free(image);
	return 0;
}
