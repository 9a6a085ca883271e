/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs at the moment they are instantiated: nodes, parameter blocks, attributes and edges, walked into the trace. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "capture/capture.h"
#include "format/artifact.h"

#define MAX_PARAMS_BYTES 65536 /* twice what any driver takes so far */

/* All under md_capture.lock. */
static struct {
	struct md_capture_graph *items;
	size_t count, capacity;
	size_t labelled;
	struct md_map by_exec; /* CUgraphExec -> index */
} graphs;

static _Thread_local uint64_t instantiated_last; /* id of this thread's last graph, 0: none */

struct walk {
	CUgraph graph;
	struct md_trace_graph out;
	CUgraphNode *nodes;
	struct md_map index;      /* CUgraphNode -> node index */
	struct md_map candidates; /* allocation start -> 1 */
	char refused[256];        /* first reason */
	bool out_of_memory;
	bool pageable; /* writes host memory that nobody registered */
};

static void refuse(struct walk *walk, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void refuse(struct walk *walk, const char *format, ...)
{
	va_list args;

	if (walk->refused[0])
		return;
	va_start(args, format);
	vsnprintf(walk->refused, sizeof(walk->refused), format, args);
	va_end(args);
}

static void *take(struct walk *walk, size_t bytes)
{
	void *block = md_arena_alloc(&walk->out.arena, bytes ? bytes : 1);

	if (!block)
		walk->out_of_memory = true;
	return block;
}

/* ---- candidates for the probe ---- */

static void add_candidate(struct walk *walk, uint64_t word)
{
	const struct md_interval *item = md_interval_find(&md_capture.live, word);

	if (item && !md_map_put(&walk->candidates, item->start, 1))
		walk->out_of_memory = true;
}

static void add_candidates(struct walk *walk, const uint8_t *params, size_t size)
{
	for (size_t at = 0; at + 8 <= size; at += 8) {
		uint64_t word;
		memcpy(&word, params + at, 8);
		add_candidate(walk, word);
	}
}

/* ---- kernel nodes ---- */

static void copy_params(struct walk *walk, uint32_t at, void **values, const struct md_kernel *kernel)
{
	struct md_node *node = &walk->out.nodes[at];
	uint32_t size = 0;

	for (uint32_t i = 0; i < kernel->param_count; i++) {
		uint64_t end = (uint64_t)kernel->params[i].offset + kernel->params[i].size;
		if (end > MAX_PARAMS_BYTES) {
			refuse(walk, "kernel %s at index %u has a parameter block of %llu bytes", kernel->name, at,
			       (unsigned long long)end);
			return;
		}
		size = end > size ? (uint32_t)end : size;
	}
	node->params = take(walk, size);
	if (!node->params)
		return;
	node->params_size = size;
	memset(node->params, 0, size);
	for (uint32_t i = 0; i < kernel->param_count; i++)
		memcpy(node->params + kernel->params[i].offset, values[i], kernel->params[i].size);
}

static void copy_extra(struct walk *walk, uint32_t at, void **extra)
{
	struct md_node *node = &walk->out.nodes[at];
	const void *buffer = NULL;
	size_t size = 0;

	for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[1];
		else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
			size = *(const size_t *)extra[1];
	}
	node->via_extra = true;
	if (!buffer || size > MAX_PARAMS_BYTES) {
		refuse(walk, "kernel node at index %u has no parameter buffer, or one of %zu bytes", at, size);
		return;
	}
	node->params = take(walk, size);
	if (!node->params)
		return;
	node->params_size = (uint32_t)size;
	memcpy(node->params, buffer, size);
}

static bool has_attribute(const struct md_attribute *list, uint32_t count, uint32_t id)
{
	for (uint32_t i = 0; i < count; i++) {
		if (list[i].id == id)
			return true;
	}
	return false;
}

