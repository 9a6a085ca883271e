/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses that kernels outside of graphs are given, in unbound memory that a graph uses. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map.h"
#include "capture/capture.h"
#include "capture/record/given.h"
#include "capture/record/graphs.h"
#include "capture/record/launched.h"
#include "capture/record/module_variables.h"
#include "capture/record/touched.h"

#define MOST 65536 /* pairs of kernel and address; later ones count for a whole allocation */
#define WORDS 64   /* words of one launch that are looked up under one lock */

/*
 * A kernel was launched with this address in a parameter. size 0: the address
 * alone; else a whole allocation, which any kernel may have been given.
 */
struct given {
	uint32_t kernel, offset; /* of the word, in the parameters */
	uint64_t address, size;
	uint64_t scratch; /* number of the engine's statement about that memory, see scratch_now; 0: none */
	uint64_t last;    /* sequence of the last time */
};

/* An address in the parameters of a launch. */
struct word {
	uint64_t value;
	uint32_t offset;
};

/* Hooks look at these without the lock: no word outside of [lowest, highest) is an address that counts. */
static atomic_bool watching;
static _Atomic uint64_t lowest = UINT64_MAX, highest;

static struct md_map watched MD_CAPTURE_GUARDED; /* starts of allocations in which graphs have unbound addresses */
static struct given *list MD_CAPTURE_GUARDED;
static size_t list_count MD_CAPTURE_GUARDED, list_room MD_CAPTURE_GUARDED;
static struct md_map by_key MD_CAPTURE_GUARDED;
static uint64_t generation MD_CAPTURE_GUARDED;              /* counts frees: an address may come again */
static struct md_interval_index scratch MD_CAPTURE_GUARDED; /* memory that only graphs use, as the engine states */
/* The number of the engine's last statement about scratch memory, so that no launch counts for a later statement. */
static uint64_t scratch_now MD_CAPTURE_GUARDED = 1;
static bool scratch_met MD_CAPTURE_GUARDED; /* a launch was counted under that number */

/* ---- what is looked for ---- */

void md_capture_given_watch_range(uint64_t start, uint64_t size)
{
	if (start < atomic_load(&lowest))
		atomic_store(&lowest, start);
	if (start + size > atomic_load(&highest))
		atomic_store(&highest, start + size);
	atomic_store(&watching, true);
}

void md_capture_given_watch(uint64_t start)
{
	const struct md_interval *item = md_interval_find(&md_capture.live, start);
	if (!item || md_map_get(&watched, item->start, NULL))
		return;
	if (!md_map_put(&watched, item->start, 1))
		return md_capture_trouble("out of memory for the memory of graphs");
	md_capture_given_watch_range(item->start, item->size);
}

void md_capture_given_watch_words(const uint8_t *bytes, size_t size)
{
	for (size_t at = 0; at + 8 <= size; at += 8) {
		uint64_t word;
		memcpy(&word, bytes + at, 8);
		const struct md_interval *item = md_interval_find(&md_capture.live, word);
		if (!item || md_interval_find(&md_capture.binds, word))
			continue;
		md_capture_given_watch(item->start);
		md_capture_touched_watch(&item->start, 1);
	}
}

void md_capture_given_freed(uint64_t start)
{
	generation += md_map_get(&watched, start, NULL);
}

/* ---- memory that only graphs use ---- */

static void scratch_change(void) MD_CAPTURE_HELD
{
	scratch_now += scratch_met;
	scratch_met = false;
}

void md_capture_scratch(uint64_t address, uint64_t bytes)
{
	scratch_change();
	if (md_interval_merge(&scratch, address, bytes))
		md_trace_put_scratch(md_capture.writer, md_capture_next(), address, bytes);
	else
		md_capture_trouble("out of memory for scratch memory of graphs");
}

void md_capture_scratch_end(void)
{
	if (!scratch.count)
		return;
	scratch_change();
	md_interval_finish(&scratch);
	md_interval_init(&scratch);
	if (md_capture.writer)
		md_trace_put_scratch(md_capture.writer, md_capture_next(), 0, 0);
}

/* ---- what is found ---- */

static void keep(struct given given) MD_CAPTURE_HELD
{
	uint64_t key[6] = {given.kernel, given.offset, given.address, given.size, given.scratch, generation}, at;
	uint64_t hash = md_hash_checksum(key, sizeof(key));
	if (md_map_get(&by_key, hash, &at)) {
		list[at].last = given.last;
		return;
	}
	if (!MD_ARRAY_GROW(list, list_count, list_room) || !md_map_put(&by_key, hash, list_count))
		return md_capture_trouble("out of memory for what kernels are given");
	list[list_count++] = given;
}

