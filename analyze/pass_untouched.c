/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pass: memory whose address a graph has, that no replay read or wrote, and that the engine uses outside of graphs, such
 * as a flag that an overflow sets, or a mask that counts for other inputs.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "analyze/analysis.h"
#include "analyze/spots.h"
#include "base/array.h"
#include "base/cleanup.h"

/* What the engine has done outside of graphs, in [start, end) of an allocation of the first capture. */
struct use {
	struct md_spot spot;
	uint64_t end, sequence;
	unsigned capture;
	const char *kernel, *call; /* one of both; a kernel may do either */
	bool writes;
};

struct work {
	struct md_analysis *analysis;
	struct md_spots starts; /* all addresses that graphs have in memory that nobody bound */
	struct use *uses;
	size_t use_count, use_room;
};

static void work_finish(struct work *work)
{
	free(work->starts.items);
	free(work->uses);
}

/* ---- what the engine does ---- */

/* How many bytes from the spot on belong to an output that lies there; 0: none. */
static uint64_t output_bytes(const struct md_analysis *analysis, struct md_spot spot)
{
	for (uint32_t i = 0; i < analysis->pair_count; i++) {
		const struct md_pair *pair = &analysis->pairs[i];
		for (uint32_t o = 0; pair->outputs && o < pair->graph[0]->output_count; o++) {
			uint64_t into = spot.offset - (uint64_t)pair->outputs[o].offset;
			if (pair->outputs[o].alloc == spot.alloc && pair->outputs[o].binding == MD_NONE &&
			    into < pair->graph[0]->outputs[o].size)
				return pair->graph[0]->outputs[o].size - into;
		}
	}
	return 0;
}

/* False if the address lies in no allocation that both captures have, so that no graph can have it. */
static enum md_status locate(struct work *work, struct use *use, uint64_t address, bool *found, struct md_error *err)
{
	struct md_analysis *analysis = work->analysis;
	struct md_view *view = &analysis->views[use->capture];
	struct md_place place;
	*found = false;
	MD_FORWARD(md_view_seek(view, use->sequence, err));
	if (!md_view_locate(view, address, &place))
		return MD_OK;
	use->spot =
	    (struct md_spot){use->capture ? analysis->partner_back[place.alloc] : place.alloc, place.alloc_offset};
	*found = use->spot.alloc != MD_NONE;
	return MD_OK;
}

/* A call may begin in an output and reach beyond its end. */
static enum md_status add_use(struct work *work, struct use use, uint64_t address, uint64_t size, struct md_error *err)
{
	uint64_t skip;
	bool found;
	MD_FORWARD(locate(work, &use, address, &found, err));
	if (!found)
		return MD_OK;
	use.end = use.spot.offset + size;
	while ((skip = output_bytes(work->analysis, use.spot)))
		use.spot.offset += skip;
	if (use.spot.offset >= use.end)
		return MD_OK;
	if (!MD_ARRAY_GROW(work->uses, work->use_count, work->use_room))
		return md_analysis_no_memory(err);
	work->uses[work->use_count++] = use;
	return MD_OK;
}

/* A member of a struct may be unset and hold an old address, so only addresses that are parameters themselves count. */
static bool is_own_parameter(const struct md_trace *trace, uint32_t kernel, uint32_t offset)
{
	for (uint32_t i = 0; kernel != MD_NONE && i < trace->kernels[kernel].param_count; i++)
		if (trace->kernels[kernel].params[i].offset == offset && trace->kernels[kernel].params[i].size == 8)
			return true;
	return false;
}

static enum md_status list_uses(struct work *work, unsigned capture, struct md_error *err)
{
	const struct md_trace *trace = work->analysis->traces[capture];
	for (uint32_t i = 0; i < trace->given_count; i++) {
		const struct md_trace_given *given = &trace->given[i];
		struct use use = {.capture = capture, .sequence = given->sequence};
		if (given->size || !is_own_parameter(trace, given->kernel, given->offset))
			continue;
		use.kernel = trace->kernels[given->kernel].name;
		MD_FORWARD(add_use(work, use, given->address, 1, err));
	}
	for (uint32_t i = 0; i < trace->handed_count; i++) {
		const struct md_trace_handed *handed = &trace->handed[i];
		const struct use use = {.capture = capture,
					.sequence = handed->sequence,
					.call = handed->call,
					.writes = handed->reader == MD_ANY_GRAPH};
		if (handed->reader == MD_ANY_GRAPH || handed->writer == MD_ANY_GRAPH)
			MD_FORWARD(add_use(work, use, handed->address, handed->size, err));
	}
	return MD_OK;
}

/* ---- what graphs do ---- */

static bool any_written(const struct md_analysis *analysis, const struct md_trace_graph *graph, struct md_spot spot,
			uint64_t end)
{
	uint64_t base = analysis->views[0].allocs[spot.alloc].address;
	for (uint32_t i = 0; i < graph->written_count; i++)
		if (graph->written[i].address < base + end &&
		    base + spot.offset < graph->written[i].address + graph->written[i].size)
			return true;
	return false;
}

