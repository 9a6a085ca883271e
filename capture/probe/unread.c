/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory beside contents that graphs were found to need. Another
 * input may make the graphs read it, so it goes to the trace.
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map.h"
#include "capture/probe/copies.h"
#include "capture/probe/poison.h"
#include "capture/probe/probe.h"
#include "capture/probe/unread.h"
#include "capture/record/constant_hashes.h"
#include "capture/record/filled.h"
#include "capture/record/graphs.h"

#define PIECE (64u << 10)      /* bytes that are saved, or skipped as zeros, as one; pieces end at multiples of it */
#define STEP (1u << 20)        /* bytes of one gap before the next gap has its turn */
#define MOST_SAVED (64u << 20) /* bytes other than zero, of all gaps and all times */
#define MOST_READ (1ull << 30) /* bytes, each time */

/* The border of a gap: needed memory, memory that a graph writes, bound memory, or the edge of an allocation. */
struct wall {
	uint64_t start, end;
	bool needed;
};

struct gap { /* between two walls, of which at least one is needed memory */
	uint64_t start, end;
	bool forward; /* the needed memory lies before the gap */
	/* filled by the engine, and a graph has its address; there may be no needed memory beside it */
	struct md_interval filled;
};

struct lists {
	struct wall *walls; /* owned */
	size_t wall_count, wall_room;
	struct gap *gaps; /* owned */
	size_t gap_count, gap_room;
	struct md_interval_index taken; /* the walls that have a length */
	struct md_map asked;            /* addresses that were looked for in what the engine has filled */
	bool failed;
};

/* Pieces that were written to the trace. */
static struct md_map put MD_CAPTURE_GUARDED; /* address of a piece and whether it was copied -> hash of what it held */
static uint64_t saved MD_CAPTURE_GUARDED;    /* bytes */

static void add_wall(struct lists *lists, uint64_t start, uint64_t end, bool needed)
{
	lists->failed |= !MD_ARRAY_GROW(lists->walls, lists->wall_count, lists->wall_room);
	if (!lists->failed)
		lists->walls[lists->wall_count++] = (struct wall){start, end, needed};
}

static void add_gap(struct lists *lists, struct gap gap)
{
	lists->failed |= !MD_ARRAY_GROW(lists->gaps, lists->gap_count, lists->gap_room);
	if (!lists->failed)
		lists->gaps[lists->gap_count++] = gap;
}

/* ---- gaps ---- */

/* Mappings side by side count as one, because a buffer may lie across them. */
static void add_edges(struct lists *lists) MD_CAPTURE_HELD
{
	const struct md_interval *items = md_capture.live.items;
	for (size_t i = 0; i < md_capture.live.count; i++) {
		uint64_t end = items[i].start + items[i].size;
		bool mapped = items[i].value == MD_ALLOC_VMM;
		if (!(mapped && i && items[i - 1].value == MD_ALLOC_VMM &&
		      items[i - 1].start + items[i - 1].size == items[i].start))
			add_wall(lists, items[i].start, items[i].start, false);
		if (!(mapped && i + 1 < md_capture.live.count && items[i + 1].value == MD_ALLOC_VMM &&
		      items[i + 1].start == end))
			add_wall(lists, end, end, false);
	}
}

static void add_index(struct lists *lists, const struct md_interval_index *index, bool needed)
{
	for (size_t i = 0; i < index->count; i++)
		add_wall(lists, index->items[i].start, index->items[i].start + index->items[i].size, needed);
}

static void add_walls(struct lists *lists) MD_CAPTURE_HELD
{
	struct md_capture_graph *graph;
	add_edges(lists);
	add_index(lists, &md_capture.binds, false);
	add_index(lists, md_capture_probe_needed(), true);
	for (size_t i = 0; (graph = md_capture_graph_at(i)); i++)
		for (uint32_t r = 0; graph->exec && r < graph->written_count; r++)
			add_wall(lists, graph->written[r].address, graph->written[r].address + graph->written[r].size,
				 false);
}

/* Of walls that begin at one address, needed memory comes first. */
static int compare_walls(const void *left, const void *right)
{
	const struct wall *a = left, *b = right;
	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return (int)b->needed - (int)a->needed;
}

static bool is_ours(uint64_t address)
{
	const struct md_interval *item = md_interval_find(&md_capture.live, address);
	unsigned family = item ? item->value & MD_FAMILY_MASK : 0;
	return item && family != MD_ALLOC_SHARED && family != MD_ALLOC_MANAGED && family != MD_ALLOC_GRAPH &&
	       family != MD_ALLOC_HOST;
}

