/* SPDX-License-Identifier: Apache-2.0 */
/* An engine with a graph for each kind of node, edge, attribute and parameter. argv[1]: image; then graphs, or all.
 * stdout: what was computed, the same however it came by its graphs; stderr: how it came by them.
 * SUBJECT_FORGETS_HOST: page-locked memory is not bound; SUBJECT_STAGES_ON_DEVICE: device memory is bound in its place. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "medusa/medusa.h"
#include "tests/subjects/nodes_attributes.h"
#include "tests/subjects/nodes_changes.h"
#include "tests/subjects/nodes_contexts.h"
#include "tests/subjects/nodes_subject.h"
#include "tests/subjects/image_file.h"

/* ---- child graphs ---- */

/* A child twice, then a kernel behind both. */
static CUgraph child(void)
{
	CUgraph graph, part = captured(two_steps), tail;
	CUgraphNode nodes[3];
	TRY(cuGraphCreate, &graph, 0);
	TRY(cuGraphAddChildGraphNode, &nodes[0], graph, NULL, 0, part);
	TRY(cuGraphAddChildGraphNode, &nodes[1], graph, &nodes[0], 1, part);
	begin();
	launch(out, in, 0.5f, stream);
	tail = end();
	TRY(cuGraphAddChildGraphNode, &nodes[2], graph, &nodes[1], 1, tail);
	TRY(cuGraphDestroy, part);
	TRY(cuGraphDestroy, tail);
	return graph;
}

/* Children in a child, beside an empty node, with a launch attribute that a node does not tell. */
static CUgraph nested(void)
{
	CUgraph middle = child(), leaf = captured(clustered), graph;
	CUgraphNode nodes[3], last;
	size_t count = 3;
	TRY(cuGraphGetNodes, middle, nodes, &count);
	TRY(cuGraphAddChildGraphNode, &last, middle, nodes, count, leaf); /* behind all, which add to the same memory */
	TRY(cuGraphCreate, &graph, 0);
	TRY(cuGraphAddEmptyNode, &nodes[0], graph, NULL, 0);
	TRY(cuGraphAddChildGraphNode, &nodes[1], graph, &nodes[0], 1, middle);
	TRY(cuGraphAddChildGraphNode, &nodes[2], graph, &nodes[1], 1, leaf);
	TRY(cuGraphDestroy, middle);
	TRY(cuGraphDestroy, leaf);
	return graph;
}

/* A graph that is launched inside of a capture becomes a child. */
static CUgraph launched_in(CUgraph part)
{
	CUgraphExec exec;
	TRY(cuGraphInstantiateWithFlags, &exec, part, 0);
	TRY(cuGraphDestroy, part);
	begin();
	launch(out, in, 1, stream);
	TRY(cuGraphLaunch, exec, stream);
	CUgraph graph = end();
	TRY(cuGraphExecDestroy, exec);
	return graph;
}

static CUgraph launched(void)
{
	return launched_in(captured(two_steps));
}

static CUgraph launched_clustered(void)
{
	return launched_in(captured(clustered));
}

/* ---- events ---- */

static CUgraph events(void)
{
	begin();
	clear();
	launch(temporary, in, 3, stream);
	TRY(cuEventRecordWithFlags, inner, stream, CU_EVENT_RECORD_EXTERNAL);
	TRY(cuStreamWaitEvent, stream, inner, CU_EVENT_WAIT_EXTERNAL);
	launch(out, temporary, 1, stream);
	return end();
}

/* The engine waits for what the graph records. */
static CUgraph event_of_engine(void)
{
	begin();
	launch(out, in, 1, stream);
	TRY(cuEventRecordWithFlags, engines, stream, CU_EVENT_RECORD_EXTERNAL);
	return end();
}

/* The graph waits for what the engine records. */
static CUgraph event_foreign(void)
{
	begin();
	TRY(cuStreamWaitEvent, stream, foreign, CU_EVENT_WAIT_EXTERNAL);
	launch(out, in, 1, stream);
	return end();
}

/* ---- host memory ---- */