static bool any_needed(const struct md_analysis *analysis, struct md_spot spot, uint64_t end)
{
	for (uint32_t i = 0; i < analysis->held_count; i++) {
		const struct md_held *held = &analysis->held[i];
		if (held->alloc == spot.alloc && !held->unread && held->offset < end &&
		    spot.offset < held->offset + held->size)
			return true;
	}
	return false;
}

static bool is_touched(const struct md_analysis *analysis, const struct md_pair *pair, struct md_spot spot,
		       uint64_t end)
{
	return any_written(analysis, pair->graph[0], spot, end) || any_needed(analysis, spot, end);
}

/* From an address that the graph has to the next one that any graph has, a binding, or the end of the allocation. */
static void compare(const struct work *work, struct md_pair *pair, struct md_spot start, const struct use *use)
{
	const struct md_analysis *analysis = work->analysis;
	uint64_t end = md_spots_next(&work->starts, start, md_spot_piece_end(&analysis->views[0], start));
	struct md_spot common = {start.alloc, start.offset > use->spot.offset ? start.offset : use->spot.offset};
	uint64_t common_end = end < use->end ? end : use->end;
	bool at_address = use->spot.offset <= start.offset;
	if (use->spot.alloc != start.alloc || common.offset >= common_end ||
	    is_touched(analysis, pair, common, common_end) || (!at_address && is_touched(analysis, pair, start, end)))
		return;
	md_pair_refuse(pair,
		       "%s%s %s unbound memory of which the graph has the address (allocation %" PRIu32
		       ", byte %" PRIu64 "): no replay has used that memory, but for other inputs the graph may: "
		       "bind it",
		       use->kernel ? "kernel " : "", use->kernel ? use->kernel : use->call,
		       use->kernel   ? "is given, outside of graphs,"
		       : use->writes ? "writes"
				     : "reads",
		       common.alloc, common.offset);
}

static void compare_all(const struct work *work, struct md_pair *pair, const struct md_finding *finding)
{
	const struct md_target *target = &finding->target;
	const struct md_spot start = {target->alloc, (uint64_t)target->offset};
	for (size_t i = 0; i < work->use_count; i++) {
		const struct md_trace_graph *graph = pair->graph[work->uses[i].capture];
		if (graph && work->uses[i].sequence > graph->sequence)
			compare(work, pair, start, &work->uses[i]);
	}
}

static bool counts(const struct md_analysis *analysis, const struct md_finding *finding)
{
	const struct md_target *target = &finding->target;
	return target->binding == MD_NONE && target->offset >= 0 &&
	       (uint64_t)target->offset < analysis->views[0].allocs[target->alloc].size;
}

static bool counts_in(const struct md_analysis *analysis, const struct md_pair *pair, const struct md_finding *finding)
{
	const struct md_node *node = &pair->graph[0]->nodes[finding->node];
	return counts(analysis, finding) && node->type == MD_NODE_KERNEL &&
	       is_own_parameter(analysis->traces[0], node->kernel, finding->at);
}

static void judge(const struct work *work, struct md_pair *pair)
{
	const struct md_analysis *analysis = work->analysis;
	for (uint32_t f = 0; f < pair->findings.count; f++)
		if (counts_in(analysis, pair, &pair->findings.items[f]))
			compare_all(work, pair, &pair->findings.items[f]);
	for (uint32_t h = 0; h < analysis->held_count; h++) /* any graph may follow what lies in contents */
		for (uint32_t f = 0; f < analysis->held[h].findings.count; f++)
			if (counts(analysis, &analysis->held[h].findings.items[f]))
				compare_all(work, pair, &analysis->held[h].findings.items[f]);
}

/* ---- all ---- */

static bool add_starts(struct work *work, const struct md_findings *findings)
{
	for (uint32_t f = 0; f < findings->count; f++) {
		const struct md_target *target = &findings->items[f].target;
		if (target->binding == MD_NONE && target->offset >= 0 &&
		    !md_spots_add(&work->starts, (struct md_spot){target->alloc, (uint64_t)target->offset}))
			return false;
	}
	return true;
}

static bool list_starts(struct work *work)
{
	const struct md_analysis *analysis = work->analysis;
	for (uint32_t i = 0; i < analysis->pair_count; i++)
		if (!add_starts(work, &analysis->pairs[i].findings))
			return false;
	for (uint32_t h = 0; h < analysis->held_count; h++)
		if (!add_starts(work, &analysis->held[h].findings))
			return false;
	md_spots_sort(&work->starts);
	return true;
}

enum md_status md_pass_untouched(struct md_analysis *analysis, struct md_error *err)
{
	MD_CLEANUP(work_finish) struct work work = {.analysis = analysis};
	for (unsigned c = 0; c < analysis->captures; c++)
		MD_FORWARD(list_uses(&work, c, err));
	if (!work.use_count)
		return MD_OK;
	if (!list_starts(&work))
		return md_analysis_no_memory(err);
	for (uint32_t i = 0; i < analysis->pair_count; i++) {
		struct md_pair *pair = &analysis->pairs[i];
		/* what is not known to be written counts as written, to which other passes see */
		if (!pair->why && pair->graph[0]->written_known)
			judge(&work, pair);
	}
	return MD_OK;
}
