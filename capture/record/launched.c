/* SPDX-License-Identifier: Apache-2.0 */
/* Launches: counted in per-thread tables outside of stream capture, tied to the node they made inside. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/array.h"
#include "base/map.h"
#include "base/splitmix.h"
#include "capture/capture.h"
#include "capture/record/given.h"
#include "capture/record/graphs.h"
#include "capture/record/kernels.h"
#include "capture/record/launched.h"

/* ---- counts ---- */

#define SLOTS 1024 /* a power of two; a process uses a few hundred kernels */
#define PROBES 16

struct slot {
	uint64_t func; /* 0: free */
	uint64_t epoch;
	struct md_capture_layout layout;
	_Atomic uint64_t count; /* only the owning thread adds */
};

struct table {
	struct table *next;
	struct slot slots[SLOTS];
};

static struct table *tables MD_CAPTURE_GUARDED; /* tables of all threads; a table stays when its thread ends */
static _Thread_local struct table *mine;
static uint64_t *totals MD_CAPTURE_GUARDED; /* per kernel: launches that left the tables */
static uint32_t total_count MD_CAPTURE_GUARDED;

static void add_total(uint32_t kernel, uint64_t count) MD_CAPTURE_HELD
{
	uint32_t room = total_count;
	if (!MD_ARRAY_GROW(totals, kernel, room))
		return;
	memset(totals + total_count, 0, (room - total_count) * sizeof(*totals));
	total_count = room;
	totals[kernel] += count;
}

static struct table *make_table(void)
{
	struct table *table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (table == MAP_FAILED)
		return NULL;
	md_capture_lock();
	table->next = tables;
	tables = table;
	md_capture_unlock();
	return table;
}

static struct slot *find_slot(struct table *table, uint64_t func)
{
	uint64_t hash = (func >> 4) * MD_RANDOM_STEP >> 40;
	for (unsigned i = 0; i < PROBES; i++) {
		struct slot *slot = &table->slots[(hash + i) % SLOTS];
		if (slot->func == func || !slot->func)
			return slot;
	}
	return NULL;
}

/* The parameters stay where they are for as long as the process lives. */
static struct md_capture_layout layout_of(uint32_t kernel) MD_CAPTURE_HELD
{
	const struct md_kernel *known = md_capture_kernel_get(kernel);
	return known ? (struct md_capture_layout){kernel, known->param_count, known->params}
		     : (struct md_capture_layout){.kernel = MD_NONE};
}

/* A kernel that is new in this thread, a handle that may have been reused, or a full table: worth the lock. */
static struct md_capture_layout count_slowly(struct slot *slot, CUfunction func, uint64_t epoch)
{
	struct md_capture_layout layout;
	uint32_t kernel;
	md_capture_lock();
	kernel = md_capture_kernel_find(func, NULL);
	layout = layout_of(kernel);
	if (slot && slot->func && slot->layout.kernel != kernel) {
		if (slot->layout.kernel != MD_NONE)
			add_total(slot->layout.kernel, atomic_exchange(&slot->count, 0));
		slot->func = 0;
	}
	if (!slot) {
		if (kernel != MD_NONE)
			add_total(kernel, 1);
	} else {
		if (!slot->func && kernel != MD_NONE && md_capture.writer)
			md_trace_put_launches(md_capture.writer, md_capture_next(), kernel, 1);
		slot->layout = layout;
		slot->epoch = epoch;
		slot->func = (uintptr_t)func;
		atomic_fetch_add_explicit(&slot->count, 1, memory_order_relaxed);
	}
	md_capture_unlock();
	return layout;
}

struct md_capture_layout md_capture_launch_count(CUfunction func)
{
	uint64_t epoch = atomic_load_explicit(&md_capture.epoch, memory_order_relaxed);
	struct slot *slot;
	if (!mine && !(mine = make_table()))
		return (struct md_capture_layout){.kernel = MD_NONE};
	slot = find_slot(mine, (uintptr_t)func);
	if (slot && slot->func && slot->epoch == epoch) {
		uint64_t count = atomic_load_explicit(&slot->count, memory_order_relaxed);
		atomic_store_explicit(&slot->count, count + 1, memory_order_relaxed);
		return slot->layout;
	}
	return count_slowly(slot, func, epoch);
}

void md_capture_launches_put(void)
{
	for (struct table *table = tables; table; table = table->next) {
		for (unsigned i = 0; i < SLOTS; i++) {
			struct slot *slot = &table->slots[i];
			if (slot->func && slot->layout.kernel != MD_NONE)
				add_total(slot->layout.kernel, atomic_exchange(&slot->count, 0));
		}
	}
	for (uint32_t i = 0; i < total_count; i++) {
		if (totals[i])
			md_trace_put_launches(md_capture.writer, md_capture_next(), i, totals[i]);
	}
}

/* ---- copies and sets ---- */

static struct {
	_Atomic uint64_t count, bytes;
} transfers[MD_TRANSFER_KINDS];

