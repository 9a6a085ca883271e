/* SPDX-License-Identifier: Apache-2.0 */
/* An engine with the proportions of a large one: many graphs of many nodes, many buffers, a cache that fills the device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "medusa/medusa.h"
#include "tests/subjects/image_file.h"
#include "tests/subjects/subject.h"

/*
 * As vLLM does with a model of 24 layers: the weights lie in segments, a tensor behind the other with small gaps between
 * them; the KV cache is bound layer by layer; graphs of all batch sizes use one pool, from its beginning on; the engine
 * copies small things to and fro in a segment that graphs use, too. All numbers are from SUBJECT_*:
 *   GRAPHS=35     the largest batch sizes first: 8 * (GRAPHS - 3), ... 16, 8, 4, 2, 1
 *   NODES=1200    of each graph
 *   LAYERS=24     each has a segment of weights, and a part of the KV cache
 *   TENSORS=10    of each layer
 *   KV_MIB=4650   of each layer
 *   POOL_MIB=48   private memory of graphs
 *   COPIES=100    different places that the engine copies from, unbound, in a segment that graphs use
 *   PIECES=1      each forward is cut into so many graphs, with NODES nodes each; a graph hands its result on to the next one
 *                 in memory that is bound, or, with UNBOUND=1, in the pool. No graph is launched before all are there
 *   HANDS=1       a node of each graph copies the first of these places to the last one; 2: the second to the last but one ...
 *   KV_VALUE=0    another value: a node of each graph writes it to the first layer of the KV cache, where nobody reads it
 *   IMAGE=PATH    its kernels
 * stdout: a hash of the outputs. stderr: seconds until all graphs are there, and until "ready" is over; and what a restore took.
 */
enum { MOST_LAYERS = 256, ROW = 32, GAP = 512, TENSOR = 256 << 10, SMALL = 2 << 20, SPOT = 4096 };

static int graphs, nodes, layers, tensors, kv_mib, pool_mib, copies, pieces, unbound, most_batch;
static CUstream stream;
static CUfunction scale_add;
static CUdeviceptr weights[MOST_LAYERS], kv[MOST_LAYERS], pool, small, in, out, tables[8], hidden;

static int number(const char *name, int otherwise)
{
	const char *text = getenv(name);
	return text && *text ? atoi(text) : otherwise;
}

static void read_settings(void)
{
	graphs = number("SUBJECT_GRAPHS", 35);
	nodes = number("SUBJECT_NODES", 1200);
	layers = number("SUBJECT_LAYERS", 24);
	tensors = number("SUBJECT_TENSORS", 10);
	kv_mib = number("SUBJECT_KV_MIB", 4650);
	pool_mib = number("SUBJECT_POOL_MIB", 48);
	copies = number("SUBJECT_COPIES", 100);
	pieces = number("SUBJECT_PIECES", 1);
	unbound = number("SUBJECT_UNBOUND", 0);
	layers = layers < MOST_LAYERS ? layers : MOST_LAYERS;
	most_batch = graphs > 3 ? 8 * (graphs - 3) : 4;
}

static int batch_of(int graph)
{
	int from_end = graphs - 1 - graph;
	return from_end < 3 ? 1 << from_end : 8 * (from_end - 2);
}

static void bind(const char *what, int index, CUdeviceptr address, size_t bytes, enum medusa_role role)
{
	char name[32];
	snprintf(name, sizeof(name), "%s.%d", what, index);
	if (medusa_bind(name, address, bytes, role) != MEDUSA_OK)
		fprintf(stderr, "%s is not bound: %s\n", name, medusa_reason());
}