static CUgraph copy_graph(const float *from, float *to)
{
	CUDA_MEMCPY3D up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
			    .srcHost = from,
			    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			    .dstDevice = out,
			    .WidthInBytes = BYTES,
			    .Height = 1,
			    .Depth = 1};
	CUDA_MEMCPY3D down = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			      .srcDevice = out,
			      .dstMemoryType = CU_MEMORYTYPE_HOST,
			      .dstHost = to,
			      .WidthInBytes = BYTES,
			      .Height = 1,
			      .Depth = 1};
	CUgraphNode first, last;
	CUgraph graph;
	TRY(cuGraphCreate, &graph, 0);
	TRY(cuGraphAddMemcpyNode, &first, graph, NULL, 0, &up, context);
	if (to)
		TRY(cuGraphAddMemcpyNode, &last, graph, &first, 1, &down, context);
	return graph;
}

static CUgraph host_copy(void)
{
	return copy_graph(staged_in, staged_out);
}

static CUgraph host_copy_unbound(void)
{
	return copy_graph(unbound, NULL);
}

static CUgraph host_copy_pageable(void)
{
	return copy_graph(pageable, NULL);
}

static CUgraph host_pointer(void)
{
	begin();
	launch(out, (CUdeviceptr)(uintptr_t)staged_in, 2, stream);
	return end();
}

static CUgraph host_pointer_unbound(void)
{
	begin();
	launch(out, (CUdeviceptr)(uintptr_t)unbound, 2, stream);
	return end();
}

static void nothing(void *unused)
{
	(void)unused;
}

static CUgraph host_function(void)
{
	begin();
	launch(out, in, 1, stream);
	TRY(cuLaunchHostFunc, stream, nothing, NULL);
	return end();
}

/* ---- edges ---- */

/* Three streams: a fork, a fork from the fork, and joins in another order. */
static CUgraph streams(void)
{
	begin();
	clear();
	TRY(cuEventRecord, fork_one, stream);
	TRY(cuStreamWaitEvent, second, fork_one, 0);
	launch(temporary, in, 1, second);
	TRY(cuEventRecord, fork_two, second);
	TRY(cuStreamWaitEvent, third, fork_two, 0);
	launch(out, in, 3, third);
	launch(temporary, in, 2, second);
	TRY(cuEventRecord, join_one, third);
	TRY(cuEventRecord, join_two, second);
	TRY(cuStreamWaitEvent, stream, join_two, 0);
	TRY(cuStreamWaitEvent, stream, join_one, 0);
	launch(out, temporary, 1, stream);
	return end();
}

static CUgraph programmatic(void)
{
	CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
				   .value.programmaticStreamSerializationAllowed = 1};
	begin();
	launch(out, in, 1, stream);
	launch_with(out, in, 2, stream, &early, 1);
	launch(out, in, 3, stream);
	return end();
}

static CUgraph empty(void)
{
	CUgraph graph = captured(two_steps);
	CUgraphNode node;
	TRY(cuGraphAddEmptyNode, &node, graph, NULL, 0);
	return graph;
}

/* ---- parameters ---- */

