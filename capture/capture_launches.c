/* SPDX-License-Identifier: Apache-2.0 */
/* Launches: counted in per-thread tables outside of stream capture, tied to the node they made inside. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "capture/capture.h"

/* ---- counts ---- */

#define SLOTS 1024 /* a power of two; a process uses a few hundred kernels */
#define PROBES 16

struct slot {
	uint64_t func; /* 0: free */
	uint64_t epoch;
	uint32_t kernel;
	_Atomic uint64_t count; /* only the owning thread adds */
};

struct table {
	struct table *next;
	struct slot slots[SLOTS];
};

static struct table *tables; /* of all threads, under md_capture.lock; they stay when a thread ends */
static _Thread_local struct table *mine;
static uint64_t *totals; /* per kernel, what is no longer in a table; under md_capture.lock */
static uint32_t total_count;

static void add_total(uint32_t kernel, uint64_t count)
{
	if (kernel >= total_count) {
		uint32_t capacity = kernel + 64;
		uint64_t *grown = realloc(totals, capacity * sizeof(*grown));
		if (!grown)
			return;
		memset(grown + total_count, 0, (capacity - total_count) * sizeof(*grown));
		totals = grown;
		total_count = capacity;
	}
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
	uint64_t hash = (func >> 4) * 0x9e3779b97f4a7c15ull >> 40;

	for (unsigned i = 0; i < PROBES; i++) {
		struct slot *slot = &table->slots[(hash + i) % SLOTS];
		if (slot->func == func || !slot->func)
			return slot;
	}
	return NULL;
}

/* First sight in this thread, a handle that may have been reused, or a full table: the lock is worth it. */
static void count_slowly(struct slot *slot, CUfunction func, uint64_t epoch)
{
	uint32_t kernel;

	md_capture_lock();
	kernel = md_capture_kernel_find(func, NULL);
	if (slot && slot->func && slot->kernel != kernel) {
		if (slot->kernel != MD_NONE)
			add_total(slot->kernel, atomic_exchange(&slot->count, 0));
		slot->func = 0;
	}
	if (!slot) {
		if (kernel != MD_NONE)
			add_total(kernel, 1);
	} else {
		if (!slot->func && kernel != MD_NONE && md_capture.writer)
			md_trace_put_launches(md_capture.writer, md_capture_next(), kernel, 1);
		slot->kernel = kernel;
		slot->epoch = epoch;
		slot->func = (uintptr_t)func;
		atomic_fetch_add_explicit(&slot->count, 1, memory_order_relaxed);
	}
	md_capture_unlock();
}

void md_capture_launch_count(CUfunction func)
{
	uint64_t epoch = atomic_load_explicit(&md_capture.epoch, memory_order_relaxed);
	struct slot *slot;

	if (!mine && !(mine = make_table()))
		return;
	slot = find_slot(mine, (uintptr_t)func);
	if (slot && slot->func && slot->epoch == epoch) {
		uint64_t count = atomic_load_explicit(&slot->count, memory_order_relaxed);
		atomic_store_explicit(&slot->count, count + 1, memory_order_relaxed);
	} else {
		count_slowly(slot, func, epoch);
	}
}

