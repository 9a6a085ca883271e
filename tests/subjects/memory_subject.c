/* SPDX-License-Identifier: Apache-2.0 */
/* An engine with a graph for each way to come by memory. argv[1]: image; then cases, or all. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/cuda_driver.h"
#include "tests/subjects/memory_families.h"

/* clang-format off */
/*
 * stdout: what was computed, the same however it came by its graphs; stderr: how it came by them. Environment:
 *   MEMORY_GROWS               case `bound_then_mapped`: it is bound as state, and only its first half has memory
 *   SUBJECT_FORGETS_INPUT      the input is not bound
 * Of case `variable`:
 *   SUBJECT_VARIES             each process sets the variable to another value
 *   SUBJECT_WRITES_LATE        the variable is set by the first forward pass, and not before
 *   SUBJECT_LOADS_WITH_FIRST   its module is loaded then, too
 */
/* clang-format on */

/* ---- addresses that are given again ---- */

/* A real driver may give others first, but always as many. */
static CUdeviceptr freed_and_given_again(CUdeviceptr old, size_t bytes)
{
	const char *device_kind = getenv("MEDUSA_DEVICE");
	int most = device_kind && !strcmp(device_kind, "gpu") ? 32 : 1;
	CUdeviceptr memory = 0;
	TRY(cuMemFree_v2, old);
	for (int tries = 0; memory != old && tries < most; tries++)
		memory = device(bytes);
	if (memory != old)
		fprintf(stderr, "an address was not given again\n");
	return memory;
}

static CUdeviceptr given_again(CUdeviceptr old, size_t bytes)
{
	TRY(cuStreamSynchronize, stream);
	return freed_and_given_again(old, bytes);
}

/* Launched on one allocation, captured on the next that has its address. */
static void reused(void)
{
	CUdeviceptr old = device(LARGE);
	fill(old, 1);
	launch_add(old, 0);
	use_table(given_again(old, LARGE));
}

static void give_again_later(struct made *of)
{
	fill(given_again(of->memory, LARGE), 80);
}

static void reused_after(void)
{
	use_table(device(LARGE));
	made.afterwards = give_again_later;
}

/* What was bound is gone, and its address is another's, which is not bound. */
static void reused_bound(void)
{
	CUdeviceptr old = device(LARGE);
	medusa_bind("reused_bound", old, LARGE, MEDUSA_BIND_STATE);
	use_table(given_again(old, LARGE));
	medusa_bind("reused_bound", device(LARGE), LARGE, MEDUSA_BIND_STATE);
}

static void launch_within(const struct made *from)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	launch_add(from->memory, 1);
	TRY(cuThreadExchangeStreamCaptureMode, &mode);
	CUdeviceptr again = freed_and_given_again(from->memory, LARGE);
	fill(again, 90);
	TRY(cuThreadExchangeStreamCaptureMode, &mode);
	launch_add(again, 2);
}

/* Between two launches of one capture. */
static void reused_within(void)
{
	use_table(device(LARGE));
	made.launch = launch_within;
}

/* ---- memory of graphs ---- */

static CUdeviceptr of_graph;

static void launch_allocating(const struct made *from)
{
	(void)from;
	TRY(cuMemAllocAsync, &of_graph, MEMORY_BYTES, stream);
	TRY(cuMemsetD32Async, of_graph, 0x40000000, MEMORY_N, stream);
	launch_add(of_graph, 1);
	TRY(cuMemFreeAsync, of_graph, stream);
}

static void graph_memory(void)
{
	made.launch = launch_allocating;
}

static void launch_on_graphs_memory(const struct made *from)
{
	launch_add(from->memory, 1);
}

/* Memory of an allocation node, used in another graph; the node is added by itself, by either call. */
static void use_graphs_memory(bool any)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
	CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = props, .bytesize = MEMORY_BYTES};
	CUgraphNodeParams all = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
				 .alloc = {.poolProps = props, .bytesize = MEMORY_BYTES}};
	CUgraphNode node;
	CUgraph graph;
	CUgraphExec exec;
	TRY(cuGraphCreate, &graph, 0);
	if (any)
		TRY(cuGraphAddNode, &node, graph, NULL, 0, &all);
	else
		TRY(cuGraphAddMemAllocNode, &node, graph, NULL, 0, &params);
	TRY(cuGraphInstantiateWithFlags, &exec, graph, 0);
	TRY(cuGraphLaunch, exec, stream);
	TRY(cuStreamSynchronize, stream);
	made.memory = any ? all.alloc.dptr : params.dptr;
	fill(made.memory, 5);
	made.launch = launch_on_graphs_memory;
}