/* What can be read back from the node, then what the launch gave and the node does not tell. */
static void copy_attributes(struct walk *walk, CUgraphNode handle, struct md_node *node,
			    const struct md_capture_memo *memo)
{
	struct md_attribute list[2 * MD_NODE_ATTRIBUTES];
	uint32_t count = 0;

	for (unsigned i = 0; i < MD_NODE_ATTRIBUTES; i++) {
		CUlaunchAttributeID id = (CUlaunchAttributeID)md_capture_attribute_ids[i];
		CUlaunchAttributeValue value;
		memset(&value, 0, sizeof(value));
		if (md_cuda.cuGraphKernelNodeGetAttribute(handle, id, &value) == CUDA_SUCCESS &&
		    md_capture_attribute_copy(&list[count], id, &value, false))
			count++;
	}
	for (uint32_t i = 0; memo && i < memo->attribute_count; i++) {
		if (!has_attribute(list, count, memo->attributes[i].id))
			list[count++] = memo->attributes[i];
	}
	if (!count)
		return;
	node->attributes = take(walk, count * sizeof(*list));
	if (!node->attributes)
		return;
	memcpy(node->attributes, list, count * sizeof(*list));
	node->attribute_count = count;
	for (uint32_t i = 0; i < count; i++) {
		if (list[i].id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
			add_candidates(walk, list[i].value, 8);
	}
}

static void walk_kernel(struct walk *walk, uint32_t at, const struct md_capture_memo *memo)
{
	struct md_node *node = &walk->out.nodes[at];
	CUDA_KERNEL_NODE_PARAMS params;
	const struct md_kernel *kernel;
	CUresult result;

	memset(&params, 0, sizeof(params));
	result = md_cuda.cuGraphKernelNodeGetParams_v2(walk->nodes[at], &params);
	if (result) {
		refuse(walk, "kernel node at index %u: %s", at, md_cuda_error_name(result));
		return;
	}
	node->kernel = md_capture_kernel_find_fresh(params.func, params.kern);
	kernel = md_capture_kernel_get(node->kernel);
	if (!kernel) {
		refuse(walk, "kernel node at index %u: the driver does not name its kernel", at);
		return;
	}
	memcpy(node->grid, (uint32_t[3]){params.gridDimX, params.gridDimY, params.gridDimZ}, sizeof(node->grid));
	memcpy(node->block, (uint32_t[3]){params.blockDimX, params.blockDimY, params.blockDimZ}, sizeof(node->block));
	node->shared_bytes = params.sharedMemBytes;
	if (params.extra && !params.kernelParams)
		copy_extra(walk, at, params.extra);
	else if (params.kernelParams)
		copy_params(walk, at, params.kernelParams, kernel);
	else if (kernel->param_count)
		refuse(walk, "kernel %s at index %u has no parameters to read", kernel->name, at);
	if (node->params)
		add_candidates(walk, node->params, node->params_size);
	copy_attributes(walk, walk->nodes[at], node, memo);
}

/* ---- the other nodes ---- */

static void walk_memset(struct walk *walk, uint32_t at)
{
	CUDA_MEMSET_NODE_PARAMS params;
	CUresult result;

	memset(&params, 0, sizeof(params));
	result = md_cuda.cuGraphMemsetNodeGetParams(walk->nodes[at], &params);
	if (result) {
		refuse(walk, "memset node at index %u: %s", at, md_cuda_error_name(result));
		return;
	}
	walk->out.nodes[at].memset = (struct md_memset){
	    .dst = params.dst,
	    .pitch = params.pitch,
	    .width = params.width,
	    .height = params.height,
	    .value = params.value,
	    .element_size = params.elementSize,
	};
	add_candidate(walk, params.dst);
}

static void walk_memcpy(struct walk *walk, uint32_t at)
{
	CUDA_MEMCPY3D p;
	CUresult result;

	memset(&p, 0, sizeof(p));
	result = md_cuda.cuGraphMemcpyNodeGetParams(walk->nodes[at], &p);
	if (result) {
		refuse(walk, "memcpy node at index %u: %s", at, md_cuda_error_name(result));
		return;
	}
	if (p.srcMemoryType == CU_MEMORYTYPE_ARRAY || p.dstMemoryType == CU_MEMORYTYPE_ARRAY) {
		refuse(walk, "memcpy node at index %u: an array", at);
		return;
	}
	walk->out.nodes[at].memcpy = (struct md_memcpy){
	    .src = p.srcMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)p.srcHost : p.srcDevice,
	    .dst = p.dstMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)p.dstHost : p.dstDevice,
	    .src_type = p.srcMemoryType,
	    .dst_type = p.dstMemoryType,
	    .src_x = p.srcXInBytes,
	    .src_y = p.srcY,
	    .src_z = p.srcZ,
	    .src_pitch = p.srcPitch,
	    .src_height = p.srcHeight,
	    .dst_x = p.dstXInBytes,
	    .dst_y = p.dstY,
	    .dst_z = p.dstZ,
	    .dst_pitch = p.dstPitch,
	    .dst_height = p.dstHeight,
	    .width = p.WidthInBytes,
	    .height = p.Height,
	    .depth = p.Depth,
	};
	add_candidate(walk, walk->out.nodes[at].memcpy.src);
	add_candidate(walk, walk->out.nodes[at].memcpy.dst);
	if (p.dstMemoryType == CU_MEMORYTYPE_HOST && !md_interval_find(&md_capture.live, (uintptr_t)p.dstHost))
		walk->pageable = true;
}

