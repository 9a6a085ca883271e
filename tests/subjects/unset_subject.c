/* SPDX-License-Identifier: Apache-2.0 */
/* An engine with a parameter that differs from process to process, and matters for an input of 77 alone. argv: image,
 * what the parameter is, the value of the inputs in turn. Outputs are printed beside what is right. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "medusa/medusa.h"
#include "tests/subjects/image_file.h"
#include "tests/subjects/subject.h"

enum { WIDTH = 64, BYTES = WIDTH * 4 };

struct members {
	CUdeviceptr out, in;
	uint8_t flag, padding[3];
	uint32_t own;
};

static CUdeviceptr input, output;
static CUstream stream;
static CUmodule module;
static CUdeviceptr freed; /* memory that is gone */

static void launch(const char *kernel, void **params, void **extra)
{
	CUfunction function;
	TRY(cuModuleGetFunction, &function, module, kernel);
	TRY(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 0, stream, params, extra);
}

static void launch_number(const char *kernel, uint64_t number)
{
	launch(kernel, (void *[]){&output, &input, &number}, NULL);
}

/* A byte that the two captures and the third run each have otherwise. */
static uint8_t byte_of_run(void)
{
	return getenv("MEDUSA_SHIFT") ? 0xa5 : medusa_mode() == MEDUSA_MODE_VERIFY ? 0x5a : 0x3c;
}

/* The whole block at once. */
static void launch_block(const char *kernel, uint32_t number, bool pads)
{
	struct members block = {.out = output, .in = input, .flag = 1, .own = number};
	size_t size = sizeof(block);
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			 CU_LAUNCH_PARAM_END};
	for (unsigned i = 0; pads && i < sizeof(block.padding); i++)
		block.padding[i] = (uint8_t)(byte_of_run() + i);
	launch(kernel, NULL, extra);
}

static void launch_as(const char *what)
{
	bool second = getenv("MEDUSA_SHIFT") != NULL, third = medusa_mode() == MEDUSA_MODE_VERIFY;
	if (!strcmp(what, "number"))
		launch_number("number4", (uint64_t)getpid());
	else if (!strcmp(what, "time"))
		launch_number("number8", UINT64_C(1763790000000000000) + (uint64_t)getpid());
	else if (!strcmp(what, "flag"))
		launch_number("number1", second || third);
	else if (!strcmp(what, "cxx_number"))
		launch_number("_Z10cxx_numberPfPKfm", (uint64_t)getpid());
	else if (!strcmp(what, "empty"))
		launch_number("_Z9cxx_emptyPfPKf5Empty", byte_of_run());
	else if (!strcmp(what, "member"))
		launch_block("object", (uint32_t)getpid(), false);
	else if (!strcmp(what, "padding"))
		launch_block("object", 5, true);
	else if (!strcmp(what, "gap"))
		launch_block("gap", 5, true);
	else if (!strcmp(what, "stale"))
		launch_number("number8", freed);
	else
		exit(9);
}

static CUgraphExec make_graph(const char *what)
{
	void *exec = NULL;
	int result = medusa_graph_get(what, 1, UINT64_MAX, &exec);
	fprintf(stderr, "graph %s is %s %s\n", what, result == MEDUSA_OK ? "restored" : "live",
		result == MEDUSA_OK ? "" : medusa_reason());
	if (result == MEDUSA_OK)
		return exec;
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	launch_as(what);
	exec = end_capture(stream);
	medusa_graph_label(exec, what, 1);
	return exec;
}

static void replay(CUgraphExec exec, const char *what, int value)
{
	float values[WIDTH];
	for (unsigned i = 0; i < WIDTH; i++)
		values[i] = (float)value;
	TRY(cuMemcpyHtoD_v2, input, values, BYTES);
	TRY(cuCtxSynchronize);
	TRY(cuGraphLaunch, exec, stream);
	TRY(cuStreamSynchronize, stream);
	TRY(cuMemcpyDtoH_v2, values, output, BYTES);
	printf("%s(%d) = %g%s\n", what, value, (double)values[0],
	       value == 77 && values[0] == 2 * 77 ? ", without what the process passes" : "");
}

static void set_up(const char *image)
{
	load_driver();
	open_context();
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	TRY(cuModuleLoadData, &module, read_file(image));
	TRY(cuMemAlloc_v2, &input, BYTES);
	TRY(cuMemAlloc_v2, &output, BYTES);
	TRY(cuMemsetD8_v2, input, 0, BYTES);
	TRY(cuMemsetD8_v2, output, 0, BYTES);
	TRY(cuMemAlloc_v2, &freed, 4096);
	TRY(cuMemFree_v2, freed);
	medusa_bind("input", input, BYTES, MEDUSA_BIND_INPUT);
	medusa_bind("output", output, BYTES, MEDUSA_BIND_OUTPUT);
}

int main(int argc, char *argv[])
{
	CUgraphExec exec;
	if (argc < 4) {
		fprintf(stderr, "an image, a parameter and inputs are wanted\n");
		return 1;
	}
	set_up(argv[1]);
	exec = make_graph(argv[2]);
	for (int i = 3; i < argc; i++)
		replay(exec, argv[2], atoi(argv[i]));
	return 0;
}
