/* SPDX-License-Identifier: Apache-2.0 */
/* Engines whose graphs reach memory by addresses that lie in memory. Kernels: tests/images/memory_kernels.c. */
#include <stdbool.h>
#include <string.h>

#include "medusa/medusa.h"
#include "tests/subjects/image_file.h"
#include "tests/subjects/subject.h"

/* clang-format off */
/*
 * A graph writes 2 * in to scratch memory, and then to out what a list of addresses leads to, added up with in: the
 * weights, and that scratch memory. stdout: what came out, and what should have. stderr: how graphs came. Environment:
 *   IMAGE                          memory_kernels of tests/images
 *   LIST=state, constant, input    what the list is bound as
 *   LIST=host                      it lies in page-locked memory, bound as state
 *   LIST=private                   nobody binds it
 *   LIST=filled                    nor the scratch memory, which the engine sets to FILL (2) before each replay
 *   LIST=result                    nor that; the graph writes 2 * in there by the list, and the engine copies it
 *   LIST=arena                     all lies in one allocation, of which the scratch memory is not bound
 *   LIST=apart                     one graph has the scratch memory, and another one the list
 *   SCRATCH=bound                  the scratch memory is bound
 *   SMALLER=1                      the scratch memory's allocation is smaller when graphs are verified, and another
 *                                  one lies right behind it
 *   START=N                        what in holds at first
 */
/* clang-format on */
enum { WORDS = 1024, BYTES = WORDS * 4, ROUNDS = 4 };

static CUstream stream;
static CUfunction add, list_sum, through;
static CUdeviceptr in, out, also, weights, scratch, list;
static const char *kind;

static bool is(const char *name)
{
	return !strcmp(kind, name);
}

static void bind(const char *name, CUdeviceptr address, enum medusa_role role)
{
	if (medusa_bind(name, address, BYTES, role) != MEDUSA_OK)
		fprintf(stderr, "%s is not bound: %s\n", name, medusa_reason());
}

/* ---- memory ---- */

static CUdeviceptr take(void)
{
	static CUdeviceptr arena;
	static int taken;
	CUdeviceptr address;
	if (is("arena") && !arena)
		TRY(cuMemAlloc_v2, &arena, (size_t)8 * BYTES);
	if (is("arena"))
		return arena + (CUdeviceptr)taken++ * BYTES;
	TRY(cuMemAlloc_v2, &address, BYTES);
	return address;
}

static CUdeviceptr take_scratch(void)
{
	const size_t half = 2u << 20; /* what addresses are multiples of */
	CUdeviceptr address, behind;
	if (!getenv("SMALLER"))
		return take();
	bool verifies = medusa_mode() == MEDUSA_MODE_VERIFY;
	TRY(cuMemAlloc_v2, &address, verifies ? half : 2 * half);
	if (verifies)
		TRY(cuMemAlloc_v2, &behind, half);
	return address;
}

static void take_list(void)
{
	const CUdeviceptr addresses[2] = {weights, scratch};
	void *host;
	if (is("host")) {
		TRY(cuMemHostAlloc, &host, BYTES, CU_MEMHOSTALLOC_DEVICEMAP);
		TRY(cuMemHostGetDevicePointer_v2, &list, host, 0);
		memcpy(host, addresses, sizeof(addresses));
	} else {
		list = take();
		TRY(cuMemcpyHtoD_v2, list, addresses, sizeof(addresses));
	}
	if (!is("private") && !is("filled") && !is("result"))
		bind("list", list,
		     is("constant") ? MEDUSA_BIND_CONSTANT
		     : is("input")  ? MEDUSA_BIND_INPUT
				    : MEDUSA_BIND_STATE);
}