static const char *type_name(CUgraphNodeType type)
{
	static const char *const names[] = {"kernel",
					    "memcpy",
					    "memset",
					    "host",
					    "child graph",
					    "empty",
					    "event wait",
					    "event record",
					    "semaphore signal",
					    "semaphore wait",
					    "memory allocation",
					    "memory free",
					    "batch memory operation",
					    "conditional"};

	return (unsigned)type < sizeof(names) / sizeof(names[0]) ? names[type] : "unknown";
}

static void walk_node(struct walk *walk, uint32_t at)
{
	const struct md_capture_memo *memo = md_capture_node_memo(walk->nodes[at]);
	struct md_node *node = &walk->out.nodes[at];
	CUgraphNodeType type;
	CUresult result = md_cuda.cuGraphNodeGetType(walk->nodes[at], &type);

	node->kernel = MD_NONE;
	node->type = MD_NODE_EMPTY;
	node->sequence = memo ? memo->sequence : walk->out.sequence;
	if (result) {
		refuse(walk, "node at index %u: %s", at, md_cuda_error_name(result));
		return;
	}
	if (type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMSET || type == CU_GRAPH_NODE_TYPE_MEMCPY)
		node->type = (uint8_t)type;
	else if (type != CU_GRAPH_NODE_TYPE_EMPTY)
		refuse(walk, "%s node at index %u", type_name(type), at);
	if (type == CU_GRAPH_NODE_TYPE_KERNEL)
		walk_kernel(walk, at, memo);
	else if (type == CU_GRAPH_NODE_TYPE_MEMSET)
		walk_memset(walk, at);
	else if (type == CU_GRAPH_NODE_TYPE_MEMCPY)
		walk_memcpy(walk, at);
	/* A node that could not be read keeps its place, for the indices of edges, but says nothing it does not know.
	 */
	if (node->type == MD_NODE_KERNEL && node->kernel == MD_NONE)
		node->type = MD_NODE_EMPTY;
}

static CUresult get_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *count)
{
	if (md_cuda.cuGraphGetEdges_v2)
		return md_cuda.cuGraphGetEdges_v2(graph, from, to, data, count);
	return md_cuda.cuGraphGetEdges(graph, from, to, count);
}

static void walk_edges(struct walk *walk)
{
	size_t count = 0;
	CUresult result = get_edges(walk->graph, NULL, NULL, NULL, &count);
	CUgraphNode *ends = count ? take(walk, 2 * count * sizeof(CUgraphNode)) : NULL;
	CUgraphEdgeData *data = count ? take(walk, count * sizeof(*data)) : NULL;

	walk->out.edges = count ? take(walk, count * sizeof(*walk->out.edges)) : NULL;
	if (count && (!ends || !data || !walk->out.edges))
		return;
	if (count) {
		memset(data, 0, count * sizeof(*data));
		result = get_edges(walk->graph, ends, ends + count, data, &count);
	}
	if (result) {
		refuse(walk, "edges: %s", md_cuda_error_name(result));
		return;
	}
	for (size_t i = 0; i < count; i++) {
		uint64_t from, to;
		if (!md_map_get(&walk->index, (uintptr_t)ends[i], &from) ||
		    !md_map_get(&walk->index, (uintptr_t)ends[count + i], &to)) {
			refuse(walk, "edge %zu: its nodes are not in the graph", i);
			continue;
		}
		walk->out.edges[walk->out.edge_count++] = (struct md_edge){
		    (uint32_t)from, (uint32_t)to, data[i].from_port, data[i].to_port, data[i].type,
		};
	}
}

