/* SPDX-License-Identifier: Apache-2.0 */
/* What lies beside what graphs were found to need: another input may make them read it, so it goes to the trace. */
#include <stdlib.h>
#include <string.h>

#include "capture/capture_probe.h"

#define PIECE (64u << 10)      /* that is zero or not as one; pieces end at multiples of it */
#define STEP (1u << 20)        /* of one gap, before the next one has its turn */
#define MOST_SAVED (64u << 20) /* bytes that are not zero, of all gaps and times */
#define MOST_READ (1ull << 30) /* bytes, each time */

/* Where a gap ends: what is needed, what a graph writes, what is bound, the edge of an allocation. */
struct wall {
	uint64_t start, end;
	bool needed;
};

struct gap { /* between two walls, of which one is needed at least */
	uint64_t start, end;
	bool forward; /* what is needed lies before it */
};

struct lists {
	struct wall *walls; /* owned */
	size_t wall_count, wall_room;
	struct gap *gaps; /* owned */
	size_t gap_count, gap_room;
	bool failed;
};

/* What was put, under md_capture.lock. */
static struct md_map put; /* address of a piece -> hash of what it held */
static uint64_t saved;    /* bytes */

static void *grow(struct lists *lists, void *items, size_t count, size_t *room, size_t size)
{
	size_t more = *room ? 2 * *room : 256;
	void *grown = items;

	if (count < *room)
		return items;
	grown = realloc(items, more * size);
	lists->failed |= !grown;
	if (grown)
		*room = more;
	return grown ? grown : items;
}

static void add_wall(struct lists *lists, uint64_t start, uint64_t end, bool needed)
{
	lists->walls = grow(lists, lists->walls, lists->wall_count, &lists->wall_room, sizeof(*lists->walls));
	if (!lists->failed)
		lists->walls[lists->wall_count++] = (struct wall){start, end, needed};
}

static void add_gap(struct lists *lists, struct gap gap)
{
	lists->gaps = grow(lists, lists->gaps, lists->gap_count, &lists->gap_room, sizeof(*lists->gaps));
	if (!lists->failed)
		lists->gaps[lists->gap_count++] = gap;
}

/* ---- gaps ---- */

/* Mappings side by side are one, for what a kernel was handed may lie across them. */
static void add_edges(struct lists *lists)
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

static void add_walls(struct lists *lists)
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

/* Of those that begin together the needed ones come first. */
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

	return item && family != MD_ALLOC_SHARED && family != MD_ALLOC_GRAPH && family != MD_ALLOC_HOST;
}

static void find_gaps(struct lists *lists)
{
	uint64_t reached = 0;
	bool needed = false;

	add_walls(lists);
	if (lists->wall_count)
		qsort(lists->walls, lists->wall_count, sizeof(*lists->walls), compare_walls);
	for (size_t i = 0; i < lists->wall_count; i++) {
		const struct wall *wall = &lists->walls[i];
		if (wall->start > reached && (needed || wall->needed) && is_ours(reached))
			add_gap(lists, (struct gap){reached, wall->start, needed});
		if (wall->end >= reached)
			needed = wall->needed || (wall->end == reached && needed);
		reached = wall->end > reached ? wall->end : reached;
	}
}

/* ---- their contents ---- */

static void put_piece(uint64_t address, uint64_t size, const uint8_t *bytes, const uint8_t *zeros)
{
	bool zero = !memcmp(bytes, zeros, size);
	uint64_t hash = zero ? size : md_hash_checksum(bytes, size), before;

	if (md_map_get(&put, address, &before) && before == hash)
		return;
	if (!zero && saved + size > MOST_SAVED)
		return;
	saved += zero ? 0 : size;
	if (!md_map_put(&put, address, hash))
		return md_capture_trouble("out of memory for what lies beside contents of graphs");
	md_trace_put_unread(md_capture.writer, md_capture_next(), address, size, zero ? NULL : bytes);
}

/* Within one allocation and one step. */
static enum md_status put_part(struct md_probe_session *session, uint64_t address, uint64_t size, struct md_error *err)
{
	struct md_device_session *device = &session->device;

	MD_FORWARD(md_device_session_read(device, device->now, address, size, err));
	for (uint64_t at = 0, part; at < size; at += part) {
		part = PIECE - (address + at) % PIECE;
		part = part < size - at ? part : size - at;
		put_piece(address + at, part, device->now + at, device->zeros);
	}
	return MD_OK;
}

/* The step of a gap that is nearest to what is needed. */
static enum md_status put_step(struct md_probe_session *session, struct gap *gap, uint64_t *left, struct md_error *err)
{
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
		MD_FORWARD(put_part(session, at, size, err));
	}
	return MD_OK;
}

static enum md_status put_gaps(struct md_probe_session *session, struct lists *lists, struct md_error *err)
{
	uint64_t left = MOST_READ;
	bool more = true;

	MD_FORWARD(md_cuda_call(err, cuCtxSynchronize));
	while (more && left && saved < MOST_SAVED) {
		more = false;
		for (size_t i = 0; i < lists->gap_count; i++) {
			struct gap *gap = &lists->gaps[i];
			if (gap->start < gap->end)
				MD_FORWARD(put_step(session, gap, &left, err));
			more |= gap->start < gap->end;
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
	if (lists.failed)
		md_capture_trouble("out of memory for what lies beside contents of graphs");
	else if (lists.gap_count && !session->device.open && md_capture_session_open(session, &err) != MD_OK)
		md_warn("what lies beside contents of graphs is not saved: %s", err.message);
	else if (lists.gap_count && put_gaps(session, &lists, &err) != MD_OK)
		md_warn("what lies beside contents of graphs is not saved: %s", err.message);
	free(lists.walls);
	free(lists.gaps);
}
