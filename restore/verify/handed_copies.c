/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory through which the graphs of a group hand values on, in verify mode. It is unbound state: the engine has one
 * copy and Medusa another. Before each replay both copies hold the bytes that the engine's held when the comparison
 * began; after it they must be equal. So each graph is shown to make equal memory from equal memory, whatever came
 * before, and so does any sequence of the group's graphs.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "driver/device_hash.h"
#include "driver/device_pieces.h"
#include "restore/bindings.h"
#include "restore/graph_state.h"
#include "restore/groups.h"
#include "restore/restore.h"
#include "restore/verify/handed_copies.h"
#include "restore/verify/live_graphs.h"
#include "restore/verify/live_parameters.h"

/* ---- where it lies ---- */

/* All graphs of the group must have the memory at one place, as the restored ones do. */
static enum md_status check_others(const struct md_live_graph *live, struct md_restore *r,
				   const struct md_restore_graph *graph, uint32_t alloc, uint64_t start,
				   struct md_error *err) MD_REQUIRES(md_verify_table_lock)
{
	const struct md_live_graph *other;
	for (size_t i = 0; (other = md_verify_live_at(i)); i++) {
		const struct md_restore_graph *twin = other != live && other->exec && other->label
							  ? md_restore_find(r, other->label, other->batch)
							  : NULL;
		struct md_error ignored = {0};
		uint64_t there;
		if (!twin || twin->stored->group != graph->stored->group ||
		    md_verify_nodes_find(&other->nodes, twin->stored, alloc, &there, &ignored) != MD_OK ||
		    there == start)
			continue;
		return md_error_set(err, MD_ERR_MISMATCH,
				    "it passes values to or from graph %s/%u in unbound memory, and in this process "
				    "the two do not use the same memory",
				    other->label, other->batch);
	}
	return MD_OK;
}

static enum md_status find_part(const struct md_live_graph *live, struct md_restore *r,
				const struct md_restore_graph *graph, struct md_verify_part *part, struct md_error *err)
    MD_REQUIRES(md_verify_table_lock)
{
	uint64_t start = 0;
	MD_FORWARD(md_verify_nodes_find(&live->nodes, graph->stored, part->stored->alloc, &start, err));
	MD_FORWARD(check_others(live, r, graph, part->stored->alloc, start, err));
	part->live = start + part->stored->offset;
	return MD_OK;
}

enum md_status md_verify_handed_init(struct md_verify_handed *handed, struct md_restore *r,
				     const struct md_restore_graph *graph, const struct md_live_graph *live,
				     struct md_error *err)
{
	const struct md_artifact_graph *stored = graph->stored;
	handed->parts = calloc(stored->handed_count + (size_t)1, sizeof(*handed->parts));
	if (!handed->parts)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u parts of memory",
				    stored->handed_count);
	for (uint32_t i = 0; i < stored->handed_count; i++) {
		handed->parts[handed->count++].stored = &stored->handed[i];
		MD_FORWARD(find_part(live, r, graph, &handed->parts[i], err));
	}
	return MD_OK;
}

void md_verify_handed_finish(struct md_verify_handed *handed)
{
	for (uint32_t i = 0; i < handed->count; i++)
		free(handed->parts[i].before);
	free(handed->parts);
	*handed = (struct md_verify_handed){0};
}

/* ---- what it holds ---- */

static uint64_t grains_of(const struct md_verify_part *part)
{
	return part->stored->size / MD_DEVICE_GRAIN + (part->stored->size % MD_DEVICE_GRAIN != 0);
}

/* All copies on the device are compared in one launch, so there are at most so many grains of them. */
static enum md_status load(struct md_verify_handed *handed, struct md_verify_part *part,
			   struct md_device_session *device, struct md_error *err)
{
	const uint64_t size = part->stored->size;
	if (device->pieces && grains_of(part) <= MD_DEVICE_GRAINS - handed->grains &&
	    md_device_is_mapped(part->live, size)) {
		part->copy = md_device_session_take(device, size);
		part->after = part->copy ? md_device_session_take(device, size) : 0;
	}
	handed->grains += part->after ? grains_of(part) : 0;
	if (part->after)
		return md_device_batch_copy(device, part->copy, part->live, size, err);
	part->before = malloc(size);
	if (!part->before)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %" PRIu64 " bytes that are handed on",
				    size);
	return md_device_session_read(device, part->before, part->live, size, err);
}

enum md_status md_verify_handed_load(struct md_verify_handed *handed, struct md_device_session *device,
				     struct md_error *err)
{
	handed->device = device;
	md_device_batch_begin(device);
	for (uint32_t i = 0; i < handed->count; i++)
		MD_FORWARD(load(handed, &handed->parts[i], device, err));
	handed->loaded = true;
	return md_device_batch_launch(device, err);
}