void md_capture_transfer_count(enum md_transfer_kind kind, uint64_t bytes)
{
	atomic_fetch_add_explicit(&transfers[kind].count, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&transfers[kind].bytes, bytes, memory_order_relaxed);
}

void md_capture_transfers_put(void)
{
	for (unsigned i = 0; i < MD_TRANSFER_KINDS; i++) {
		struct md_transfers total = {atomic_load(&transfers[i].count), atomic_load(&transfers[i].bytes)};
		if (total.count)
			md_trace_put_transfers(md_capture.writer, md_capture_next(), (enum md_transfer_kind)i, &total);
	}
}

/* ---- attributes ---- */

/* Whether the attribute's effect is recorded: in a node, in edges, or nowhere, because it concerns the launch alone. */
static bool is_known(CUlaunchAttributeID id)
{
	for (unsigned i = 0; i < MD_NODE_ATTRIBUTES; i++) {
		if (md_attribute_ids[i] == (uint32_t)id)
			return true;
	}
	return id == CU_LAUNCH_ATTRIBUTE_IGNORE || id == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY ||
	       id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION ||
	       id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT || id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT ||
	       id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE; /* refuses the graph */
}

/* ---- capturing streams and the nodes they make ---- */

static struct md_map capturing MD_CAPTURE_GUARDED; /* CUstream -> 1 */
static struct {
	struct md_map by_node; /* CUgraphNode -> struct md_capture_memo *, owned */
} memos MD_CAPTURE_GUARDED;

void md_capture_stream_begun(CUstream stream)
{
	md_capture_lock();
	if (!md_map_get(&capturing, (uintptr_t)stream, NULL) && md_map_put(&capturing, (uintptr_t)stream, 1))
		atomic_fetch_add(&md_capture.capturing, 1);
	md_capture_scratch_end(); /* the capture may allocate memory there */
	md_capture_unlock();
}

void md_capture_stream_ending(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	/* A failed call may or may not have ended the capture; the driver knows. */
	if (md_cuda.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE)
		return;
	md_capture_lock();
	if (md_map_remove(&capturing, (uintptr_t)stream, NULL))
		atomic_fetch_sub(&md_capture.capturing, 1);
	md_capture_unlock();
}

static void keep_memo(CUgraphNode node, const struct md_capture_memo *memo) MD_CAPTURE_HELD
{
	struct md_capture_memo *kept = malloc(sizeof(*kept));
	uint64_t old = 0;
	if (kept)
		*kept = *memo;
	md_map_get(&memos.by_node, (uintptr_t)node, &old);
	if (kept && md_map_put(&memos.by_node, (uintptr_t)node, (uintptr_t)kept)) {
		free((void *)(uintptr_t)old);
		return;
	}
	free(kept);
	md_capture_trouble("out of memory for a captured node");
}

static void add_attribute(struct md_capture_memo *memo, CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
	struct md_attribute attribute;
	uint32_t at = 0;
	if (!is_known(id))
		memo->strange = (uint32_t)id;
	if (id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)
		memo->updatable = value->deviceUpdatableKernelNode.deviceUpdatable != 0;
	if (!md_attribute_copy(&attribute, id, value, true))
		return;
	while (at < memo->attribute_count && memo->attributes[at].id != attribute.id)
		at++;
	if (at == MD_NODE_ATTRIBUTES)
		return;
	memo->attributes[at] = attribute;
	memo->attribute_count += at == memo->attribute_count;
}

static void note_context(struct md_capture_memo *memo, CUstream stream)
{
	CUgreenCtx green = NULL;
	if (!md_cuda.cuStreamGetCtx || md_cuda.cuStreamGetCtx(stream, &memo->context))
		memo->context = NULL;
	memo->green =
	    md_cuda.cuStreamGetGreenCtx && md_cuda.cuStreamGetGreenCtx(stream, &green) == CUDA_SUCCESS && green;
}

void md_capture_node_note(CUstream stream, const CUlaunchAttribute *attributes, unsigned count)
{
	CUgraphNode node = md_cuda_captured_node(stream);
	struct md_capture_memo memo = {.sequence = md_capture_next()};
	if (!node)
		return;
	note_context(&memo, stream);
	for (unsigned i = 0; i < count; i++)
		add_attribute(&memo, attributes[i].id, &attributes[i].value);
	md_capture_lock();
	keep_memo(node, &memo);
	md_capture_unlock();
}

void md_capture_graph_launched(CUgraphExec exec, CUstream stream)
{
	CUgraphNode node = md_cuda_captured_node(stream);
	struct md_capture_memo memo = {.sequence = md_capture_next()};
	const struct md_capture_graph *graph;
	if (!node)
		return;
	md_capture_lock();
	graph = md_capture_graph_of(exec);
	memo.opaque = graph && graph->unread;
	keep_memo(node, &memo);
	md_capture_unlock();
}