static void make_buffers(void)
{
	size_t row = (size_t)most_batch * ROW * 4;
	for (int l = 0; l < layers; l++) {
		size_t bytes = (size_t)kv_mib << 20;
		TRY(cuMemAlloc_v2, &weights[l], (size_t)tensors * (TENSOR + GAP));
		TRY(cuMemsetD32_v2, weights[l], 0x3f800000, (size_t)tensors * (TENSOR + GAP) / 4);
		TRY(cuMemAlloc_v2, &kv[l], bytes);
		bind("kv", l, kv[l], bytes, MEDUSA_BIND_STATE);
		for (int t = 0; t < tensors; t++)
			bind("weights", l * tensors + t, weights[l] + (size_t)t * (TENSOR + GAP), TENSOR,
			     MEDUSA_BIND_CONSTANT);
	}
	for (int i = 0; i < 8; i++) {
		TRY(cuMemAlloc_v2, &tables[i], (size_t)most_batch * 1024);
		TRY(cuMemsetD8_v2, tables[i], 0, (size_t)most_batch * 1024);
		bind("tables", i, tables[i], (size_t)most_batch * 1024, MEDUSA_BIND_STATE);
	}
	TRY(cuMemAlloc_v2, &pool, (size_t)pool_mib << 20);
	TRY(cuMemAlloc_v2, &small, SMALL);
	TRY(cuMemAlloc_v2, &hidden, (size_t)pieces * row);
	TRY(cuMemAlloc_v2, &in, row);
	TRY(cuMemAlloc_v2, &out, row);
	TRY(cuMemsetD32_v2, in, 0x3f800000, row / 4);
	TRY(cuCtxSynchronize);
	bind("in", 0, in, row, MEDUSA_BIND_INPUT);
	bind("out", 0, out, row, MEDUSA_BIND_OUTPUT);
	for (int p = 1; !unbound && p < pieces; p++)
		bind("hidden", p, hidden + (size_t)p * row, row, MEDUSA_BIND_STATE);
}

static CUdeviceptr place(int index)
{
	return small + (size_t)index * SMALL / 2 / (size_t)copies / 512 * 512;
}

static void copy_small_things(void)
{
	static unsigned char bytes[SPOT];
	for (int i = 0; i < copies; i++)
		TRY(cuMemcpyDtoH_v2, bytes, place(i), 64 + (size_t)i % 512);
}

