/* SPDX-License-Identifier: Apache-2.0 */
/* An engine in small: takes restored graphs or captures live, replays them, prints what they
 * computed. argv[1]: image. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "medusa/medusa.h"
#include "restore_subject.h"
#include "tests/subjects/image_file.h"
#include "tests/subjects/subject.h"

/* clang-format off */
/*
 * stderr: how it came by its graphs, and what the device holds at the end. Environment, each set or not:
 *   SUBJECT_CONTEXT_DIES        the context ends, and another one begins, before the engine asks what was restored
 *   SUBJECT_ENDS_EARLY          it ends after its first graph, with others that it never asked for; "unload": and unloads its
 *                               module before that
 *   SUBJECT_EXITS               it ends once everything is bound, in the midst of a restore
 *   SUBJECT_FORKS               a child asks for a graph and must get none
 *   SUBJECT_LOADS_FIRST         its module is loaded before anything is bound; SUBJECT_TRIGGER: by a trigger
 *   SUBJECT_NO_OUTPUT           the output is not bound; SUBJECT_OUTPUT_IS_STATE: as state
 *   SUBJECT_REBIND              the input is moved after each graph
 *   SUBJECT_SMALL_STATE         the state is bound four bytes smaller than it was captured
 *   SUBJECT_UNLOADS_AT_EXIT     its module is unloaded by a handler of exit
 */
/* clang-format on */

static CUdeviceptr weights, input, state, output, temporary, table, list;
static CUfunction scale_add, table_apply, accumulate, gather;
static CUstream stream, side;
static CUevent forked, joined;
static CUmodule module;
static void *image;

static CUfunction find_hidden(const char *wanted)
{
	CUfunction functions[32];
	unsigned count = 0;
	TRY(cuModuleGetFunctionCount, &count, module);
	TRY(cuModuleEnumerateFunctions, functions, count, module);
	for (unsigned i = 0; i < count; i++) {
		const char *name = NULL;
		TRY(cuFuncGetName, &name, functions[i]);
		if (!strcmp(name, wanted))
			return functions[i];
	}
	exit(3);
}

static int load_kernels(void *unused)
{
	(void)unused;
	if (module)
		return 0;
	TRY(cuModuleLoadData, &module, image);
	TRY(cuModuleGetFunction, &scale_add, module, "scale_add");
	TRY(cuModuleGetFunction, &table_apply, module, "table_apply");
	TRY(cuModuleGetFunction, &gather, module, "gather");
	accumulate = find_hidden("accumulate");
	return 0;
}

/* What a warm-up leaves behind: a table and a list of pointers that graphs read. */
static void warm_up(void)
{
	float values[TABLE_FLOATS];
	if (temporary)
		return;
	load_kernels(NULL);
	TRY(cuMemAlloc_v2, &temporary, BYTES);
	TRY(cuMemAlloc_v2, &table, sizeof(values));
	TRY(cuMemAlloc_v2, &list, 2 * sizeof(CUdeviceptr));
	for (uint32_t i = 0; i < TABLE_FLOATS; i++)
		values[i] = table_at(i);
	CUdeviceptr pointers[2] = {weights, temporary};
	TRY(cuMemcpyHtoD_v2, table, values, sizeof(values));
	TRY(cuMemcpyHtoD_v2, list, pointers, sizeof(pointers));
}

static void launch(CUfunction f, CUstream on, void **params, void **extra)
{
	TRY(cuLaunchKernel, f, 1, 1, 1, 32, 1, 1, 0, on, params, extra);
}

