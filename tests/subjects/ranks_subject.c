/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of an engine that two processes are. argv: the engine's image, the collective library's image, the rank, where
 * the ranks meet. stdout: what was computed, the same however it came by its graphs; stderr: how it came by them.
 */
#include <inttypes.h>
#include <string.h>

#include "medusa/medusa.h"
#include "tests/subjects/image_file.h"
#include "tests/subjects/subject.h" /* it says which of the driver's names cuda.h declares */

#include "tests/collective/collective.h"
#include "tests/collective/runtime_alloc.h"

enum { N = 64, BYTES = N * 4, REPLAYS = 3 };

static CUdeviceptr in, out, temporary, table, list;
static unsigned rank;
static CUfunction step;
static CUstream stream;
static struct collective *ranks;

static void add(CUdeviceptr to, CUdeviceptr from, float factor)
{
	int32_t n = N;
	void *params[] = {&to, &from, &factor, &n};
	TRY(cuLaunchKernel, step, 4, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

static void sum(CUdeviceptr data)
{
	if (collective_sum(ranks, data, N, stream) != CUDA_SUCCESS)
		exit(1);
}

/* What graphs find there is saved with them, though nobody binds it. */
static void fill_table(void)
{
	float values[N];
	for (unsigned i = 0; i < N; i++)
		values[i] = (float)(i % 5);
	TRY(cuMemcpyHtoD_v2, table, values, BYTES);
}

/* Memory of the graph's own, and no other rank. */
static void local(void)
{
	TRY(cuMemsetD32Async, temporary, 0, N, stream);
	add(temporary, in, 2);
	add(out, temporary, 1);
}

/* All of its memory is bound, or the collective library's. */
static void reduced(void)
{
	add(out, in, 3);
	sum(out);
}

/* Both; and a test of one rank would take other replays than that of the other. */
static void deep(void)
{
	if (rank)
		add(out, table, 2);
	TRY(cuMemsetD32Async, temporary, 0, N, stream);
	add(temporary, in, 2);
	sum(temporary);
	add(out, temporary, 1);
}

/* The graph's memory leads to the library's. */
static void listed(void)
{
	add(out, list, 1);
}

static const struct {
	const char *name;
	void (*enqueue)(void);
} kinds[] = {{"local", local}, {"reduced", reduced}, {"deep", deep}, {"listed", listed}};

static CUgraphExec made(unsigned kind)
{
	void *exec = NULL;
	if (medusa_graph_get(kinds[kind].name, 1, UINT64_MAX, &exec) == MEDUSA_OK) {
		fprintf(stderr, "%s restored\n", kinds[kind].name);
		return exec;
	}
	fprintf(stderr, "%s live: %s\n", kinds[kind].name, medusa_reason());
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	kinds[kind].enqueue();
	CUgraphExec captured = end_capture(stream);
	medusa_graph_label(captured, kinds[kind].name, 1);
	return captured;
}

/* Graphs and live calls take turns. */
static void replay(unsigned kind, CUgraphExec exec)
{
	float values[N];
	uint64_t hash = 1469598103934665603u;
	for (unsigned turn = 0; turn < REPLAYS; turn++) {
		for (unsigned i = 0; i < N; i++)
			values[i] = (float)((i * 7 + turn * 5 + kind + 3 * rank) % 31);
		TRY(cuMemcpyHtoD_v2, in, values, BYTES);
		TRY(cuMemsetD8_v2, out, 0, BYTES);
		TRY(cuCtxSynchronize);
		TRY(cuGraphLaunch, exec, stream);
		sum(out);
		TRY(cuStreamSynchronize, stream);
		TRY(cuMemcpyDtoH_v2, values, out, BYTES);
		for (unsigned i = 0; i < BYTES; i++)
			hash = (hash ^ ((uint8_t *)values)[i]) * 1099511628211u;
	}
	printf("%s %016" PRIx64 " %g\n", kinds[kind].name, hash, (double)values[N - 1]);
}

int main(int argc, char **argv)
{
	CUmodule module;
	if (argc < 5)
		return 2;
	rank = (unsigned)atoi(argv[3]);
	load_driver();
	open_context();
	void *images[2] = {read_file(argv[1]), read_file(argv[2])};
	TRY(cuModuleLoadData, &module, images[0]);
	TRY(cuModuleGetFunction, &step, module, "nodes_step");
	TRY(cuMemAlloc_v2, &in, BYTES);
	TRY(cuMemAlloc_v2, &out, BYTES);
	if (runtime_alloc(&temporary, BYTES) != CUDA_SUCCESS || runtime_alloc(&table, BYTES) != CUDA_SUCCESS)
		return 1;
	fill_table();
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	ranks = collective_open(argv[4], (int)rank, images[1]);
	if (!ranks)
		return 1;
	CUdeviceptr leads_to = collective_memory(ranks);
	TRY(cuMemAlloc_v2, &list, BYTES + sizeof(leads_to));
	TRY(cuMemsetD8_v2, list, 0, BYTES);
	TRY(cuMemcpyHtoD_v2, list + BYTES, &leads_to, sizeof(leads_to));
	medusa_bind("in", in, BYTES, MEDUSA_BIND_INPUT);
	medusa_bind("out", out, BYTES, MEDUSA_BIND_STATE);
	for (unsigned kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++)
		replay(kind, made(kind));
	collective_close(ranks);
	return 0;
}