static void keep_whole(uint64_t start, uint64_t size) MD_CAPTURE_HELD
{
	keep((struct given){MD_NONE, MD_NONE, start, size, 0, md_capture_next()});
}

static void look_up(uint32_t kernel, struct word word) MD_CAPTURE_HELD
{
	const struct md_interval *item = md_interval_find(&md_capture.live, word.value);
	bool said = md_interval_find(&scratch, word.value) != NULL;
	if (item && item->value == MD_ALLOC_GLOBAL)
		md_capture_variable_used(word.value);
	if (!item || !md_map_get(&watched, item->start, NULL) || md_interval_find(&md_capture.binds, word.value))
		return;
	scratch_met |= said;
	if (list_count < MOST)
		keep((struct given){kernel, word.offset, word.value, 0, said ? scratch_now : 0, md_capture_next()});
	else
		keep_whole(item->start, item->size);
}

/* The parameters of the launch are not known: it may have been given any address. */
static void keep_everything(void)
{
	size_t cursor = 0;
	uint64_t start, value;
	md_capture_lock();
	while (md_capture.writer && md_map_next(&watched, &cursor, &start, &value)) {
		const struct md_interval *item = md_interval_find(&md_capture.live, start);
		if (item && item->start == start)
			keep_whole(start, item->size);
	}
	md_capture_unlock();
}

/* ---- the words of one launch ---- */

struct scan {
	uint32_t kernel, count;
	uint64_t low, high;
	struct word words[WORDS];
};

static void flush(struct scan *scan)
{
	if (!scan->count)
		return;
	md_capture_lock();
	for (uint32_t i = 0; md_capture.writer && i < scan->count; i++)
		look_up(scan->kernel, scan->words[i]);
	md_capture_unlock();
	scan->count = 0;
}

/* Scans bytes at `offset` of the parameter block for addresses, which lie in whole words of the block. */
static void scan_bytes(struct scan *scan, const uint8_t *bytes, size_t size, size_t offset)
{
	for (size_t at = -offset & 7; at + 8 <= size; at += 8) {
		uint64_t word;
		memcpy(&word, bytes + at, 8);
		if (word < scan->low || word >= scan->high)
			continue;
		if (scan->count == WORDS)
			flush(scan);
		scan->words[scan->count++] = (struct word){word, (uint32_t)(offset + at)};
	}
}

static void scan_extra(struct scan *scan, void **extra)
{
	size_t size;
	const uint8_t *block = md_cuda_extra_block(extra, &size);
	if (block)
		scan_bytes(scan, block, size, 0);
}

void md_capture_given(struct md_capture_layout layout, void **params, void **extra)
{
	struct scan scan;
	if (!atomic_load_explicit(&watching, memory_order_relaxed))
		return;
	if (layout.kernel == MD_NONE)
		return keep_everything();
	scan.kernel = layout.kernel;
	scan.count = 0;
	scan.low = atomic_load_explicit(&lowest, memory_order_relaxed);
	scan.high = atomic_load_explicit(&highest, memory_order_relaxed);
	for (uint32_t i = 0; params && i < layout.param_count; i++)
		scan_bytes(&scan, params[i], layout.params[i].size, layout.params[i].offset);
	if (!params && extra)
		scan_extra(&scan, extra);
	flush(&scan);
}

/* ---- to the trace ---- */

/*
 * Launches before this sequence are warm-up. A cold start makes no graph, so it does not launch what a live start
 * launches between the captures of its graphs, before any graph is launched.
 */
uint64_t md_capture_warm_until(void)
{
	bool labelled = md_capture_graphs_labelled() > 0;
	const struct md_capture_graph *graph;
	uint64_t launched = UINT64_MAX, made = 0;
	for (size_t i = 0; (graph = md_capture_graph_at(i)); i++) {
		if (labelled && !graph->labelled)
			continue;
		made = graph->made > made ? graph->made : made;
		if (graph->launched && graph->launched < launched)
			launched = graph->launched;
	}
	return launched < made ? launched : made;
}

void md_capture_given_put(void)
{
	uint64_t from = md_capture_warm_until();
	for (size_t i = 0; i < list_count; i++) {
		const struct md_trace_given given = {.kernel = list[i].kernel,
						     .address = list[i].address,
						     .size = list[i].size,
						     .offset = list[i].offset,
						     .scratch = list[i].scratch != 0};
		if (list[i].last > from)
			md_trace_put_given(md_capture.writer, list[i].last, &given);
	}
	if (list_count >= MOST)
		md_warn("kernels outside of graphs were given more than %d addresses in unbound memory of graphs; from "
			"now on they count as using all of each such allocation",
			MOST);
}
