/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's own copy of private memory, in verify mode. At a cold start it is empty, so a restored graph must do
 * without it. But bound memory may hold an address of it, as in a table of pointers, and the graph may go there. So
 * this memory holds other bytes while a restored graph is replayed.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "driver/device_pieces.h"
#include "restore/graph_state.h"
#include "restore/restore.h"
#include "restore/verify/buffers.h"
#include "restore/verify/live_graphs.h"
#include "restore/verify/live_parameters.h"
#include "restore/verify/originals.h"
#include "restore/verify/report_lines.h"

#define TURNS 3u /* comparisons with and without the parts that are suspected */

/* ---- where it lies ---- */

struct place { /* where the engine has a private allocation */
	uint64_t start;
	uint64_t low; /* least offset that a graph has */
};

/* The end of the memory at an address; 0: there is none. */
static uint64_t end_of(uint64_t address)
{
	CUdeviceptr base;
	size_t size;
	if (!md_cuda.cuMemGetAddressRange_v2)
		return UINT64_MAX;
	return md_cuda.cuMemGetAddressRange_v2(&base, &size, address) == CUDA_SUCCESS ? base + size : 0;
}

/*
 * Adds the range in pieces: in this process the allocation may be
 * smaller, with others behind it, and a copy must not go across two.
 */
static enum md_status add_part(struct md_verify_originals *o, uint32_t alloc, uint64_t from, uint64_t to,
			       struct md_error *err)
{
	for (uint64_t end; from < to; from = end) {
		end = end_of(from);
		end = end < to ? end : to;
		if (end <= from)
			return MD_OK;
		if (!MD_ARRAY_EXTEND(o->parts, o->count))
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the list of unbound memory");
		o->parts[o->count++] = (struct md_verify_original){.address = from, .size = end - from, .alloc = alloc};
	}
	return MD_OK;
}

/* Adds the unbound parts of the range. */
static enum md_status add_unbound(struct md_verify_originals *o, const struct md_restore *r, uint32_t alloc,
				  const struct place *place, struct md_error *err)
{
	uint64_t from = place->start + place->low, to = place->start + r->artifact.allocs[alloc].size;
	while (from < to) {
		uint64_t next = to, behind = to;
		pthread_mutex_lock(&md_restore_lock);
		for (uint32_t i = 0; i < r->bound_count; i++) {
			uint64_t start = r->bound[i].address, end = start + r->bound[i].size;
			if (end > from && start < next) {
				next = start > from ? start : from;
				behind = end;
			}
		}
		pthread_mutex_unlock(&md_restore_lock);
		MD_FORWARD(add_part(o, alloc, from, next, err));
		from = behind;
	}
	return MD_OK;
}

/* Finds the private allocations of a live graph by its parameters. */
static void find_places(const struct md_restore *r, const struct md_live_nodes *nodes,
			const struct md_artifact_graph *stored, struct place *places)
{
	for (uint32_t i = 0; i < stored->pointer_count; i++) {
		const struct md_pointer *pointer = &stored->pointers[i];
		const struct md_live_node *node = &nodes->items[pointer->node];
		struct place *place = &places[pointer->alloc];
		uint64_t value, offset = pointer->offset > 0 ? (uint64_t)pointer->offset : 0;
		if (r->artifact.allocs[pointer->alloc].class != MD_CLASS_PRIVATE || pointer->kind != MD_POINTER_PLAIN ||
		    pointer->at >= MD_ATTRIBUTES_AT || pointer->at > node->size ||
		    node->size - pointer->at < sizeof(value))
			continue;
		memcpy(&value, node->bytes + pointer->at, sizeof(value));
		place->low = place->start && place->low < offset ? place->low : offset;
		place->start = value - (uint64_t)pointer->offset;
	}
}

/* The graph that a cold start may get from the artifact in its place; NULL: none. */
static const struct md_artifact_graph *restorable(struct md_restore *r, const struct md_live_graph *live)
{
	const struct md_restore_graph *graph =
	    live->exec && live->label ? md_restore_find(r, live->label, live->batch) : NULL;
	return graph && graph->state != MD_GRAPH_REFUSED ? graph->stored : NULL;
}