static void walk_graph(struct walk *walk)
{
	size_t count = 0;
	CUresult result = md_cuda.cuGraphGetNodes(walk->graph, NULL, &count);

	if (result || count > UINT32_MAX / 2) {
		refuse(walk, "nodes: %s", md_cuda_error_name(result));
		return;
	}
	walk->nodes = take(walk, count * sizeof(CUgraphNode));
	walk->out.nodes = take(walk, count * sizeof(*walk->out.nodes));
	if (!walk->nodes || !walk->out.nodes)
		return;
	result = count ? md_cuda.cuGraphGetNodes(walk->graph, walk->nodes, &count) : CUDA_SUCCESS;
	if (result) {
		refuse(walk, "nodes: %s", md_cuda_error_name(result));
		return;
	}
	memset(walk->out.nodes, 0, count * sizeof(*walk->out.nodes));
	walk->out.node_count = (uint32_t)count;
	for (uint32_t i = 0; i < count; i++) {
		walk->out_of_memory |= !md_map_put(&walk->index, (uintptr_t)walk->nodes[i], i);
		walk_node(walk, i);
	}
	walk_edges(walk);
}

/* ---- the recorded graphs ---- */

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static bool remember(struct walk *walk, CUgraphExec exec)
{
	struct md_capture_graph *graph;
	size_t cursor = 0;
	uint64_t key, value;

	if (graphs.count == graphs.capacity) {
		size_t capacity = graphs.capacity ? 2 * graphs.capacity : 16;
		graph = realloc(graphs.items, capacity * sizeof(*graph));
		if (!graph)
			return false;
		graphs.items = graph;
		graphs.capacity = capacity;
	}
	graph = &graphs.items[graphs.count];
	*graph = (struct md_capture_graph){
	    .id = walk->out.id, .exec = exec, .refused = walk->refused[0] != 0, .pageable = walk->pageable};
	md_cuda.cuCtxGetCurrent(&graph->context);
	graph->candidates = calloc(walk->candidates.used + 1, sizeof(uint64_t));
	if (!graph->candidates || !md_map_put(&graphs.by_exec, (uintptr_t)exec, graphs.count)) {
		free(graph->candidates);
		return false;
	}
	while (md_map_next(&walk->candidates, &cursor, &key, &value))
		graph->candidates[graph->candidate_count++] = key;
	qsort(graph->candidates, graph->candidate_count, sizeof(uint64_t), compare_u64);
	graphs.count++;
	instantiated_last = graph->id;
	return true;
}

static void note_free_memory(void)
{
	size_t free_bytes, total;

	if (md_cuda.cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS)
		md_capture.free_after_instantiate = free_bytes;
}

void md_capture_graph_instantiated(CUgraph graph, CUgraphExec exec, uint64_t flags)
{
	struct walk walk = {.graph = graph};

	md_capture_lock();
	if (md_capture.writer) {
		walk.out.id = graphs.count + 1;
		walk.out.sequence = md_capture_next();
		walk.out.instantiate_flags = flags;
		walk_graph(&walk);
		walk.out.refused = walk.refused[0] ? walk.refused : NULL;
		if (walk.out_of_memory || !remember(&walk, exec))
			md_capture_trouble("out of memory at graph %zu", graphs.count);
		else
			md_trace_put_graph(md_capture.writer, walk.out.sequence, &walk.out);
		note_free_memory();
	}
	md_capture_unlock();
	md_map_finish(&walk.index);
	md_map_finish(&walk.candidates);
	md_arena_free(&walk.out.arena);
}

/*
 * What was recorded is no longer what is launched. A probe that failed says so to the analysis, which refuses the graph
 * by that reason.
 */
void md_capture_exec_updated(CUgraphExec exec, const char *call)
{
	struct md_capture_graph *graph;
	char why[128];

	snprintf(why, sizeof(why), "updated after instantiation (%s)", call);
	md_capture_lock();
	graph = md_capture_graph_of(exec);
	if (graph && !graph->refused && md_capture.writer) {
		md_trace_put_probe(md_capture.writer, md_capture_next(), graph->id, MD_PROBE_FAILED, why);
		graph->refused = graph->probed = true;
	}
	md_capture_unlock();
}