static void take_all(void)
{
	const char *bound = getenv("SCRATCH");
	float one = 1;
	unsigned pattern;
	in = take();
	weights = take();
	scratch = take_scratch();
	out = take();
	also = take();
	memcpy(&pattern, &one, sizeof(pattern));
	TRY(cuMemsetD32_v2, weights, pattern, WORDS);
	TRY(cuMemsetD32_v2, in, 0, WORDS);
	bind("in", in, MEDUSA_BIND_INPUT);
	bind("weights", weights, MEDUSA_BIND_CONSTANT);
	bind("out", out, MEDUSA_BIND_OUTPUT);
	bind("also", also, MEDUSA_BIND_OUTPUT);
	if (bound && *bound)
		bind("scratch", scratch, MEDUSA_BIND_STATE);
	take_list();
	TRY(cuCtxSynchronize);
}

/* ---- graphs ---- */

static void launch_add(CUdeviceptr to, CUdeviceptr from, float factor)
{
	int32_t n = WORDS;
	void *params[] = {&to, &from, &factor, &n};
	TRY(cuLaunchKernel, add, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static void launch_list(void)
{
	int32_t count = 2, n = WORDS;
	void *params[] = {&out, &list, &count, &n};
	TRY(cuMemsetD32Async, out, 0, WORDS, stream);
	TRY(cuLaunchKernel, list_sum, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static void launch_through(void)
{
	float factor = 2;
	int32_t n = WORDS;
	void *params[] = {&list, &in, &factor, &n};
	TRY(cuLaunchKernel, through, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static void forward(const char *label)
{
	if (is("result")) {
		launch_through();
		TRY(cuMemcpyDtoDAsync_v2, out, in, BYTES, stream);
		return;
	}
	if (strcmp(label, "reads") && !is("filled")) {
		TRY(cuMemsetD32Async, scratch, 0, WORDS, stream);
		launch_add(scratch, in, 2);
	}
	if (!strcmp(label, "writes")) {
		TRY(cuMemcpyDtoDAsync_v2, also, scratch, BYTES, stream);
		return;
	}
	launch_list();
	launch_add(out, in, 1);
}

static CUgraphExec get(const char *label)
{
	void *exec = NULL;
	if (medusa_graph_get(label, 1, UINT64_MAX, &exec) == MEDUSA_OK) {
		fprintf(stderr, "%s restored\n", label);
		return exec;
	}
	fprintf(stderr, "%s live %s\n", label, medusa_reason());
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	forward(label);
	exec = end_capture(stream);
	medusa_graph_label(exec, label, 1);
	return exec;
}

static void set(CUdeviceptr to, float value)
{
	unsigned pattern;
	memcpy(&pattern, &value, sizeof(pattern));
	TRY(cuMemsetD32_v2, to, pattern, WORDS);
	TRY(cuCtxSynchronize);
}

static int wanted(int value)
{
	int filled = getenv("FILL") ? atoi(getenv("FILL")) : 2;
	if (is("filled"))
		set(scratch, (float)filled);
	return is("filled") ? 1 + value + filled : is("result") ? 2 * value : 1 + 3 * value;
}

static void serve(CUgraphExec *graphs, int count, int value)
{
	int want = wanted(value);
	float found;
	set(in, (float)value);
	for (int i = 0; i < count; i++)
		TRY(cuGraphLaunch, graphs[i], stream);
	TRY(cuStreamSynchronize, stream);
	TRY(cuMemcpyDtoH_v2, &found, (is("result") ? scratch : out) + BYTES - 4, sizeof(found));
	printf("out %d, wanted %d\n", (int)found, want);
}

int main(void)
{
	CUmodule module;
	CUgraphExec graphs[2];
	int count = 0, start = getenv("START") ? atoi(getenv("START")) : 1;
	kind = getenv("LIST") ? getenv("LIST") : "state";
	load_driver();
	open_context();
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	TRY(cuModuleLoadData, &module, read_file(getenv("IMAGE")));
	TRY(cuModuleGetFunction, &add, module, "memory_add");
	TRY(cuModuleGetFunction, &list_sum, module, "memory_list");
	TRY(cuModuleGetFunction, &through, module, "memory_through");
	take_all();
	if (is("apart"))
		graphs[count++] = get("writes");
	graphs[count] = get(is("apart") ? "reads" : "both");
	count++;
	for (int round = 0; round < ROUNDS; round++)
		serve(graphs, count, start + round);
	medusa_mark("ready");
	return 0;
}
