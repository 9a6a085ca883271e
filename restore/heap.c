/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that the driver will want for executable graphs, taken from the kernel before it is wanted. */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "restore/heap.h"
#include "restore/restore.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/*
 * Page faults take half the time of an instantiation: the driver allocates thousands of small objects and touches each
 * page for the first time. So blocks of the same thread's heap are brought in, many by one call, and held. A graph's
 * share of them is freed just before the graph is made, and the driver's objects go there. The last block is kept until
 * the end, because memory at the end of a heap would be given back to the kernel.
 */
#define BLOCK_BYTES (64u << 10) /* below malloc's mapping threshold, above its caches */
#define SLICE_BLOCKS 64u
#define GAP_MAX 64u /* what malloc keeps between two blocks that lie side by side */

/* One H200, driver 580, 40,052 nodes of a transformer: of the executable; and of a template, until it is destroyed. */
#define EXEC_NODE_BYTES 6900u
#define TEMPLATE_NODE_BYTES 3800u

/*
 * The part of that which this driver takes is learned. The first graphs get no memory ahead, and their page faults show
 * how much they took. After that, graphs that still have faults got too little, and those without may have got too much.
 * One graph of a few nodes takes less than a page or two, which show nothing, so such graphs are looked at together.
 */
#define WHOLE 256u /* as much as on that H200, which is the most */
#define FAULTS_MIN 4u
#define LOOK_NODES 256u

static uint64_t faults_so_far(void)
{
	struct rusage usage;
	return getrusage(RUSAGE_THREAD, &usage) == 0 ? (uint64_t)usage.ru_minflt : 0;
}

/* ---- bringing in ---- */

/*
 * In pages of the usual size: a machine may be virtual, and get memory from its host when it is touched first. Then a huge
 * page takes as long as the small ones in it, whether or not all of them are wanted.
 */
static void bring_in(uintptr_t start, uintptr_t end)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	start = (start + page - 1) / page * page;
	end = end / page * page;
	if (start >= end || madvise((void *)start, end - start, MADV_POPULATE_WRITE) == 0)
		return;
	for (volatile uint8_t *at = (uint8_t *)start; (uintptr_t)at < end; at += page) /* Linux before 5.14 */
		*at = 0;
}

static uintptr_t end_of(const uint8_t *block)
{
	return (uintptr_t)block + BLOCK_BYTES;
}

/* The pages are malloc's, which writes before and behind its blocks, so nobody else's memory is between two of them. */
static bool is_beside(const uint8_t *block, const uint8_t *next)
{
	return (uintptr_t)next >= end_of(block) && (uintptr_t)next - end_of(block) <= GAP_MAX;
}

/* Brings in the blocks from `from` on, those side by side by one call. */
static void bring_in_blocks(const struct md_heap *heap, uint32_t from)
{
	for (uint32_t last; from < heap->count; from = last + 1) {
		uint8_t **blocks = (uint8_t **)heap->blocks;
		for (last = from; last + 1 < heap->count && is_beside(blocks[last], blocks[last + 1]);)
			last++;
		bring_in((uintptr_t)blocks[from], end_of(blocks[last]));
	}
}

/* False: no memory, and the driver will say so by itself. */
static bool hold_block(struct md_heap *heap)
{
	void *block = MD_ARRAY_GROW(heap->blocks, heap->count, heap->room) ? malloc(BLOCK_BYTES) : NULL;
	if (!block)
		return false;
	heap->blocks[heap->count++] = block;
	return true;
}

static void hold_slice(struct md_heap *heap, uint64_t blocks)
{
	uint64_t faults = faults_so_far();
	uint32_t from = heap->count;
	for (uint64_t i = 0; !heap->full && i < blocks; i++)
		heap->full = !hold_block(heap);
	bring_in_blocks(heap, from);
	heap->faults += faults_so_far() - faults;
}

/* ---- how much ---- */

static uint32_t held(const struct md_heap *heap)
{
	return heap->count - heap->first;
}

static uint64_t share_of(const struct md_heap *heap)
{
	return heap->learned ? heap->share : WHOLE;
}

static uint64_t exec_bytes(const struct md_heap *heap, const struct md_restore_graph *graph)
{
	return graph->stored->node_count * EXEC_NODE_BYTES * share_of(heap) / WHOLE;
}

static uint64_t template_bytes(const struct md_heap *heap, const struct md_restore_graph *graph)
{
	return graph->stored->node_count * TEMPLATE_NODE_BYTES * share_of(heap) / WHOLE;
}