/* Its number stays taken, for others are found by theirs. */
static void forget(struct md_capture_graph *graph)
{
	graph->exec = NULL;
	free(md_steal_ptr(&graph->candidates));
	free(md_steal_ptr(&graph->outputs));
	graph->candidate_count = graph->output_count = 0;
}

void md_capture_exec_destroyed(CUgraphExec exec)
{
	struct md_capture_graph *graph;

	md_capture_lock();
	graph = md_capture_graph_of(exec);
	if (graph)
		forget(graph);
	md_map_remove(&graphs.by_exec, (uintptr_t)exec, NULL);
	md_capture_unlock();
}

struct md_capture_graph *md_capture_graph_of(CUgraphExec exec)
{
	uint64_t index;

	return md_map_get(&graphs.by_exec, (uintptr_t)exec, &index) ? &graphs.items[index] : NULL;
}

struct md_capture_graph *md_capture_graph_meant(CUgraphExec exec)
{
	struct md_capture_graph *last;

	if (exec)
		return md_capture_graph_of(exec);
	last = instantiated_last ? md_capture_graph_at(instantiated_last - 1) : NULL;
	return last && last->exec ? last : NULL;
}

struct md_capture_graph *md_capture_graph_at(size_t index)
{
	return index < graphs.count ? &graphs.items[index] : NULL;
}

size_t md_capture_graphs_labelled(void)
{
	return graphs.labelled;
}

size_t md_capture_graphs_recorded(void)
{
	return graphs.count;
}

/* ---- what is said of them ---- */

void md_capture_graph_label(struct md_capture_graph *graph, const char *label, unsigned batch)
{
	md_trace_put_label(md_capture.writer, md_capture_next(), graph->id, label, batch);
	graphs.labelled += !graph->labelled;
	graph->labelled = true;
}

static bool keep_output(struct md_capture_graph *graph, struct md_capture_output output)
{
	struct md_capture_output *grown;

	for (size_t i = 0; i < graph->output_count; i++) {
		if (graph->outputs[i].index == output.index) {
			graph->outputs[i] = output;
			return true;
		}
	}
	grown = realloc(graph->outputs, (graph->output_count + 1) * sizeof(*grown));
	if (!grown)
		return false;
	grown[graph->output_count++] = output;
	graph->outputs = grown;
	return true;
}

/* The engine reads it, so its allocation takes part in the probe even if no parameter points into it. */
static bool keep_candidate(struct md_capture_graph *graph, uint64_t start)
{
	uint64_t *grown;
	size_t at = 0;

	while (at < graph->candidate_count && graph->candidates[at] < start)
		at++;
	if (at < graph->candidate_count && graph->candidates[at] == start)
		return true;
	grown = realloc(graph->candidates, (graph->candidate_count + 1) * sizeof(*grown));
	if (!grown)
		return false;
	memmove(grown + at + 1, grown + at, (graph->candidate_count - at) * sizeof(*grown));
	grown[at] = start;
	graph->candidates = grown;
	graph->candidate_count++;
	return true;
}

bool md_capture_graph_output(struct md_capture_graph *graph, struct md_capture_output output)
{
	const struct md_interval *item = md_interval_floor(&md_capture.live, output.address + output.size - 1);

	/* mapped memory may lie in several allocations, one behind the other */
	for (; item && item->start + item->size > output.address; item--) {
		if (!keep_candidate(graph, item->start))
			return false;
		if (item == md_capture.live.items)
			break;
	}
	if (!keep_output(graph, output))
		return false;
	md_trace_put_output(md_capture.writer, md_capture_next(), graph->id, output.index, output.address, output.size);
	return true;
}

void md_capture_graph_note(struct md_capture_graph *graph, const void *data, size_t bytes)
{
	md_trace_put_note(md_capture.writer, md_capture_next(), graph->id, data, bytes);
}

void md_capture_graph_refuse(struct md_capture_graph *graph, const char *why)
{
	md_trace_put_refusal(md_capture.writer, md_capture_next(), graph->id, why);
	graph->refused = true;
}
