/* SPDX-License-Identifier: Apache-2.0 */
/* Lists where tables in private memory may end, and what the captures saved of them. */
#include <stdlib.h>
#include <string.h>

#include "analyze/tables.h"
#include "base/array.h"
#include "base/cleanup.h"
#include "base/splitmix.h"

void md_tables_finish(struct md_tables *tables)
{
	for (uint32_t i = 0; tables->copied && i < tables->analysis->views[0].alloc_count; i++)
		md_interval_finish(&tables->copied[i]);
	md_map_finish(&tables->cuts);
	free(tables->copied);
	free(tables->wanted);
	free(tables->holds);
	free(tables->walls);
	free(tables->parts);
	free(tables->places);
}

static bool add_wall(struct md_tables *tables, uint32_t alloc, enum md_wall_kind kind, uint64_t start, uint64_t end)
{
	uint32_t group = tables->analysis->group[alloc];
	if (!tables->wanted[group])
		return true;
	if (!MD_ARRAY_GROW(tables->walls, tables->wall_count, tables->wall_room))
		return false;
	tables->walls[tables->wall_count++] = (struct md_wall){group, kind, start, end};
	return true;
}

/* ---- walls ---- */

uint64_t md_tables_address(const struct md_analysis *analysis, const struct md_target *target)
{
	return analysis->views[0].allocs[target->alloc].address + (uint64_t)target->offset;
}

uint64_t md_tables_key(const struct md_tables *tables, const struct md_target *target)
{
	return md_tables_address(tables->analysis, target) + tables->analysis->group[target->alloc] * MD_RANDOM_STEP;
}

static bool add_cut(struct md_tables *tables, const struct md_target *target)
{
	uint64_t address;
	if (target->alloc == MD_NONE || target->binding != MD_NONE ||
	    md_map_get(&tables->cuts, md_tables_key(tables, target), NULL))
		return true;
	address = md_tables_address(tables->analysis, target);
	return md_map_put(&tables->cuts, md_tables_key(tables, target), 0) &&
	       add_wall(tables, target->alloc, MD_WALL_CUT, address, address);
}

static bool add_findings(struct md_tables *tables, const struct md_findings *findings)
{
	bool added = true;
	for (uint32_t i = 0; i < findings->count && added; i++)
		added = add_cut(tables, &findings->items[i].target);
	return added;
}

static bool add_addresses(struct md_tables *tables)
{
	const struct md_analysis *analysis = tables->analysis;
	bool added = true;
	added = add_findings(tables, tables->more);
	for (uint32_t i = 0; i < analysis->pair_count && added; i++) {
		const struct md_pair *pair = &analysis->pairs[i];
		added = add_findings(tables, &pair->findings);
		for (uint32_t o = 0; pair->outputs && o < pair->graph[0]->output_count && added; o++)
			added = add_cut(tables, &pair->outputs[o]);
	}
	for (uint32_t i = 0; i < analysis->held_count && added; i++) {
		const struct md_held *held = &analysis->held[i];
		uint64_t start = analysis->views[0].allocs[held->alloc].address + held->offset;
		added = add_wall(tables, held->alloc, MD_WALL_NEEDED, start, start + held->size) &&
			add_findings(tables, &held->findings);
	}
	return added;
}

/* A border between two allocations of one group is no edge. */
static bool add_edges(struct md_tables *tables)
{
	const struct md_analysis *analysis = tables->analysis;
	const struct md_view *view = &analysis->views[0];
	bool added = true;
	for (uint32_t i = 0; i < view->alloc_count && added; i++) {
		const struct md_view_alloc *alloc = &view->allocs[i];
		uint64_t end = alloc->address + alloc->size;
		bool first = true, last = true;
		if (!tables->wanted[analysis->group[i]])
			continue;
		for (uint32_t k = 0; k < view->alloc_count; k++) {
			bool same = k != i && analysis->group[k] == analysis->group[i];
			first &= !(same && view->allocs[k].address + view->allocs[k].size == alloc->address);
			last &= !(same && view->allocs[k].address == end);
		}
		added = (!first || add_wall(tables, i, MD_WALL_EDGE, alloc->address, alloc->address)) &&
			(!last || add_wall(tables, i, MD_WALL_EDGE, end, end));
		for (uint32_t p = view->first_piece[i]; p < view->first_piece[i + 1] && added; p++)
			added = add_wall(tables, i, MD_WALL_BOUND, alloc->address + view->pieces[p].start,
					 alloc->address + view->pieces[p].end);
	}
	return added;
}