static void find_all_places(struct md_restore *r, struct place *places) MD_REQUIRES(md_verify_table_lock)
{
	const struct md_live_graph *live;
	for (size_t i = 0; (live = md_verify_live_at(i)); i++) {
		const struct md_artifact_graph *stored = restorable(r, live);
		if (stored && live->nodes.known && live->nodes.count == stored->node_count)
			find_places(r, &live->nodes, stored, places);
	}
}

/* ---- copies ---- */

static enum md_status take_copies(struct md_verify_originals *o, struct md_device_session *device, struct md_error *err)
{
	uint64_t left = UINT64_MAX;
	o->device = device;
	for (uint32_t i = 0; i < o->count; i++) {
		struct md_verify_original *part = &o->parts[i];
		part->copy = md_device_session_take(device, part->size);
		if (part->copy)
			continue;
		left = left == UINT64_MAX ? md_verify_memory_room() : left;
		part->bytes = part->size <= left ? malloc(part->size) : NULL;
		if (!part->bytes)
			return md_error_set(err, MD_ERR_NO_MEMORY,
					    "no room for a copy of %" PRIu64
					    " bytes of unbound memory (MEDUSA_PROBE_LIMIT)",
					    part->size);
		left -= part->size;
	}
	return MD_OK;
}

enum md_status md_verify_originals_init(struct md_verify_originals *o, struct md_restore *r,
					struct md_device_session *device, struct md_error *err)
{
	*o = (struct md_verify_originals){0};
	MD_AUTO_FREE struct place *places = calloc(r->artifact.alloc_count + (size_t)1, sizeof(*places));
	if (!places)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the search of %u allocations",
				    r->artifact.alloc_count);
	find_all_places(r, places);
	for (uint32_t i = 0; i < r->artifact.alloc_count; i++)
		if (places[i].start)
			MD_FORWARD(add_unbound(o, r, i, &places[i], err));
	o->end = o->count;
	return take_copies(o, device, err);
}

void md_verify_originals_finish(struct md_verify_originals *o)
{
	for (uint32_t i = 0; i < o->count; i++)
		free(o->parts[i].bytes);
	free(o->parts);
	*o = (struct md_verify_originals){0};
}

/* ---- around a replay ---- */

/* Parts may overlap: all are saved before any is filled. */
static enum md_status save(const struct md_verify_originals *o, struct md_error *err)
{
	bool on_host = false;
	md_device_batch_begin(o->device);
	for (uint32_t i = 0; i < o->count; i++) {
		const struct md_verify_original *part = &o->parts[i];
		on_host |= !part->copy;
		MD_FORWARD(part->copy ? md_device_batch_copy(o->device, part->copy, part->address, part->size, err)
				      : md_cuda_call(err, cuMemcpyDtoHAsync_v2, part->bytes, part->address, part->size,
						     o->device->stream));
	}
	return on_host ? md_device_batch_wait(o->device, err) : md_device_batch_launch(o->device, err);
}

enum md_status md_verify_originals_fill(struct md_verify_originals *o, uint8_t value, struct md_error *err)
{
	MD_FORWARD(save(o, err));
	o->filled = true;
	for (uint32_t i = o->begin; i < o->end; i++)
		MD_FORWARD(md_cuda_call(err, cuMemsetD8Async, o->parts[i].address, value, o->parts[i].size,
					o->device->stream));
	return MD_OK;
}

static enum md_status put_part_back(const struct md_verify_original *part, CUstream stream, struct md_error *err)
{
	return part->copy ? md_cuda_call(err, cuMemcpyDtoDAsync_v2, part->address, part->copy, part->size, stream)
			  : md_cuda_call(err, cuMemcpyHtoDAsync_v2, part->address, part->bytes, part->size, stream);
}

/* The parts whose copies are on the device, in one launch. */
static enum md_status put_copies_back(const struct md_verify_originals *o, struct md_error *err)
{
	md_device_batch_begin(o->device);
	for (uint32_t i = 0; i < o->count; i++)
		if (o->parts[i].copy)
			MD_FORWARD(md_device_batch_copy(o->device, o->parts[i].address, o->parts[i].copy,
							o->parts[i].size, err));
	return md_device_batch_launch(o->device, err);
}