static CUgraph in_struct(void)
{
	struct {
		int32_t odd, rows;
		CUdeviceptr out;
		int32_t more[2];
		CUdeviceptr in, end;
	} all = {7, N, out, {1, 2}, in, in + BYTES};
	void *params[] = {&all};
	begin();
	TRY(cuLaunchKernel, range, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
	return end();
}

/* A texture of what is bound, which another process knows by another number, if at all. */
static CUgraph texture(void)
{
	CUDA_RESOURCE_DESC resource = {
	    .resType = CU_RESOURCE_TYPE_LINEAR,
	    .res.linear = {.devPtr = in, .format = CU_AD_FORMAT_FLOAT, .numChannels = 1, .sizeInBytes = BYTES}};
	CUDA_TEXTURE_DESC description = {.flags = CU_TRSF_READ_AS_INTEGER};
	CUtexObject object;
	int32_t n = N;
	void *params[] = {&out, &object, &n};
	TRY(cuTexObjectCreate, &object, &resource, &description, NULL);
	begin();
	TRY(cuLaunchKernel, numbered, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
	return end();
}

static CUgraph virtual_origin(void)
{
	CUdeviceptr before = in - ORIGIN * 4;
	int64_t first = ORIGIN;
	int32_t n = N;
	void *params[] = {&out, &before, &in, &first, &n};
	begin();
	TRY(cuLaunchKernel, origin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
	return end();
}

static void encode(CUtensorMap *map)
{
	const cuuint64_t dims[] = {N}, strides[] = {BYTES};
	const cuuint32_t box[] = {16}, steps[] = {1};
	TRY(cuTensorMapEncodeTiled, map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 1, (void *)(uintptr_t)in, dims, strides, box,
	    steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
	    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static CUgraph tensor_map(void)
{
	CUtensorMap map __attribute__((aligned(64)));
	int32_t n = N;
	void *params[] = {&map, &out, &n};
	encode(&map);
	begin();
	TRY(cuLaunchKernel, mapped, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
	return end();
}

static CUgraph tensor_map_in_memory(void)
{
	int32_t n = N;
	void *params[] = {&map_memory, &out, &n};
	begin();
	TRY(cuLaunchKernel, mapped_there, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
	return end();
}

static const struct {
	const char *name;
	CUgraph (*make)(void);
	void (*change)(CUgraphExec exec, CUgraph graph); /* once it is instantiated; or NULL */
} kinds[] = {
    {"child", child, NULL},
    {"nested", nested, NULL},
    {"launched", launched, NULL},
    {"launched_clustered", launched_clustered, NULL},
    {"events", events, NULL},
    {"event_of_engine", event_of_engine, NULL},
    {"event_foreign", event_foreign, NULL},
    {"host_copy", host_copy, NULL},
    {"host_copy_unbound", host_copy_unbound, NULL},
    {"host_copy_pageable", host_copy_pageable, NULL},
    {"host_pointer", host_pointer, NULL},
    {"host_pointer_unbound", host_pointer_unbound, NULL},
    {"host_function", host_function, NULL},
    {"window", window, NULL},
    {"clusters", clusters, NULL},
    {"preferred_cluster", preferred_cluster, NULL},
    {"cloned", cloned, NULL},
    {"set_cluster", set_cluster, NULL},
    {"copied_attributes", copied_attributes, NULL},
    {"reused_node", reused_node, NULL},
    {"after_failure", after_failure, NULL},
    {"any_node", any_node, NULL},
    {"cooperative", cooperative, NULL},
    {"priority", priority, NULL},
    {"sync_domain", sync_domain, NULL},
    {"sync_domains_one", sync_domains_one, NULL},
    {"carveout", carveout, NULL},
    {"function_state", function_state, NULL},
    {"function_cache", function_cache, NULL},
    {"strange_attribute", strange_attribute, NULL},
    {"updatable", updatable, NULL},
    {"updatable_set", updatable_set, NULL},
    {"streams", streams, NULL},
    {"programmatic", programmatic, NULL},
    {"empty", empty, NULL},
    {"in_struct", in_struct, NULL},
    {"texture", texture, NULL},
    {"virtual_origin", virtual_origin, NULL},
    {"tensor_map", tensor_map, NULL},
    {"tensor_map_in_memory", tensor_map_in_memory, NULL},
    {"workspace", workspace, NULL},
    {"random_bound", random_bound, NULL},
    {"random_unbound", random_unbound, NULL},
    {"set_anew", set_anew, NULL},
    {"changed_memset", steps, change_memset},
    {"changed_memcpy", host_copy, change_memcpy},
    {"disabled", clear_and_launch, disable},
    {"changed_event", one_event, change_event},
    {"changed_wait", one_wait, change_wait},
    {"changed_kernel", clear_and_launch, change_kernel},
    {"changed_any", clear_and_launch, change_any},
    {"enabled_again", steps, disable_twice},
    {"updated_idly", clear_and_launch, update_idly},
    {"updated_wholly", clear_and_launch, update_wholly},
    {"updated_in_vain", clear_and_launch, update_in_vain},
    {"updated_idly_late", clear_and_launch, NULL},
    {"updated_restored", clear_and_launch, update_wholly},
    {"changed_late", clear_and_launch, NULL},
    {"updated_late", clear_and_launch, NULL},
    {"disabled_late", steps, NULL},
    {"other_context", other_context, NULL},
    {"other_context_set", other_context_set, NULL},
    {"other_context_added", other_context_added, NULL},
    {"green_context", green_context, NULL},
};
/* What is changed only once the graph has its name. */
static const struct {
	const char *name;
	void (*change)(CUgraphExec exec, CUgraph graph);
} late[] = {
    {"updated_idly_late", update_idly},
    {"changed_late", change_any},
    {"updated_late", update_wholly},
    {"disabled_late", disable},
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* ---- a life ---- */

static CUmodule module;

static void load(const char *path)
{
	void *image = read_file(path);
	TRY(cuModuleLoadData, &module, image);
	TRY(cuModuleGetFunction, &step, module, "nodes_step");
	TRY(cuModuleGetFunction, &range, module, "nodes_range");
	TRY(cuModuleGetFunction, &origin, module, "nodes_origin");
	TRY(cuModuleGetFunction, &mapped, module, "nodes_mapped");
	TRY(cuModuleGetFunction, &mapped_there, module, "nodes_mapped_there");
	TRY(cuModuleGetFunction, &told, module, "nodes_told");
	TRY(cuModuleGetFunction, &cached, module, "nodes_cached");
	TRY(cuModuleGetFunction, &counted, module, "nodes_counted");
	TRY(cuModuleGetFunction, &draws, module, "nodes_drawn");
	TRY(cuModuleGetFunction, &numbered, module, "nodes_numbered");
	free(image);
}

/* MAP_AT: where the map in device memory lies in its allocation, in bytes. */
static size_t map_at(void)
{
	const char *bytes = getenv("MAP_AT");
	return bytes ? strtoul(bytes, NULL, 10) : 0;
}

static void set_up(void)
{
	CUevent *const all[] = {&fork_one, &fork_two, &join_one, &join_two, &engines,
				&foreign,  &inner,    &own_one,  &own_two};
	CUtensorMap map __attribute__((aligned(64)));
	TRY(cuMemAlloc_v2, &in, BYTES);
	TRY(cuMemAlloc_v2, &out, BYTES);
	TRY(cuMemAlloc_v2, &temporary, BYTES);
	TRY(cuMemAlloc_v2, &map_memory, 2 * map_at() + sizeof(map));
	map_memory += map_at();
	TRY(cuMemAlloc_v2, &counter, BYTES);
	TRY(cuMemsetD8_v2, counter, 0, BYTES);
	for (int i = 0; i < 2; i++) {
		uint64_t own = (uint64_t)getpid(); /* another number in another process */
		TRY(cuMemAlloc_v2, &drawn[i], 8);
		TRY(cuMemAlloc_v2, &drawn_unbound[i], 8);
		TRY(cuMemcpyHtoD_v2, drawn_unbound[i], &own, 8);
	}
	TRY(cuMemHostAlloc, (void **)&staged_in, BYTES, 0);
	TRY(cuMemHostAlloc, (void **)&staged_out, BYTES, 0);
	TRY(cuMemHostAlloc, (void **)&unbound, BYTES, 0);
	encode(&map);
	TRY(cuMemcpyHtoD_v2, map_memory, &map, sizeof(map));
	TRY(cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING, -1);
	TRY(cuStreamCreate, &second, CU_STREAM_NON_BLOCKING);
	TRY(cuStreamCreate, &third, CU_STREAM_NON_BLOCKING);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		TRY(cuEventCreate, all[i], CU_EVENT_DISABLE_TIMING);
	medusa_bind("in", in, BYTES, MEDUSA_BIND_INPUT);
	medusa_bind("seed", drawn[0], 8, MEDUSA_BIND_INPUT);
	medusa_bind("offset", drawn[1], 8, MEDUSA_BIND_INPUT);
	medusa_bind("out", out, BYTES, MEDUSA_BIND_STATE);
	if (!getenv("SUBJECT_FORGETS_HOST"))
		medusa_bind("staged_in", getenv("SUBJECT_STAGES_ON_DEVICE") ? in : (uintptr_t)staged_in, BYTES,
			    MEDUSA_BIND_INPUT);
	medusa_bind("staged_out", (uintptr_t)staged_out, BYTES, MEDUSA_BIND_OUTPUT);
}

static CUgraphExec live(unsigned kind)
{
	CUgraph graph = kinds[kind].make();
	CUgraphExec exec;
	TRY(cuGraphInstantiateWithFlags, &exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
	if (kinds[kind].change)
		kinds[kind].change(exec, graph);
	if (medusa_graph_label(exec, kinds[kind].name, 1) && medusa_mode() != MEDUSA_MODE_NONE)
		fprintf(stderr, "not labelled: %s\n", medusa_reason());
	for (size_t i = 0; i < sizeof(late) / sizeof(late[0]); i++)
		if (!strcmp(late[i].name, kinds[kind].name))
			late[i].change(exec, graph);
	TRY(cuGraphDestroy, graph);
	return exec;
}

static void replay(unsigned kind, CUgraphExec exec)
{
	float values[N];
	uint64_t sum = 1469598103934665603u;
	TRY(cuMemsetD8_v2, out, 0, BYTES);
	for (unsigned turn = 0; turn < REPLAYS; turn++) {
		for (unsigned i = 0; i < N; i++) {
			values[i] = (float)((i * 7 + turn * 5 + kind) % 31);
			staged_in[i] = unbound[i] = pageable[i] = values[i] + 1;
		}
		for (unsigned i = 0; i < 2; i++) {
			uint64_t word = 12345 + 1000 * i + turn;
			TRY(cuMemcpyHtoD_v2, drawn[i], &word, 8);
		}
		memset(staged_out, 0, BYTES);
		TRY(cuMemcpyHtoD_v2, in, values, BYTES);
		TRY(cuCtxSynchronize); /* copies from pageable memory, for which the stream does not wait */
		TRY(cuEventRecord, foreign, stream);
		TRY(cuGraphLaunch, exec, stream);
		TRY(cuEventSynchronize, engines);
		TRY(cuStreamSynchronize, stream);
		TRY(cuMemcpyDtoH_v2, values, out, BYTES);
		for (unsigned i = 0; i < BYTES; i++)
			sum = ((sum ^ ((uint8_t *)values)[i]) * 1099511628211u ^ ((uint8_t *)staged_out)[i]) *
			      1099511628211u;
	}
	if (kinds[kind].make == random_unbound) /* another number in each process */
		printf("random_unbound\n");
	else
		printf("%s %016" PRIx64 " %g\n", kinds[kind].name, sum, (double)values[N - 1]);
}

static void run(unsigned kind)
{
	void *exec = NULL;
	if (medusa_graph_get(kinds[kind].name, 1, UINT64_MAX, &exec) == MEDUSA_OK) {
		fprintf(stderr, "%s restored\n", kinds[kind].name);
		if (!strcmp(kinds[kind].name, "updated_restored"))
			update_wholly(exec, NULL);
	} else {
		fprintf(stderr, "%s live: %s\n", kinds[kind].name, medusa_reason());
		exec = live(kind);
	}
	replay(kind, exec);
}

static bool is_wanted(unsigned kind, int argc, char **argv)
{
	bool wanted = argc < 3;
	for (int i = 2; i < argc; i++)
		wanted |= !strcmp(argv[i], kinds[kind].name);
	return wanted;
}

/* Everything of the engine's own goes; what is held then is the library's. hostcuda keeps nothing for itself. */
static void tear_down(void)
{
	CUdeviceptr all[] = {in,       out,      temporary,        map_memory - map_at(), counter,
			     drawn[0], drawn[1], drawn_unbound[0], drawn_unbound[1]};
	size_t now = 0, total = 0;
	medusa_release();
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		TRY(cuMemFree_v2, all[i]);
	TRY(cuModuleUnload, module);
	TRY(cuMemGetInfo_v2, &now, &total);
	fprintf(stderr, "held=%zu\n", total - now);
}

int main(int argc, char **argv)
{
	struct md_error err = {0};
	if (argc < 2)
		return 2;
	if (md_cuda_load(&err) != MD_OK) {
		fprintf(stderr, "%s\n", err.message);
		return 1;
	}
	TRY(cuInit, 0);
	TRY(cuDevicePrimaryCtxRetain, &context, 0);
	TRY(cuCtxSetCurrent, context);
	image_path = argv[1];
	load(image_path);
	set_up();
	for (unsigned kind = 0; kind < KINDS; kind++)
		if (is_wanted(kind, argc, argv))
			run(kind);
	tear_down();
	return 0;
}
