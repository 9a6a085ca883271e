/* SPDX-License-Identifier: Apache-2.0 */
/* Pass: finds where graphs of a group hand values on, and restores all graphs of a group or none. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/analysis.h"
#include "base/array.h"

/* ---- all or none ---- */

static void refuse_others(struct md_analysis *analysis, const struct md_pair *one)
{
	for (uint32_t i = 0; i < analysis->pair_count; i++) {
		struct md_pair *pair = &analysis->pairs[i];
		if (pair->group == one->group && !pair->why)
			md_pair_refuse(pair,
				       "is in one group with graph %s/%" PRIu32
				       " (they pass values through unbound memory), which is refused: %s",
				       one->label, one->batch, one->why);
	}
}

/* A pair that is refused here has no other pairs left when its turn comes: each gets the first reason. */
void md_analysis_close_groups(struct md_analysis *analysis)
{
	for (uint32_t i = 0; i < analysis->pair_count; i++)
		if (analysis->pairs[i].group && analysis->pairs[i].why)
			refuse_others(analysis, &analysis->pairs[i]);
}

/* ---- where ---- */

static bool add_part(struct md_pair *pair, struct md_part part)
{
	if (!MD_ARRAY_EXTEND(pair->parts, pair->part_count))
		return false;
	pair->parts[pair->part_count++] = part;
	return true;
}

static int compare_parts(const void *left, const void *right)
{
	const struct md_part *a = left, *b = right;
	if (a->alloc != b->alloc)
		return a->alloc < b->alloc ? -1 : 1;
	return (a->offset > b->offset) - (a->offset < b->offset);
}

/* Sorts the parts and joins those that overlap: several places of the same contents. */
static void merge_parts(struct md_pair *pair)
{
	uint32_t kept = 0;
	if (pair->part_count)
		qsort(pair->parts, pair->part_count, sizeof(*pair->parts), compare_parts);
	for (uint32_t i = 0; i < pair->part_count; i++) {
		struct md_part *last = kept ? &pair->parts[kept - 1] : NULL, *part = &pair->parts[i];
		if (!last || last->alloc != part->alloc || last->offset + last->size <= part->offset) {
			pair->parts[kept++] = *part;
			continue;
		}
		if (part->offset + part->size > last->offset + last->size)
			last->size = part->offset + part->size - last->offset;
		last->reads |= part->reads;
		last->writes |= part->writes;
	}
	pair->part_count = kept;
}

/* Translates the place into the first capture; it lies in no allocation there: false. */
static enum md_status locate(struct md_analysis *analysis, const struct md_handing *handing, struct md_part *part,
			     struct md_error *err)
{
	struct md_view *view = &analysis->views[handing->capture];
	MD_FORWARD(md_view_seek(view, handing->sequence, err));
	part->alloc = md_view_find(view, handing->address);
	if (part->alloc == MD_NONE)
		return MD_OK;
	part->offset = handing->address - view->allocs[part->alloc].address;
	part->size = handing->size;
	if (handing->capture == 1)
		part->alloc = analysis->partner_back[part->alloc];
	return MD_OK;
}

static bool touches(const struct md_held *held, const struct md_part *part)
{
	return held->alloc == part->alloc && held->offset < part->offset + part->size &&
	       part->offset < held->offset + held->size;
}

/*
 * The writes of a graph that others read are known to the byte. What the others read is known in larger units, which
 * are their contents. With other inputs the graph may write other bytes of these units, so units are handed on whole.
 */
static enum md_status hand_contents(struct md_analysis *analysis, const struct md_part *part, struct md_pair *reader,
				    struct md_pair *writer, struct md_error *err)
{
	bool found = false;
	for (uint32_t i = 0; i < analysis->held_count; i++) {
		const struct md_held *held = &analysis->held[i];
		struct md_part whole = {held->alloc, held->offset, held->size, false, false};
		if (part->alloc == MD_NONE || !touches(held, part))
			continue;
		found = true;
		if (held->findings.count)
			md_pair_refuse(reader,
				       "reads addresses that graph %s/%" PRIu32
				       " leaves in unbound memory: the engine must bind that memory",
				       writer->label, writer->batch);
		whole.reads = true;
		if (!add_part(reader, whole))
			return md_analysis_no_memory(err);
		whole.reads = false;
		whole.writes = true;
		if (!add_part(writer, whole))
			return md_analysis_no_memory(err);
	}
	if (!found)
		md_pair_refuse(reader,
			       "reads unbound memory that graph %s/%" PRIu32
			       " writes, and what it held is not known: the engine must bind that memory",
			       writer->label, writer->batch);
	return MD_OK;
}

/* ---- what a verification can compare ---- */

/* A verify run finds the engine's copy through a parameter of the graph, so some parameter must point there. */
static bool points_to(const struct md_analysis *analysis, const struct md_pair *pair, uint32_t alloc)
{
	for (uint32_t i = 0; i < pair->findings.count; i++) {
		const struct md_finding *finding = &pair->findings.items[i];
		if (finding->target.binding == MD_NONE && finding->kind == MD_POINTER_PLAIN &&
		    analysis->group[finding->target.alloc] == analysis->group[alloc])
			return true;
	}
	return false;
}

static void check_parts(const struct md_analysis *analysis, struct md_pair *pair)
{
	merge_parts(pair);
	if (pair->part_count > MD_HANDED_MAX)
		md_pair_refuse(
		    pair, "passes values to other graphs in %" PRIu32 " parts of memory, at most %d can be compared",
		    pair->part_count, MD_HANDED_MAX);
	for (uint32_t i = 0; i < pair->part_count && !pair->why; i++)
		if (!points_to(analysis, pair, pair->parts[i].alloc))
			md_pair_refuse(pair,
				       "reaches unbound memory in which graphs pass values (allocation %" PRIu32
				       ") only through addresses in memory: the engine must bind it",
				       pair->parts[i].alloc);
}

enum md_status md_pass_group(struct md_analysis *analysis, struct md_error *err)
{
	for (uint32_t i = 0; i < analysis->handing_count; i++) {
		const struct md_handing *handing = &analysis->handings[i];
		struct md_pair *reader = &analysis->pairs[handing->reader], *writer = &analysis->pairs[handing->writer];
		struct md_part part = {0};
		if (reader->why || writer->why)
			continue;
		MD_FORWARD(locate(analysis, handing, &part, err));
		MD_FORWARD(hand_contents(analysis, &part, reader, writer, err));
	}
	for (uint32_t i = 0; i < analysis->pair_count; i++)
		check_parts(analysis, &analysis->pairs[i]);
	md_analysis_close_groups(analysis);
	return MD_OK;
}
