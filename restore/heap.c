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
 * page for the first time. So blocks of the same thread's heap are brought in by one call each, and held. A graph's
 * share of them is freed just before the graph is made, and the driver's objects go there. The last block is kept until
 * the end, because memory at the end of a heap would be given back to the kernel.
 */
#define BLOCK_BYTES (64u << 10) /* below malloc's mapping threshold, above its caches */
#define SLICE_BLOCKS 64u

/* One H200, driver 580, 40,052 nodes of a transformer: of the executable; and of a template, until it is destroyed. */
#define EXEC_NODE_BYTES 6900u
#define TEMPLATE_NODE_BYTES 3800u

/*
 * The part of that which this driver takes is learned. The first graph gets no memory ahead, and its page faults show
 * how much it took. After that, a graph that still has faults got too little, and one without may have got too much.
 */
#define WHOLE 256u /* as much as on that H200, which is the most */
#define FAULTS_MIN 4u

static void bring_in(uint8_t *block)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = ((uintptr_t)block + page - 1) / page * page,
		  end = ((uintptr_t)block + BLOCK_BYTES) / page * page;
	if (madvise((void *)start, end - start, MADV_POPULATE_WRITE) == 0)
		return;
	for (volatile uint8_t *at = (uint8_t *)start; (uintptr_t)at < end; at += page) /* Linux before 5.14 */
		*at = 0;
}

/* False: no memory, and the driver will say so by itself. */
static bool hold_block(struct md_heap *heap)
{
	if (!MD_ARRAY_GROW(heap->blocks, heap->count, heap->room))
		return false;
	void *block = malloc(BLOCK_BYTES);
	if (!block)
		return false;
	bring_in(block);
	heap->blocks[heap->count++] = block;
	return true;
}

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

static uint64_t faults_so_far(void)
{
	struct rusage usage;
	return getrusage(RUSAGE_THREAD, &usage) == 0 ? (uint64_t)usage.ru_minflt : 0;
}

/* Counts the page faults of this thread since the last graph got its memory as those of that graph. */
static void learn(struct md_heap *heap)
{
	uint64_t faults = faults_so_far() - heap->faults;
	uint64_t each = EXEC_NODE_BYTES + (heap->learned ? 0 : TEMPLATE_NODE_BYTES), most = WHOLE - heap->share;
	if (!heap->nodes)
		return;
	uint64_t lacked = faults * (uint64_t)sysconf(_SC_PAGESIZE) * WHOLE / (heap->nodes * each);
	if (heap->learned && faults < FAULTS_MIN)
		heap->share -= (heap->share + 31) / 32;
	else if (heap->learned)
		heap->share += (uint32_t)(lacked / 4 < most ? lacked / 4 : most);
	else
		heap->share = (uint32_t)(lacked < most ? lacked : most);
	heap->learned = true;
}

/* Memory that the graphs which are still to be made will take; templates exist one at a time. */
static uint64_t heap_wanted(const struct md_restore *r)
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

bool md_restore_heap_lacks(const struct md_restore *r)
{
	return !r->heap.full && r->heap.loose + (uint64_t)held(&r->heap) * BLOCK_BYTES < heap_wanted(r);
}

void md_restore_heap_add(struct md_restore *r)
{
	uint64_t start = md_clock_ns();
	for (uint32_t i = 0; i < SLICE_BLOCKS && !r->heap.full; i++)
		r->heap.full = !hold_block(&r->heap);
	pthread_mutex_lock(&md_restore_lock);
	r->stats.heap_ns += md_clock_ns() - start;
	pthread_mutex_unlock(&md_restore_lock);
}

/* All blocks are allocated before the first one is freed: malloc would hand that one out again. */
enum md_status md_restore_heap_take(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	struct md_heap *heap = &r->heap;
	learn(heap);
	uint64_t bytes = exec_bytes(&r->heap, graph), need = bytes + template_bytes(&r->heap, graph);
	uint64_t blocks = need > heap->loose ? (need - heap->loose + BLOCK_BYTES - 1) / BLOCK_BYTES : 0;
	(void)err;
	if (!heap->learned)
		bytes = blocks = 0;
	while (!heap->full && held(heap) < blocks + 1)
		heap->full = !hold_block(heap);
	for (; blocks > 0 && held(heap) > 1; blocks--) {
		free(heap->blocks[heap->first++]);
		heap->loose += BLOCK_BYTES;
	}
	heap->loose -= bytes < heap->loose ? bytes : heap->loose;
	heap->nodes = graph->stored->node_count;
	heap->faults = faults_so_far();
	return MD_OK;
}

void md_restore_heap_finish(struct md_heap *heap)
{
	for (; heap->first < heap->count; heap->first++)
		free(heap->blocks[heap->first]);
	free(heap->blocks);
	*heap = (struct md_heap){0};
}