static enum md_status add_written(struct md_tables *tables, unsigned capture, const struct md_trace_graph *graph,
				  struct md_error *err)
{
	struct md_analysis *analysis = tables->analysis;
	struct md_view *view = &analysis->views[capture];
	if (graph->written_count)
		MD_FORWARD(md_view_seek(view, graph->probe_sequence ? graph->probe_sequence : graph->sequence, err));
	for (uint32_t i = 0; i < graph->written_count; i++) {
		const struct md_trace_range *range = &graph->written[i];
		uint32_t found = md_view_find(view, range->address);
		uint32_t alloc = found == MD_NONE || !capture ? found : analysis->partner_back[found];
		uint64_t start;
		if (alloc == MD_NONE)
			continue;
		start = analysis->views[0].allocs[alloc].address + (range->address - view->allocs[found].address);
		if (!add_wall(tables, alloc, MD_WALL_WRITTEN, start, start + range->size))
			return md_analysis_no_memory(err);
	}
	return MD_OK;
}

static int compare_walls(const void *left, const void *right)
{
	const struct md_wall *a = left, *b = right;
	if (a->group != b->group)
		return a->group < b->group ? -1 : 1;
	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return (int)a->kind - (int)b->kind;
}

static enum md_status list_walls(struct md_tables *tables, struct md_error *err)
{
	const struct md_analysis *analysis = tables->analysis;
	if (!add_addresses(tables) || !add_edges(tables))
		return md_analysis_no_memory(err);
	for (unsigned c = 0; c < analysis->captures; c++)
		for (uint32_t i = 0; i < analysis->traces[c]->graph_count; i++)
			MD_FORWARD(add_written(tables, c, &analysis->traces[c]->graphs[i], err));
	if (tables->wall_count)
		qsort(tables->walls, tables->wall_count, sizeof(*tables->walls), compare_walls);
	return MD_OK;
}

/* ---- what was saved ---- */

static bool add_part(struct md_tables *tables, struct md_table_part part)
{
	if (!MD_ARRAY_GROW(tables->parts, tables->part_count, tables->part_room))
		return false;
	tables->parts[tables->part_count++] = part;
	return true;
}

uint64_t md_tables_known(const struct md_interval_index *known, uint64_t at, uint64_t end, bool *is)
{
	const struct md_interval *item = md_interval_floor(known, at);
	*is = item && at - item->start < item->size;
	if (*is)
		return item->start + item->size < end ? item->start + item->size : end;
	item = md_interval_after(known, at);
	return item && item->start < end ? item->start : end;
}

/* Records are taken from the last to the first; indices are by allocation, because addresses come again. */
static enum md_status take_record(struct md_tables *tables, const struct md_trace_unread *unread,
				  struct md_interval_index *known, struct md_error *err)
{
	struct md_analysis *analysis = tables->analysis;
	struct md_view *view = &analysis->views[0];
	uint64_t end = unread->address + unread->size, next;
	uint32_t alloc;
	bool is;
	MD_FORWARD(md_view_seek(view, unread->sequence, err));
	alloc = md_view_find(view, unread->address);
	if (alloc == MD_NONE || end > view->allocs[alloc].address + view->allocs[alloc].size ||
	    !tables->wanted[analysis->group[alloc]])
		return MD_OK;
	if (unread->copied && !md_interval_merge(&tables->copied[alloc], unread->address, unread->size))
		return md_analysis_no_memory(err);
	for (uint64_t at = unread->address; at < end; at = next) {
		next = md_tables_known(&known[alloc], at, end, &is);
		if (is)
			continue;
		if (!add_part(tables, (struct md_table_part){analysis->group[alloc], alloc, at, next, unread}) ||
		    !md_interval_add(&known[alloc], at, next - at, 0))
			return md_analysis_no_memory(err);
	}
	return MD_OK;
}