/* Counts the page faults of this thread since the last look as those of the graphs that were made since. */
static void learn(struct md_heap *heap)
{
	if (heap->nodes < LOOK_NODES)
		return;
	uint64_t faults = faults_so_far() - heap->faults;
	uint64_t lacked = faults * (uint64_t)sysconf(_SC_PAGESIZE) * WHOLE / heap->whole;
	uint64_t rise = lacked / 4 < heap->share / 2 + 8 ? lacked / 4 : heap->share / 2 + 8;
	if (heap->learned && faults < FAULTS_MIN)
		heap->share -= (heap->share + 31) / 32;
	else
		heap->share +=
		    (uint32_t)(heap->learned ? rise : lacked); /* a table that the driver enlarges takes much once */
	heap->share = heap->share < WHOLE ? heap->share : WHOLE;
	heap->learned = true;
	heap->nodes = heap->whole = 0;
}

/* Notes that the graph is made now. Templates exist one at a time, and only the first look finds one without memory. */
static void note_graph(struct md_heap *heap, const struct md_restore_graph *graph)
{
	uint64_t nodes = graph->stored->node_count;
	if (!heap->nodes)
		heap->faults = faults_so_far();
	if (!heap->nodes && !heap->learned)
		heap->whole = nodes * TEMPLATE_NODE_BYTES;
	heap->nodes += nodes;
	heap->whole += nodes * EXEC_NODE_BYTES;
}

/* Memory that the graphs which are still to be made will take; templates exist one at a time. */
static uint64_t heap_wanted(const struct md_restore *r) MD_REQUIRES(md_restore_lock)
{
	uint64_t bytes = 0, most = 0;
	for (uint32_t i = 0; i < r->artifact.graph_count; i++) {
		const struct md_restore_graph *graph = &r->graphs[i];
		if (graph->state != MD_GRAPH_WAITING)
			continue;
		bytes += exec_bytes(&r->heap, graph);
		most = template_bytes(&r->heap, graph) > most ? template_bytes(&r->heap, graph) : most;
	}
	return bytes + most;
}

static uint64_t heap_lacking(const struct md_restore *r) MD_REQUIRES(md_restore_lock)
{
	uint64_t wanted = heap_wanted(r), there = r->heap.loose + (uint64_t)held(&r->heap) * BLOCK_BYTES;
	return wanted > there ? (wanted - there + BLOCK_BYTES - 1) / BLOCK_BYTES : 0;
}

bool md_restore_heap_lacks(const struct md_restore *r)
{
	return !r->heap.full && heap_lacking(r);
}

/* At least so many blocks; if later graphs want more, a slice. */
static void add_slice(struct md_restore *r, uint64_t least)
{
	pthread_mutex_lock(&md_restore_lock);
	uint64_t lacking = heap_lacking(r);
	pthread_mutex_unlock(&md_restore_lock);
	uint64_t slice = lacking < SLICE_BLOCKS ? lacking : SLICE_BLOCKS;
	hold_slice(&r->heap, slice > least ? slice : least);
}

void md_restore_heap_add(struct md_restore *r)
{
	uint64_t start = md_clock_ns();
	add_slice(r, 1);
	pthread_mutex_lock(&md_restore_lock);
	r->stats.heap_ns += md_clock_ns() - start;
	pthread_mutex_unlock(&md_restore_lock);
}

/* All blocks are allocated before the first one is freed: malloc would hand that one out again. */
enum md_status md_restore_heap_take(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	struct md_heap *heap = &r->heap;
	learn(heap);
	uint64_t bytes = exec_bytes(heap, graph), need = bytes + template_bytes(heap, graph);
	uint64_t blocks = need > heap->loose ? (need - heap->loose + BLOCK_BYTES - 1) / BLOCK_BYTES : 0;
	(void)err;
	if (!heap->learned)
		bytes = blocks = 0;
	if (!heap->full && blocks && held(heap) < blocks + 1)
		add_slice(r, blocks + 1 - held(heap));
	for (; blocks > 0 && held(heap) > 1; blocks--) {
		free(heap->blocks[heap->first++]);
		heap->loose += BLOCK_BYTES;
	}
	heap->loose -= bytes < heap->loose ? bytes : heap->loose;
	note_graph(heap, graph);
	return MD_OK;
}

void md_restore_heap_finish(struct md_heap *heap)
{
	for (; heap->first < heap->count; heap->first++)
		free(heap->blocks[heap->first]);
	free(heap->blocks);
	*heap = (struct md_heap){0};
}