static void graph_memory_of_another(void)
{
	use_graphs_memory(false);
}

static void graph_memory_of_any_node(void)
{
	use_graphs_memory(true);
}

/* ---- contents ---- */

/* In the middle of something large. */
static void table_in_large(void)
{
	CUdeviceptr memory = device(LARGE);
	TRY(cuMemsetD8_v2, memory, 0xa5, LARGE);
	use_table(memory + LARGE / 2);
}

static void launch_list(const struct made *from)
{
	int32_t n = MEMORY_N, count = 3;
	void *params[] = {(void *)&out, (void *)&from->memory, &count, &n};
	TRY(cuLaunchKernel, list, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

/* To what is bound, and to two private tables, at an offset in one of them. */
static void pointer_array(void)
{
	CUdeviceptr one = device(2 * MEMORY_BYTES), two = device(MEMORY_BYTES);
	CUdeviceptr pointers[] = {in, one + MEMORY_BYTES, two};
	fill(one + MEMORY_BYTES, 20);
	fill(two, 30);
	made.memory = device(sizeof(pointers));
	TRY(cuMemcpyHtoD_v2, made.memory, pointers, sizeof(pointers));
	made.launch = launch_list;
}

static CUdeviceptr table;

static void launch_blocks(const struct made *from)
{
	int32_t n = MEMORY_N, block = MEMORY_BLOCK;
	void *params[] = {(void *)&out, (void *)&from->memory, (void *)&table, &block, &n};
	TRY(cuLaunchKernel, blocks, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

/* A table of indices, bound to nothing, into what is bound. */
static void block_table(void)
{
	int32_t rows[MEMORY_N / MEMORY_BLOCK];
	for (int32_t i = 0; i < MEMORY_N / MEMORY_BLOCK; i++)
		rows[i] = (i * 5 + 3) % (MEMORY_N / MEMORY_BLOCK);
	table = device(sizeof(rows));
	TRY(cuMemcpyHtoD_v2, table, rows, sizeof(rows));
	made.memory = in;
	made.launch = launch_blocks;
}

/* No two starts have the same. */
static void changing(void)
{
	CUdeviceptr memory = device(MEMORY_BYTES);
	int32_t process = (int32_t)getpid();
	float values[MEMORY_N] = {0};
	memcpy(values, &process, sizeof(process));
	for (unsigned i = 1; i < MEMORY_N; i++)
		values[i] = 2;
	TRY(cuMemcpyHtoD_v2, memory, values, sizeof(values));
	use(memory);
}

static void pointer_to_pinned(void)
{
	CUdeviceptr pointers[] = {in, in, locked(0)};
	made.memory = device(sizeof(pointers));
	TRY(cuMemcpyHtoD_v2, made.memory, pointers, sizeof(pointers));
	made.launch = launch_list;
}

static void pointer_to_ipc(void)
{
	CUdeviceptr pointers[] = {in, in, opened(MEMORY_PEER_IPC_UNBOUND)};
	made.memory = device(sizeof(pointers));
	TRY(cuMemcpyHtoD_v2, made.memory, pointers, sizeof(pointers));
	made.launch = launch_list;
}

/* ---- a variable of the module ---- */

static void launch_scaled(const struct made *from)
{
	int32_t n = MEMORY_N;
	void *params[] = {(void *)&out, (void *)&from->memory, &n};
	TRY(cuLaunchKernel, scaled, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

/* In an image of its own, which is then the engine's for all of its kernels. */
static CUmodule variable_module(void)
{
	static const char own[] = "memory_kernels", others[] = "variable_kernels";
	const char *at = strstr(image_path, own);
	char path[4096];
	CUmodule module;
	snprintf(path, sizeof(path), "%.*s%s%s", (int)(at - image_path), image_path, others, at + sizeof(own) - 1);
	TRY(cuModuleLoad, &module, path);
	TRY(cuModuleGetFunction, &scaled, module, "variable_scaled");
	made.memory = in;
	made.launch = launch_scaled;
	return module;
}

static CUmodule with_variable;

static void write_variable(void)
{
	const float scale = getenv("SUBJECT_VARIES") ? (float)getpid() : 3;
	CUdeviceptr address;
	size_t size;
	TRY(cuModuleGetGlobal_v2, &address, &size, with_variable, "variable_scale");
	TRY(cuMemcpyHtoD_v2, address, &scale, sizeof(scale));
}

/* By whichever first forward pass comes first, of any graph. */
static void load_and_write(void)
{
	const struct made keep = made;
	if (with_variable)
		return;
	with_variable = variable_module();
	made = keep;
	write_variable();
}

static void variable(void)
{
	if (getenv("SUBJECT_LOADS_WITH_FIRST")) {
		made.memory = in;
		made.launch = launch_scaled;
		return;
	}
	with_variable = variable_module();
	if (getenv("SUBJECT_WRITES_LATE"))
		made.before_capture = write_variable;
	else
		write_variable();
}

/* By a kernel: nobody has asked where it lies. */
static void variable_of_kernel(void)
{
	float scale = 3;
	void *params[] = {&scale};
	CUmodule module = variable_module();
	CUfunction set;
	TRY(cuModuleGetFunction, &set, module, "variable_set");
	TRY(cuLaunchKernel, set, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

#define CASE(name)                                                                                                     \
	{                                                                                                              \
#name, name                                                                                            \
	}
static const struct {
	const char *name;
	void (*make)(void);
} cases[] = {
    CASE(pitched),
    CASE(pitched_table),
    CASE(async),
    CASE(async_table),
    CASE(pool_table),
    CASE(current_pool_table),
    CASE(managed),
    CASE(managed_unbound),
    CASE(pinned),
    CASE(pinned_unbound),
    CASE(registered),
    CASE(registered_unbound),
    CASE(mapped_host),
    CASE(mapped_host_unbound),
    CASE(vmm),
    CASE(vmm_table),
    CASE(remapped_before),
    CASE(remapped_bound),
    CASE(remapped_bound_before),
    CASE(remapped_after),
    CASE(bound_then_mapped),
    CASE(aliased),
    CASE(aliased_unbound),
    CASE(expandable),
    CASE(expandable_bound),
    CASE(ipc),
    CASE(ipc_unbound),
    CASE(ipc_twice),
    CASE(imported_pool),
    CASE(imported_pool_unbound),
    CASE(imported_vmm),
    CASE(imported_vmm_unbound),
    CASE(exported_unbound),
    CASE(exported_after),
    CASE(exported_pool_unbound),
    CASE(reused),
    CASE(reused_after),
    CASE(reused_bound),
    CASE(reused_within),
    CASE(graph_memory),
    CASE(graph_memory_of_another),
    CASE(graph_memory_of_any_node),
    CASE(table_in_large),
    CASE(pointer_array),
    CASE(block_table),
    CASE(changing),
    CASE(pointer_to_pinned),
    CASE(pointer_to_ipc),
    CASE(variable),
    /* only if they are named: nothing but a proof refuses the first, and not every machine has the others */
    CASE(variable_of_kernel),
    CASE(on_host),
    CASE(on_host_unbound),
    CASE(pool_on_host_unbound),
    CASE(of_other_device),
    CASE(for_other_device),
    CASE(for_other_device_bound),
};
enum { CASES = sizeof(cases) / sizeof(cases[0]), UNNAMED = CASES - 7 };

/* ---- a life ---- */

static CUgraphExec live(const char *name)
{
	CUgraph graph;
	CUgraphExec exec;
	if (made.before_capture)
		made.before_capture();
	if (getenv("SUBJECT_LOADS_WITH_FIRST"))
		load_and_write();
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
	made.launch(&made);
	TRY(cuStreamEndCapture, stream, &graph);
	TRY(cuGraphInstantiateWithFlags, &exec, graph, 0);
	TRY(cuGraphDestroy, graph);
	if (medusa_graph_label(exec, name, 1) && medusa_mode() != MEDUSA_MODE_NONE)
		fprintf(stderr, "not labelled: %s\n", medusa_reason());
	return exec;
}

static void replay(const char *name, CUgraphExec exec)
{
	float values[MEMORY_N];
	uint64_t sum = 1469598103934665603u;
	bool changes = !strcmp(name, "changing");
	TRY(cuMemsetD8_v2, out, 0, MEMORY_BYTES);
	for (unsigned turn = 0; turn < REPLAYS; turn++) {
		for (unsigned i = 0; i < MEMORY_N; i++)
			values[i] = (float)((i * 7 + turn * 5) % 31);
		TRY(cuMemcpyHtoD_v2, in, values, sizeof(values));
		for (unsigned i = 0; made.host && i < MEMORY_N; i++)
			made.host[i] = (float)(i + turn);
		if (made.peers)
			memory_peer_write(&peer, turn);
		TRY(cuCtxSynchronize); /* copies from pageable memory, for which the stream does not wait */
		TRY(cuGraphLaunch, exec, stream);
		TRY(cuStreamSynchronize, stream);
		TRY(cuMemcpyDtoH_v2, values, out, sizeof(values));
		for (unsigned i = changes * sizeof(float); i < sizeof(values); i++)
			sum = (sum ^ ((uint8_t *)values)[i]) * 1099511628211u;
	}
	printf("%s %016" PRIx64 " %g\n", name, sum, (double)values[MEMORY_N - 1]);
}

/* Everything is made and bound before the first graph is asked for. */
static void run(const char *name, const struct made *of)
{
	void *exec = NULL;
	made = *of;
	if (medusa_graph_get(name, 1, UINT64_MAX, &exec) == MEDUSA_OK) {
		fprintf(stderr, "%s restored\n", name);
	} else {
		fprintf(stderr, "%s live: %s\n", name, medusa_reason());
		exec = live(name);
	}
	if (made.afterwards)
		made.afterwards(&made);
	replay(name, exec);
}

static void load(const char *path)
{
	CUmodule module;
	TRY(cuModuleLoad, &module, path);
	TRY(cuModuleGetFunction, &add, module, "memory_add");
	TRY(cuModuleGetFunction, &list, module, "memory_list");
	TRY(cuModuleGetFunction, &blocks, module, "memory_blocks");
}

static bool is_wanted(unsigned index, int argc, char **argv)
{
	bool wanted = argc < 3 && index < UNNAMED;
	for (int i = 2; i < argc; i++)
		wanted |= !strcmp(argv[i], cases[index].name);
	return wanted;
}

int main(int argc, char **argv)
{
	static struct made all[CASES];
	struct md_error err = {0};
	CUcontext context;
	if (argc < 2)
		return 2;
	if (md_cuda_load(&err) != MD_OK) {
		fprintf(stderr, "%s\n", err.message);
		return 1;
	}
	if (!strcmp(argv[1], MEMORY_PEER_ARGUMENT))
		return memory_peer_main();
	memory_peer_start(&peer, argv[0]);
	TRY(cuInit, 0);
	TRY(cuDevicePrimaryCtxRetain, &context, 0);
	TRY(cuCtxSetCurrent, context);
	image_path = argv[1];
	load(image_path);
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	in = device(MEMORY_BYTES);
	out = device(MEMORY_BYTES);
	if (!getenv("SUBJECT_FORGETS_INPUT"))
		medusa_bind("in", in, MEMORY_BYTES, MEDUSA_BIND_INPUT);
	medusa_bind("out", out, MEMORY_BYTES, MEDUSA_BIND_STATE);
	for (unsigned i = 0; i < CASES; i++) {
		if (!is_wanted(i, argc, argv))
			continue;
		made = (struct made){0};
		cases[i].make();
		all[i] = made;
	}
	for (unsigned i = 0; i < CASES; i++)
		if (is_wanted(i, argc, argv))
			run(cases[i].name, &all[i]);
	memory_peer_stop(&peer);
	medusa_release();
	return 0;
}