static void find_gaps(struct lists *lists) MD_CAPTURE_HELD
{
	uint64_t reached = 0;
	bool needed = false;
	add_walls(lists);
	if (lists->wall_count)
		qsort(lists->walls, lists->wall_count, sizeof(*lists->walls), compare_walls);
	for (size_t i = 0; i < lists->wall_count; i++) {
		const struct wall *wall = &lists->walls[i];
		if (wall->start > reached && (needed || wall->needed) && is_ours(reached))
			add_gap(lists, (struct gap){reached, wall->start, needed, {0}});
		if (wall->end >= reached)
			needed = wall->needed || (wall->end == reached && needed);
		reached = wall->end > reached ? wall->end : reached;
	}
}

/* ---- what the engine has filled, at addresses that graphs have ---- */

static void list_taken(struct lists *lists)
{
	for (size_t i = 0; i < lists->wall_count; i++) {
		const struct wall *wall = &lists->walls[i];
		if (wall->end > wall->start)
			lists->failed |= !md_interval_merge(&lists->taken, wall->start, wall->end - wall->start);
	}
}

/* Adds a gap for filled memory from the address on to its end, or to a wall. */
static void ask(struct lists *lists, uint64_t address)
{
	const struct md_interval *filled = md_capture_filled_at(address), *next;
	if (!filled || md_map_get(&lists->asked, address, NULL))
		return;
	lists->failed |= !md_map_put(&lists->asked, address, 0);
	next = md_interval_after(&lists->taken, address);
	if (md_interval_find(&lists->taken, address) || !is_ours(address))
		return;
	while (filled && filled->start <= address) {
		bool walled = next && next->start <= filled->start + filled->size;
		uint64_t end = walled ? next->start : filled->start + filled->size;
		add_gap(lists, (struct gap){address, end, true, *filled});
		address = end;
		filled = walled ? NULL : md_capture_filled_at(end);
	}
}

static void ask_words(struct lists *lists, uint64_t address, const uint8_t *bytes, uint64_t size)
{
	for (uint64_t at = (8 - address % 8) % 8; at + 8 <= size; at += 8) {
		uint64_t word;
		memcpy(&word, bytes + at, 8);
		if (word)
			ask(lists, word);
	}
}

static void ask_graphs(struct lists *lists) MD_CAPTURE_HELD
{
	struct md_capture_graph *graph;
	for (size_t i = 0; (graph = md_capture_graph_at(i)); i++) {
		for (uint32_t n = 0; graph->exec && n < graph->kept.node_count; n++) {
			const struct md_node *node = &graph->kept.nodes[n];
			if (node->type == MD_NODE_KERNEL && node->params)
				ask_words(lists, 0, node->params, node->params_size);
		}
	}
}

static enum md_status ask_contents(struct md_probe_session *session, struct lists *lists,
				   struct md_error *err) MD_CAPTURE_HELD
{
	const struct md_interval_index *needed = md_capture_probe_needed();
	struct md_device_session *device = &session->device;
	for (size_t i = 0; i < needed->count; i++) {
		uint64_t start = needed->items[i].start, end = start + needed->items[i].size;
		for (uint64_t at = start, size; at < end; at += size) {
			const struct md_interval *item = md_interval_find(&md_capture.live, at);
			size = item ? item->start + item->size - at : 0;
			size = size < end - at ? size : end - at;
			size = size < MD_DEVICE_CHUNK ? size : MD_DEVICE_CHUNK;
			if (!size || !is_ours(at))
				break;
			MD_FORWARD(md_device_session_read(device, device->now, at, size, err));
			ask_words(lists, at, device->now, size);
		}
	}
	return MD_OK;
}

/* ---- their contents ---- */

static void put_piece(uint64_t address, uint64_t size, const uint8_t *bytes, const uint8_t *zeros,
		      bool copied) MD_CAPTURE_HELD
{
	bool zero = !memcmp(bytes, zeros, size);
	uint64_t hash = zero ? size : md_hash_checksum(bytes, size), before;
	if (md_map_get(&put, 2 * address + copied, &before) && before == hash)
		return;
	if (!zero && saved + size > MOST_SAVED)
		return;
	saved += zero ? 0 : size;
	if (!md_map_put(&put, 2 * address + copied, hash))
		return md_capture_trouble("out of memory for what lies beside contents of graphs");
	md_trace_put_unread(md_capture.writer, md_capture_next(), address, size, zero ? NULL : bytes, copied);
	if (copied && !zero)
		md_capture_constants_needed();
}

/* Within one allocation and one step. */
static bool is_same_throughout(const uint8_t *bytes, uint64_t size)
{
	return size < 8 || !memcmp(bytes, bytes + 4, size - 4);
}