static void add_node(CUdeviceptr to, CUdeviceptr weight, CUdeviceptr from, int n, float bias)
{
	void *params[] = {&to, &weight, &from, &n, &bias};
	TRY(cuLaunchKernel, scale_add, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

/* Each node reads what the one before has left; every 50th one goes through the KV cache or the small segment. */
static CUdeviceptr result_of(int piece)
{
	size_t row = (size_t)most_batch * ROW * 4;
	return piece < 0 ? in : piece == pieces - 1 ? out : (unbound ? pool : hidden) + (size_t)(piece + 1) * row;
}

static CUgraphExec capture(int graph, int piece)
{
	size_t row = (size_t)batch_of(graph) * ROW * 4, handed = pieces > 1 ? (size_t)pieces * most_batch * ROW * 4 : 0;
	size_t room = (((size_t)pool_mib << 20) - handed) / row;
	int n = batch_of(graph) * ROW;
	CUdeviceptr from = result_of(piece - 1);
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	for (int i = 0; i < nodes; i++) {
		int layer = (int)(((long)piece * nodes + i) * layers / ((long)pieces * nodes));
		CUdeviceptr weight = weights[layer] + (size_t)(i % tensors) * (TENSOR + GAP);
		CUdeviceptr to = i == nodes - 1  ? result_of(piece)
				 : i % 50 == 25  ? kv[layer] + ((size_t)graph << 20)
				 : i % 600 == 37 ? small + SMALL / 2
						 : pool + handed + (size_t)i % room * row;
		add_node(to, weight, from, n, 0.5f);
		from = to;
	}
	if (number("SUBJECT_HANDS", 0)) /* every bit, which a sum would not keep */
		TRY(cuMemcpyDtoDAsync_v2, place(copies - number("SUBJECT_HANDS", 0)),
		    place(number("SUBJECT_HANDS", 0) - 1), 32, stream);
	if (number("SUBJECT_KV_VALUE", 0))
		add_node(kv[0] + (32 << 10) + (size_t)graph * 256, weights[0], in, 8,
			 (float)number("SUBJECT_KV_VALUE", 0));
	return end_capture(stream);
}

static void set_input(int graph, float value)
{
	unsigned word;
	memcpy(&word, &value, sizeof(word));
	TRY(cuMemsetD32_v2, in, word, (size_t)batch_of(graph) * ROW);
	TRY(cuCtxSynchronize);
}

static CUgraphExec get(int graph, int piece)
{
	CUgraphExec exec;
	char label[32] = "decode";
	if (pieces > 1)
		snprintf(label, sizeof(label), "piece%d", piece);
	if (medusa_graph_get(label, (unsigned)batch_of(graph), UINT64_MAX, (void **)&exec) == MEDUSA_OK)
		return exec;
	if (!piece)
		copy_small_things();
	set_input(graph, (float)graph);
	exec = capture(graph, piece);
	medusa_graph_label(exec, label, (unsigned)batch_of(graph));
	if (pieces > 1)
		return exec;
	TRY(cuGraphLaunch, exec, stream);
	TRY(cuStreamSynchronize, stream);
	return exec;
}

static void serve(const CUgraphExec *execs, int graph, float value)
{
	static float values[1 << 16];
	size_t bytes = (size_t)batch_of(graph) * ROW * 4;
	float sum = 0;
	set_input(graph, value);
	for (int p = 0; p < pieces; p++)
		TRY(cuGraphLaunch, execs[p], stream);
	TRY(cuStreamSynchronize, stream);
	TRY(cuMemcpyDtoH_v2, values, out, bytes < sizeof(values) ? bytes : sizeof(values));
	for (size_t i = 0; i < bytes / 4 && i < 1 << 16; i++)
		sum += values[i];
	printf("%d: %.9g\n", batch_of(graph), (double)sum);
}

static double ms(uint64_t ns)
{
	return (double)ns / 1e6;
}

static void print_restored(void)
{
	struct medusa_stats stats = {.size = sizeof(stats)};
	if (medusa_mode() != MEDUSA_MODE_RESTORE || medusa_stats_read(&stats) != MEDUSA_OK)
		return;
	fprintf(stderr, "restored %u of %u graphs, opened in %.3f ms, all in %.3f ms, of that own work %.3f ms\n",
		stats.graphs_restored, stats.graphs_total, ms(stats.open_ns), ms(stats.total_ns), ms(stats.own_ns));
	fprintf(stderr,
		"images %.3f, functions %.3f, arena %.3f, patch %.3f, heap %.3f, build %.3f, instantiate %.3f, "
		"upload %.3f ms\n",
		ms(stats.images_ns), ms(stats.functions_ns), ms(stats.arena_ns), ms(stats.patch_ns), ms(stats.heap_ns),
		ms(stats.build_ns), ms(stats.instantiate_ns), ms(stats.upload_ns));
}

int main(void)
{
	CUmodule module;
	CUgraphExec *execs;
	uint64_t start = md_clock_ns(), made;
	read_settings();
	load_driver();
	open_context();
	execs = calloc((size_t)graphs * (size_t)pieces, sizeof(*execs));
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	TRY(cuModuleLoadData, &module, read_file(getenv("SUBJECT_IMAGE")));
	TRY(cuModuleGetFunction, &scale_add, module, "scale_add");
	medusa_fingerprint_add("subject", "wide");
	make_buffers();
	for (int i = 0; i < graphs * pieces; i++)
		execs[i] = get(i / pieces, i % pieces);
	made = md_clock_ns();
	print_restored();
	medusa_mark("ready");
	fprintf(stderr, "graphs %.3f s, ready %.3f s\n", (double)(made - start) / 1e9,
		(double)(md_clock_ns() - made) / 1e9);
	for (int i = 0; i < graphs; i++) {
		serve(&execs[i * pieces], i, 100);
		serve(&execs[i * pieces], i, 200);
	}
	free(execs);
	return 0;
}