static void put_each_back(const struct md_verify_originals *o, bool copies, struct md_error *err)
{
	struct md_error none = {0};
	for (uint32_t i = 0; i < o->count; i++) {
		const struct md_verify_original *part = &o->parts[i];
		if ((copies || !part->copy) && put_part_back(part, o->device->stream, &none) != MD_OK)
			put_part_back(part, o->device->stream, err);
	}
}

/*
 * The engine follows addresses in this memory, so a failure must not keep the other parts from it, and each part is tried
 * again: one launch for all parts is tried first, and then each part is copied by itself.
 */
enum md_status md_verify_originals_put_back(struct md_verify_originals *o, struct md_error *err)
{
	struct md_error none = {0};
	bool filled = o->filled, together;
	o->filled = false;
	if (!filled || !o->count)
		return MD_OK;
	together = o->device->pieces && put_copies_back(o, &none) == MD_OK;
	put_each_back(o, !together, err);
	if (md_device_session_wait(o->device, &none) == MD_OK)
		return err->status;
	if (together)
		put_each_back(o, true, err);
	md_device_session_wait(o->device, err);
	return err->status;
}

/* ---- which of it matters ---- */

static bool has(const struct md_artifact_graph *stored, uint32_t alloc)
{
	for (uint32_t i = 0; i < stored->pointer_count; i++)
		if (stored->pointers[i].alloc == alloc)
			return true;
	return false;
}

/*
 * Fails the other graphs that use this memory: at a cold start the graph that follows the address would not find what
 * they leave, whether it is restored or captured live.
 */
static void fail_users(struct md_restore *r, const struct md_restore_graph *graph, uint32_t alloc, const char *reason)
    MD_REQUIRES(md_verify_table_lock)
{
	const struct md_live_graph *live;
	for (size_t i = 0; (live = md_verify_live_at(i)); i++) {
		const struct md_artifact_graph *stored = restorable(r, live);
		struct md_error why = {0};
		if (!stored || stored == graph->stored || !has(stored, alloc))
			continue;
		md_error_set(&why, MD_ERR_UNPROVABLE, "graph %s/%u, which is launched with it: %s",
			     graph->stored->label, graph->stored->batch, reason);
		md_verify_report(live->label, live->batch, MD_VERDICT_FAIL, 0, why.message);
	}
}

/*
 * Whether the comparison fails each time that these parts hold other bytes, and passes each time that they do not: a
 * graph whose replays differ by chance alone would have any part accused.
 */
static bool depends_on(struct md_verify_originals *o, uint32_t begin, uint32_t end, struct md_restore_graph *graph,
		       enum md_status (*compare)(void *user, struct md_restore_graph *graph, struct md_error *err),
		       void *user)
{
	for (unsigned turn = 0; turn < TURNS; turn++) {
		struct md_error with = {0}, without = {0};
		o->begin = begin;
		o->end = end;
		bool fails = compare(user, graph, &with) != MD_OK;
		o->begin = o->end = 0;
		if (!fails || compare(user, graph, &without) != MD_OK)
			return false;
	}
	return true;
}

void md_verify_originals_suspect(struct md_verify_originals *o, struct md_restore *r, struct md_restore_graph *graph,
				 enum md_status (*compare)(void *user, struct md_restore_graph *graph,
							   struct md_error *err),
				 void *user, struct md_error *err)
{
	bool together = o->count && depends_on(o, 0, o->count, graph, compare, user);
	for (uint32_t i = 0; together && i < o->count; i++) {
		const struct md_artifact_alloc *alloc = &r->artifact.allocs[o->parts[i].alloc];
		if (!depends_on(o, i, i + 1, graph, compare, user))
			continue;
		md_error_set(
		    err, MD_ERR_UNPROVABLE,
		    "goes to unbound memory (allocation %" PRIu32 ", %" PRIu64
		    " bytes) by an address that lies in memory, as in a table of pointers that is bound: the "
		    "engine's copy is there, and a restored graph has another; bind the memory that it leads to",
		    alloc->order, alloc->size);
		fail_users(r, graph, o->parts[i].alloc, err->message);
	}
	o->begin = 0;
	o->end = o->count;
}