void md_capture_node_attribute(CUgraphNode node, CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
	struct md_capture_memo memo = {0};
	const struct md_capture_memo *before;
	if (id != CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION && is_known(id))
		return;
	md_capture_lock();
	before = md_capture_node_memo(node);
	if (before)
		memo = *before;
	add_attribute(&memo, id, value);
	keep_memo(node, &memo);
	md_capture_unlock();
}

/* ---- copies of graphs ---- */

static CUgraphNode *list_nodes(CUgraph graph, size_t *count)
{
	CUgraphNode *nodes;
	if (md_cuda.cuGraphGetNodes(graph, NULL, count) || !*count)
		return NULL;
	nodes = calloc(*count, sizeof(CUgraphNode));
	if (!nodes || md_cuda.cuGraphGetNodes(graph, nodes, count)) {
		free(nodes);
		return NULL;
	}
	return nodes;
}

static CUgraph child_of(CUgraphNode node)
{
	CUgraphNodeType type;
	CUgraph child = NULL;
	if (!md_cuda.cuGraphChildGraphNodeGetGraph || md_cuda.cuGraphNodeGetType(node, &type) ||
	    type != CU_GRAPH_NODE_TYPE_GRAPH || md_cuda.cuGraphChildGraphNodeGetGraph(node, &child))
		return NULL;
	return child;
}

static bool same_types(const CUgraphNode *nodes, const CUgraphNode *copies, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		CUgraphNodeType one, two;
		if (md_cuda.cuGraphNodeGetType(nodes[i], &one) || md_cuda.cuGraphNodeGetType(copies[i], &two) ||
		    one != two)
			return false;
	}
	return true;
}

static void copy_memo(CUgraphNode node, CUgraphNode copy)
{
	md_capture_lock();
	const struct md_capture_memo *memo = md_capture_node_memo(node);
	if (memo)
		keep_memo(copy, memo);
	md_capture_unlock();
}

/* A copy has its nodes in the order of the original. If it has not, nothing is recorded of them. */
void md_capture_graph_copied(CUgraph graph, CUgraph copy)
{
	size_t count = 0, copied = 0;
	CUgraphNode *nodes = list_nodes(graph, &count), *copies = list_nodes(copy, &copied);
	bool alike = nodes && copies && count == copied && same_types(nodes, copies, count);
	for (size_t i = 0; alike && i < count; i++) {
		CUgraph child = child_of(nodes[i]);
		copy_memo(nodes[i], copies[i]);
		if (child)
			md_capture_graph_copied(child, child_of(copies[i]));
	}
	free(nodes);
	free(copies);
}

void md_capture_child_added(CUgraphNode node, CUgraph graph)
{
	CUgraph child = child_of(node);
	if (child)
		md_capture_graph_copied(graph, child);
}

void md_capture_node_added(CUgraphNode node, CUcontext context)
{
	struct md_capture_memo memo = {.sequence = md_capture_next(), .context = context};
	md_capture_lock();
	keep_memo(node, &memo);
	md_capture_unlock();
}

void md_capture_node_touched(CUgraphNode node)
{
	struct md_capture_memo memo = {0};
	const struct md_capture_memo *before;
	md_capture_lock();
	before = md_capture_node_memo(node);
	if (before)
		memo = *before;
	memo.sequence = md_capture_next();
	keep_memo(node, &memo);
	md_capture_unlock();
}

/* The node keeps its own parameters, and with them the call that gave them. */
void md_capture_node_alike(CUgraphNode node, CUgraphNode from)
{
	struct md_capture_memo memo = {0};
	const struct md_capture_memo *source, *before;
	md_capture_lock();
	source = md_capture_node_memo(from);
	before = md_capture_node_memo(node);
	if (source) {
		memo = *source;
		memo.sequence = before ? before->sequence : 0;
		memo.context = before ? before->context : NULL;
		memo.green = before && before->green;
		keep_memo(node, &memo);
	}
	md_capture_unlock();
}

void md_capture_node_forget(CUgraphNode node)
{
	CUgraph child = child_of(node);
	uint64_t memo;
	if (child)
		md_capture_graph_forget(child);
	md_capture_lock();
	if (md_map_remove(&memos.by_node, (uintptr_t)node, &memo))
		free((void *)(uintptr_t)memo);
	md_capture_unlock();
}

const struct md_capture_memo *md_capture_node_memo(CUgraphNode node)
{
	uint64_t memo;
	return md_map_get(&memos.by_node, (uintptr_t)node, &memo) ? (void *)(uintptr_t)memo : NULL;
}

void md_capture_graph_forget(CUgraph graph)
{
	size_t count = 0;
	CUgraphNode *nodes = list_nodes(graph, &count);
	uint64_t memo;
	for (size_t i = 0; nodes && i < count; i++) {
		CUgraph child = child_of(nodes[i]);
		if (child)
			md_capture_graph_forget(child);
	}
	md_capture_lock();
	for (size_t i = 0; nodes && i < count; i++) {
		if (md_map_remove(&memos.by_node, (uintptr_t)nodes[i], &memo))
			free((void *)(uintptr_t)memo);
	}
	md_capture_unlock();
	free(nodes);
}