static enum md_status place(const struct md_verify_handed *handed, const struct md_verify_part *part, uint64_t to,
			    struct md_error *err)
{
	if (part->after)
		return md_device_batch_copy(handed->device, to, part->copy, part->stored->size, err);
	return md_device_session_write(handed->device, to, part->before, part->stored->size, err);
}

enum md_status md_verify_handed_place(const struct md_verify_handed *handed, const struct md_restore *r,
				      struct md_error *err)
{
	if (!handed->loaded || !handed->count)
		return MD_OK;
	md_device_batch_begin(handed->device);
	for (uint32_t i = 0; i < handed->count; i++) {
		const struct md_verify_part *part = &handed->parts[i];
		MD_FORWARD(place(handed, part, part->live, err));
		if (r->arena)
			MD_FORWARD(place(handed, part, md_verify_part_address(part, r), err));
	}
	return md_device_batch_launch(handed->device, err);
}

/* Gives each part back to the engine, even after a failure: the driver then copies the parts one by one. */
enum md_status md_verify_handed_put_back(const struct md_verify_handed *handed, const struct md_restore *r,
					 struct md_error *err)
{
	struct md_error none = {0};
	if (!handed->loaded || !handed->count)
		return MD_OK;
	if (md_verify_handed_place(handed, r, &none) == MD_OK && md_device_batch_wait(handed->device, &none) == MD_OK)
		return MD_OK;
	for (uint32_t i = 0; i < handed->count; i++) {
		const struct md_verify_part *part = &handed->parts[i];
		const uint64_t size = part->stored->size;
		if (part->after)
			md_cuda_call(err, cuMemcpyDtoDAsync_v2, part->live, part->copy, size, handed->device->stream);
		else
			md_device_session_write(handed->device, part->live, part->before, size, err);
	}
	if (md_cuda_call(&none, cuStreamSynchronize, handed->device->stream) != MD_OK)
		md_cuda_call(err, cuStreamSynchronize, handed->device->stream);
	return err->status;
}

uint64_t md_verify_part_address(const struct md_verify_part *part, const struct md_restore *r)
{
	return md_restore_alloc_address(r, part->stored->alloc) + part->stored->offset;
}

/* The parts on the device. */
static enum md_status compare_copies(const struct md_verify_handed *handed, bool *changed, struct md_error *err)
{
	struct md_device_session *device = handed->device;
	size_t flags = 1; /* of all parts: one of them that differs is enough */
	md_device_batch_begin(device);
	for (uint32_t i = 0; i < handed->count; i++)
		if (handed->parts[i].after && grains_of(&handed->parts[i]) > flags)
			flags = (size_t)grains_of(&handed->parts[i]);
	MD_FORWARD(md_device_differ_begin(device, flags, err));
	for (uint32_t i = 0; i < handed->count; i++)
		if (handed->parts[i].after)
			MD_FORWARD(md_device_batch_differ(device, handed->parts[i].copy, handed->parts[i].after,
							  handed->parts[i].stored->size, 0, err));
	MD_FORWARD(md_device_batch_launch(device, err));
	MD_FORWARD(md_device_differ_end(device, flags, err));
	*changed |= memchr(device->flag_bytes, 1, flags) != NULL;
	return MD_OK;
}

enum md_status md_verify_handed_changed(const struct md_verify_handed *handed, uint8_t *const *after, bool *changed,
					struct md_error *err)
{
	bool copies = false;
	*changed = false;
	for (uint32_t i = 0; i < handed->count; i++) {
		const struct md_verify_part *part = &handed->parts[i];
		copies |= part->after != 0;
		*changed |= !part->after && memcmp(part->before, after[i], part->stored->size) != 0;
	}
	return copies && !*changed ? compare_copies(handed, changed, err) : MD_OK;
}

/* ---- in which order the engine launches them ---- */

/*
 * A cold start launches nothing to warm graphs up, so this memory does not hold what a live start has left there. That
 * does not matter if a graph is launched only after another graph has rewritten what it reads.
 */
enum md_status md_verify_handed_launched(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	const struct md_artifact_graph *stored = graph->stored;
	enum md_status status = MD_OK;
	for (uint32_t i = 0; i < stored->handed_count; i++) {
		if (stored->handed[i].reads && !graph->fed[i] && status == MD_OK)
			status =
			    md_error_set(err, MD_ERR_UNPROVABLE,
					 "the engine launched it although no other graph had written the unbound "
					 "memory that it reads (%" PRIu64
					 " bytes), at all or since its last launch: the engine must bind that memory",
					 stored->handed[i].size);
		graph->fed[i] = false;
	}
	if (stored->group)
		md_restore_group_feed(r, graph);
	return status;
}