static enum md_status put_part(struct md_probe_session *session, struct lists *lists, uint64_t address, uint64_t size,
			       const struct md_interval *filled, struct md_error *err) MD_CAPTURE_HELD
{
	struct md_device_session *device = &session->device;
	MD_FORWARD(md_device_session_read(device, device->now, address, size, err));
	for (uint64_t at = 0, part; at < size; at += part) {
		part = PIECE - (address + at) % PIECE;
		part = part < size - at ? part : size - at;
		if (!filled->size || !md_capture_filled_was_set(filled) || is_same_throughout(device->now + at, part))
			put_piece(address + at, part, device->now + at, device->zeros, filled->size != 0);
	}
	ask_words(lists, address, device->now, size); /* may add gaps */
	return MD_OK;
}

/* Drops a gap in which a kernel may have written since the engine filled it. */
static enum md_status check_filled(struct md_probe_session *session, struct gap *gap, struct md_error *err)
{
	const struct md_interval *item = md_interval_find(&md_capture.live, gap->filled.start);
	uint64_t hash = 0, bytes;
	if (!item || gap->filled.size > item->start + item->size - gap->filled.start)
		gap->start = gap->end;
	for (unsigned i = 0; gap->start < gap->end; i++) {
		uint64_t offset = md_capture_filled_window(gap->filled.size, i, &bytes);
		if (!bytes)
			break;
		MD_FORWARD(md_device_session_read(&session->device, session->device.now, gap->filled.start + offset,
						  bytes, err));
		hash = md_capture_filled_hash(hash, session->device.now, bytes);
	}
	if (!md_capture_filled_holds(&gap->filled, hash))
		gap->start = gap->end;
	return MD_OK;
}

/* Puts the next step of a gap, the one that is nearest to the needed memory. */
static enum md_status put_step(struct md_probe_session *session, struct lists *lists, size_t index, uint64_t *left,
			       struct md_error *err) MD_CAPTURE_HELD
{
	struct gap *gap = &lists->gaps[index];
	if (gap->filled.size)
		MD_FORWARD(check_filled(session, gap, err));
	if (gap->start == gap->end)
		return MD_OK;
	uint64_t first = (gap->start / STEP + 1) * STEP, last = (gap->end - 1) / STEP * STEP;
	struct gap step = *gap;

	if (gap->forward)
		gap->start = step.end = first < gap->end ? first : gap->end;
	else
		gap->end = step.start = last > gap->start ? last : gap->start;
	for (uint64_t at = step.start, size; at < step.end && *left; at += size) {
		const struct md_interval *item = md_interval_find(&md_capture.live, at);
		size = item ? item->start + item->size - at : 0;
		size = size < step.end - at ? size : step.end - at;
		if (!size)
			return MD_OK;
		*left -= size < *left ? size : *left;
		MD_FORWARD(put_part(session, lists, at, size, &step.filled, err));
	}
	return MD_OK;
}

static enum md_status put_gaps(struct md_probe_session *session, struct lists *lists,
			       struct md_error *err) MD_CAPTURE_HELD
{
	uint64_t left = MOST_READ;
	bool more = true;
	MD_FORWARD(md_cuda_call(err, cuCtxSynchronize));
	MD_FORWARD(ask_contents(session, lists, err));
	while (more && left && saved < MOST_SAVED) {
		more = false;
		for (size_t i = 0; i < lists->gap_count; i++) {
			if (lists->gaps[i].start < lists->gaps[i].end)
				MD_FORWARD(put_step(session, lists, i, &left, err));
			more |= lists->gaps[i].start < lists->gaps[i].end;
		}
	}
	return MD_OK;
}

void md_capture_unread_put(struct md_probe_session *session)
{
	struct lists lists = {0};
	struct md_error err = {0};
	if (!md_capture.options.probe || !md_capture.writer || atomic_load(&md_capture.capturing))
		return;
	find_gaps(&lists);
	list_taken(&lists);
	ask_graphs(&lists);
	if ((lists.gap_count || md_capture_probe_needed()->count) && !lists.failed) {
		enum md_status status = session->device.open ? MD_OK : md_capture_session_open(session, &err);
		if (status == MD_OK)
			status = put_gaps(session, &lists, &err);
		if (status != MD_OK)
			md_warn("memory beside the contents of graphs is not saved: %s", err.message);
	}
	if (lists.failed)
		md_capture_trouble("out of memory for what lies beside contents of graphs");
	free(lists.walls);
	free(lists.gaps);
	md_interval_finish(&lists.taken);
	md_map_finish(&lists.asked);
}