static void enqueue(unsigned batch)
{
	int32_t n = (int32_t)(batch * WIDTH);
	float bias = BIAS;
	CUdeviceptr scaled = output, copied = output + BYTES, gathered = output + 2 * BYTES;
	struct {
		CUdeviceptr temporary, table, in;
		int32_t n, noise;
	} packed = {temporary, table, input, n, rand()};
	size_t size = sizeof(packed);
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			 CU_LAUNCH_PARAM_END};
	TRY(cuEventRecord, forked, stream);
	TRY(cuStreamWaitEvent, side, forked, 0);
	launch(scale_add, side, (void *[]){&scaled, &weights, &input, &n, &bias}, NULL);
	TRY(cuEventRecord, joined, side);
	TRY(cuMemsetD32Async, temporary, 0, batch * WIDTH, stream);
	launch(table_apply, stream, NULL, extra);
	TRY(cuStreamWaitEvent, stream, joined, 0);
	launch(accumulate, stream, (void *[]){&state, &scaled, &temporary, &n}, NULL);
	TRY(cuMemcpyDtoDAsync_v2, copied, temporary, batch * WIDTH * 4u, stream);
	launch(gather, stream, (void *[]){&gathered, &list, &n}, NULL);
}

static CUgraphExec capture(unsigned batch)
{
	CUgraphExec exec;
	warm_up();
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	enqueue(batch);
	exec = end_capture(stream);
	medusa_graph_label(exec, LABEL, batch);
	return exec;
}

static void print_buffer(const char *name, unsigned batch, CUdeviceptr at, uint32_t floats)
{
	float values[OUTPUT_BYTES / 4];
	uint64_t sum = 1469598103934665603u;
	TRY(cuMemcpyDtoH_v2, values, at, floats * 4u);
	for (uint32_t i = 0; i < floats * 4u; i++)
		sum = (sum ^ ((uint8_t *)values)[i]) * 1099511628211u;
	printf("%u %s %016llx %.6g\n", batch, name, (unsigned long long)sum, (double)values[floats - 1]);
}

static void replay(CUgraphExec exec, unsigned batch)
{
	for (unsigned iteration = 0; iteration < ITERATIONS; iteration++) {
		float values[FLOATS];
		for (uint32_t i = 0; i < FLOATS; i++)
			values[i] = (float)((i * 31u + iteration * 17u + batch) % 101u);
		TRY(cuMemcpyHtoD_v2, input, values, BYTES);
		TRY(cuCtxSynchronize); /* copies from pageable memory, for which the stream does not wait */
		TRY(cuGraphLaunch, exec, stream);
		TRY(cuStreamSynchronize, stream);
		print_buffer("state", batch, state, FLOATS);
		print_buffer("output", batch, output, OUTPUT_BYTES / 4);
	}
}

static void set_up(void)
{
	float values[FLOATS];
	TRY(cuMemAlloc_v2, &weights, BYTES);
	TRY(cuMemAlloc_v2, &input, BYTES);
	TRY(cuMemAlloc_v2, &state, BYTES);
	TRY(cuMemAlloc_v2, &output, OUTPUT_BYTES);
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	TRY(cuStreamCreate, &side, CU_STREAM_NON_BLOCKING);
	TRY(cuEventCreate, &forked, CU_EVENT_DISABLE_TIMING);
	TRY(cuEventCreate, &joined, CU_EVENT_DISABLE_TIMING);
	for (uint32_t i = 0; i < FLOATS; i++)
		values[i] = weight_at(i);
	TRY(cuMemcpyHtoD_v2, weights, values, BYTES);
	TRY(cuMemsetD8_v2, state, 0, BYTES);
	TRY(cuMemsetD8_v2, output, 0, OUTPUT_BYTES);
	medusa_bind("weights", weights, BYTES, MEDUSA_BIND_CONSTANT);
	medusa_bind("input", input, BYTES, MEDUSA_BIND_INPUT);
	medusa_bind("state", state, getenv("SUBJECT_SMALL_STATE") ? BYTES - 4 : BYTES, MEDUSA_BIND_STATE);
	if (!getenv("SUBJECT_NO_OUTPUT"))
		medusa_bind("output", output, OUTPUT_BYTES,
			    getenv("SUBJECT_OUTPUT_IS_STATE") ? MEDUSA_BIND_STATE : MEDUSA_BIND_OUTPUT);
}

/* What nobody was handed goes back by itself, in the background. */
static void print_held_by_refused(void)
{
	size_t now = 0, total = 0;
	for (int i = 0; i < 30000; i++) {
		TRY(cuMemGetInfo_v2, &now, &total);
		if (now == total)
			break;
		usleep(10000);
	}
	fprintf(stderr, "held by what was refused=%zu\n", total - now);
}