static int compare_parts(const void *left, const void *right)
{
	const struct md_table_part *a = left, *b = right;
	if (a->group != b->group)
		return a->group < b->group ? -1 : 1;
	return (a->start > b->start) - (a->start < b->start);
}

static enum md_status list_parts(struct md_tables *tables, struct md_error *err)
{
	const struct md_analysis *analysis = tables->analysis;
	const struct md_trace *trace = analysis->traces[0];
	uint32_t allocs = analysis->views[0].alloc_count;
	MD_AUTO_FREE struct md_interval_index *known = calloc(allocs + 1u, sizeof(*known));
	enum md_status status = known ? MD_OK : md_analysis_no_memory(err);
	for (uint32_t i = 0; i < analysis->held_count && status == MD_OK; i++) {
		const struct md_held *held = &analysis->held[i];
		uint64_t start = analysis->views[0].allocs[held->alloc].address + held->offset;
		if (!md_interval_add(&known[held->alloc], start, held->size, 0))
			status = md_analysis_no_memory(err);
	}
	for (uint32_t i = trace->unread_count; i-- > 0 && status == MD_OK;)
		status = take_record(tables, &trace->unread[i], known, err);
	for (uint32_t i = 0; known && i < allocs; i++)
		md_interval_finish(&known[i]);
	if (tables->part_count)
		qsort(tables->parts, tables->part_count, sizeof(*tables->parts), compare_parts);
	return status;
}

static int compare_places(const void *left, const void *right)
{
	const struct md_table_place *a = left, *b = right;
	if (a->alloc != b->alloc)
		return a->alloc < b->alloc ? -1 : 1;
	return (a->sequence > b->sequence) - (a->sequence < b->sequence);
}

static enum md_status add_place(struct md_tables *tables, struct md_table_place place, uint64_t address,
				struct md_error *err)
{
	struct md_view *view = &tables->analysis->views[1];
	MD_FORWARD(md_view_seek(view, place.sequence, err));
	place.alloc = md_view_find(view, address);
	if (place.alloc == MD_NONE)
		return MD_OK;
	place.offset = address - view->allocs[place.alloc].address;
	tables->places[tables->place_count++] = place;
	return MD_OK;
}

static enum md_status list_places(struct md_tables *tables, struct md_error *err)
{
	const struct md_trace *trace = tables->analysis->captures == 2 ? tables->analysis->traces[1] : NULL;
	if (!trace)
		return MD_OK;
	tables->places = calloc((size_t)trace->unread_count + trace->content_count + 1, sizeof(*tables->places));
	if (!tables->places)
		return md_analysis_no_memory(err);
	for (uint32_t i = 0; i < trace->unread_count; i++) {
		const struct md_trace_unread *from = &trace->unread[i];
		MD_FORWARD(add_place(tables, (struct md_table_place){0, 0, from->size, from->sequence, from->data},
				     from->address, err));
	}
	for (uint32_t i = 0; i < trace->content_count; i++) {
		const struct md_trace_content *from = &trace->contents[i];
		MD_FORWARD(add_place(tables, (struct md_table_place){0, 0, from->size, from->sequence, from->data},
				     from->address, err));
	}
	if (tables->place_count)
		qsort(tables->places, tables->place_count, sizeof(*tables->places), compare_places);
	return MD_OK;
}

enum md_status md_tables_list(struct md_tables *tables, struct md_error *err)
{
	MD_FORWARD(list_walls(tables, err));
	MD_FORWARD(list_parts(tables, err));
	return list_places(tables, err);
}