void md_capture_launches_put(void)
{
	for (struct table *table = tables; table; table = table->next) {
		for (unsigned i = 0; i < SLOTS; i++) {
			struct slot *slot = &table->slots[i];
			if (slot->func && slot->kernel != MD_NONE)
				add_total(slot->kernel, atomic_exchange(&slot->count, 0));
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

/* Those that a kernel node can carry, and how many bytes of the value mean something. */
const uint32_t md_capture_attribute_ids[MD_NODE_ATTRIBUTES] = {1, 2, 4, 5, 8, 9, 10, 11, 14};
static const uint8_t attribute_sizes[MD_NODE_ATTRIBUTES] = {28, 4, 12, 4, 4, 2, 4, 12, 4};

/* Two attributes are not zero by default: the domain map {0, 1}, and a carveout of -1 (which is not 0, all cache). */
static bool is_default(uint32_t id, const uint8_t *value, size_t size, bool given)
{
	static const uint8_t zero[64];

	if (id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP && value[0] == 0 && value[1] == 1)
		return true;
	if (id == CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
		return *(const int32_t *)value == -1 || (!given && *(const int32_t *)value == 0);
	return !memcmp(value, zero, size);
}

bool md_capture_attribute_copy(struct md_attribute *to, CUlaunchAttributeID id, const CUlaunchAttributeValue *value,
			       bool given)
{
	for (unsigned i = 0; i < MD_NODE_ATTRIBUTES; i++) {
		if (md_capture_attribute_ids[i] != (uint32_t)id)
			continue;
		memset(to, 0, sizeof(*to));
		to->id = (uint32_t)id;
		memcpy(to->value, value, attribute_sizes[i]);
		return !is_default(to->id, to->value, attribute_sizes[i], given);
	}
	return false;
}

/* ---- capturing streams and the nodes they make ---- */

static struct md_map capturing; /* CUstream -> 1; under md_capture.lock */
static struct {
	struct md_map by_node; /* CUgraphNode -> struct md_capture_memo *, owned */
} memos;

void md_capture_stream_begun(CUstream stream)
{
	md_capture_lock();
	if (!md_map_get(&capturing, (uintptr_t)stream, NULL) && md_map_put(&capturing, (uintptr_t)stream, 1))
		atomic_fetch_add(&md_capture.capturing, 1);
	md_capture_unlock();
}

void md_capture_stream_ending(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	/* A failed end may or may not have ended the capture; the driver knows. */
	if (md_cuda.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE)
		return;
	md_capture_lock();
	if (md_map_remove(&capturing, (uintptr_t)stream, NULL))
		atomic_fetch_sub(&md_capture.capturing, 1);
	md_capture_unlock();
}

/* The node that the last captured call added is the one and only dependency of the next. */
static CUgraphNode last_node(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	const CUgraphNode *dependencies = NULL;
	const CUgraphEdgeData *data;
	size_t count = 0;
	CUresult result;

	if (md_cuda.cuStreamGetCaptureInfo_v3)
		result = md_cuda.cuStreamGetCaptureInfo_v3(stream, &status, NULL, NULL, &dependencies, &data, &count);
	else
		result = md_cuda.cuStreamGetCaptureInfo_v2(stream, &status, NULL, NULL, &dependencies, &count);
	if (result || status != CU_STREAM_CAPTURE_STATUS_ACTIVE || count != 1)
		return NULL;
	return dependencies[0];
}

void md_capture_node_note(CUstream stream, const CUlaunchAttribute *attributes, unsigned count)
{
	CUgraphNode node = last_node(stream);
	struct md_capture_memo *memo;
	uint64_t old;

	if (!node)
		return;
	memo = calloc(1, sizeof(*memo));
	if (!memo) {
		md_capture_trouble("out of memory for a captured node");
		return;
	}
	memo->sequence = md_capture_next();
	for (unsigned i = 0; i < count && memo->attribute_count < MD_NODE_ATTRIBUTES; i++) {
		if (md_capture_attribute_copy(&memo->attributes[memo->attribute_count], attributes[i].id,
					      &attributes[i].value, true))
			memo->attribute_count++;
	}
	md_capture_lock();
	if (md_map_get(&memos.by_node, (uintptr_t)node, &old))
		free((void *)(uintptr_t)old);
	if (!md_map_put(&memos.by_node, (uintptr_t)node, (uintptr_t)memo)) {
		free(memo);
		md_capture_trouble("out of memory for a captured node");
	}
	md_capture_unlock();
}

void md_capture_node_touched(CUgraphNode node)
{
	uint64_t memo;

	md_capture_lock();
	if (md_map_get(&memos.by_node, (uintptr_t)node, &memo))
		((struct md_capture_memo *)(uintptr_t)memo)->sequence = md_capture_next();
	md_capture_unlock();
}

const struct md_capture_memo *md_capture_node_memo(CUgraphNode node)
{
	uint64_t memo;

	return md_map_get(&memos.by_node, (uintptr_t)node, &memo) ? (void *)(uintptr_t)memo : NULL;
}

void md_capture_graph_forget(CUgraph graph)
{
	CUgraphNode *nodes;
	size_t count = 0;
	uint64_t memo;

	if (md_cuda.cuGraphGetNodes(graph, NULL, &count) || !count)
		return;
	nodes = calloc(count, sizeof(CUgraphNode));
	if (!nodes || md_cuda.cuGraphGetNodes(graph, nodes, &count))
		count = 0;
	md_capture_lock();
	for (size_t i = 0; i < count; i++) {
		if (md_map_remove(&memos.by_node, (uintptr_t)nodes[i], &memo))
			free((void *)(uintptr_t)memo);
	}
	md_capture_unlock();
	free(nodes);
}