static void print_stats(void)
{
	struct medusa_stats stats = {.size = sizeof(stats)};
	size_t now = 0, total = 0;
	if (medusa_stats_read(&stats) == MEDUSA_OK)
		fprintf(stderr,
			"stats restored=%u refused=%u nodes=%llu loaded=%u stored=%u triggered=%u private=%llu "
			"own_ns=%llu\n",
			stats.graphs_restored, stats.graphs_refused, (unsigned long long)stats.nodes,
			stats.kernels_loaded_image, stats.kernels_stored_image, stats.kernels_triggered,
			(unsigned long long)stats.private_bytes, (unsigned long long)stats.own_ns);
	if (!stats.graphs_restored && medusa_mode() == MEDUSA_MODE_RESTORE)
		print_held_by_refused();
	medusa_release();
	TRY(cuMemGetInfo_v2, &now, &total);
	fprintf(stderr, "held=%zu\n", total - now);
}

/* As libraries do that register a module before they load it. */
static void unload_at_exit(void)
{
	if (module)
		TRY(cuModuleUnload, module);
}

static int end_early(void)
{
	for (int i = 0; i < 300000 && !medusa_graph_ready(LABEL, GRAPHS); i++)
		usleep(1000);
	if (!strcmp(getenv("SUBJECT_ENDS_EARLY"), "unload")) {
		TRY(cuModuleUnload, module);
		module = NULL;
	}
	return 0;
}

/* The engine's own memory, however it came by its graphs: what is left then was the library's. */
static void tear_down(void)
{
	CUdeviceptr all[] = {weights, input, state, output, temporary, table, list};
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i])
			TRY(cuMemFree_v2, all[i]);
}

/* A child of a CUDA process cannot use CUDA; asking Medusa there must do no harm. */
static void fork_child(void)
{
	void *exec = NULL;
	int status = 0;
	pid_t child = fork();
	if (child == 0)
		_exit(medusa_graph_get(LABEL, 1, UINT64_MAX, &exec) == MEDUSA_OK || medusa_graph_ready(LABEL, 1));
	waitpid(child, &status, 0);
	fprintf(stderr, "child=%d\n", status);
}

int main(int argc, char **argv)
{
	CUcontext context;
	if (argc < 2)
		return 2;
	load_driver();
	image = read_file(argv[1]);
	open_context();
	if (getenv("SUBJECT_UNLOADS_AT_EXIT"))
		atexit(unload_at_exit);
	if (getenv("SUBJECT_LOADS_FIRST"))
		load_kernels(NULL);
	if (getenv("SUBJECT_TRIGGER"))
		medusa_trigger("first layer", load_kernels, NULL);
	set_up();
	if (getenv("SUBJECT_EXITS"))
		return 0; /* in the midst of a restore */
	if (getenv("SUBJECT_FORKS"))
		fork_child();
	CUgraphExec execs[GRAPHS + 1] = {0};
	for (unsigned batch = 1; batch <= GRAPHS; batch++) {
		void *exec = NULL;
		int result = medusa_graph_get(LABEL, batch, UINT64_MAX, &exec);
		fprintf(stderr, "graph %u %s %d %s\n", batch, result == MEDUSA_OK ? "restored" : "live", result,
			result == MEDUSA_OK ? "" : medusa_reason());
		execs[batch] = result == MEDUSA_OK ? exec : capture(batch);
		if (getenv("SUBJECT_ENDS_EARLY")) /* with graphs that it never asked for */
			return end_early();
		if (getenv("SUBJECT_REBIND"))
			fprintf(stderr, "rebind %d\n", medusa_bind("input", input + 256, BYTES, MEDUSA_BIND_INPUT));
	}
	for (unsigned batch = 1; batch <= GRAPHS; batch++)
		replay(execs[batch], batch);
	tear_down();
	if (getenv("SUBJECT_CONTEXT_DIES")) {
		TRY(cuDevicePrimaryCtxRelease_v2, 0);
		TRY(cuDevicePrimaryCtxRetain, &context, 0);
		TRY(cuCtxSetCurrent, context);
	}
	print_stats();
	free(image);
	return 0;
}
