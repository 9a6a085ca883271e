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
	part->before = malloc(part->stored->size);
	return part->before
		   ? MD_OK
		   : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %" PRIu64 " bytes that are handed on",
				  part->stored->size);
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

enum md_status md_verify_handed_load(struct md_verify_handed *handed, CUstream stream, struct md_error *err)
{
	for (uint32_t i = 0; i < handed->count; i++)
		MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, handed->parts[i].before, handed->parts[i].live,
					handed->parts[i].stored->size, stream));
	handed->loaded = true;
	return md_cuda_call(err, cuStreamSynchronize, stream);
}

enum md_status md_verify_handed_place(const struct md_verify_handed *handed, const struct md_restore *r,
				      struct md_error *err)
{
	for (uint32_t i = 0; handed->loaded && i < handed->count; i++) {
		const struct md_verify_part *part = &handed->parts[i];
		MD_FORWARD(
		    md_cuda_call(err, cuMemcpyHtoDAsync_v2, part->live, part->before, part->stored->size, r->stream));
		if (r->arena)
			MD_FORWARD(md_cuda_call(err, cuMemcpyHtoDAsync_v2, md_verify_part_address(part, r),
						part->before, part->stored->size, r->stream));
	}
	return handed->loaded ? md_cuda_call(err, cuStreamSynchronize, r->stream) : MD_OK;
}

uint64_t md_verify_part_address(const struct md_verify_part *part, const struct md_restore *r)
{
	return md_restore_alloc_address(r, part->stored->alloc) + part->stored->offset;
}

bool md_verify_handed_changed(const struct md_verify_handed *handed, uint8_t *const *after)
{
	for (uint32_t i = 0; i < handed->count; i++)
		if (memcmp(handed->parts[i].before, after[i], handed->parts[i].stored->size))
			return true;
	return false;
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
