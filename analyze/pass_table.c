/* SPDX-License-Identifier: Apache-2.0 */
/* Pass: what lies beside the contents that graphs read, up to the next address, binding, or byte that a graph writes:
 * such memory is a table, of which another input may read the rest. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/analysis.h"
#include "base/cleanup.h"

/* In order where they begin together. Addresses are those of the first capture; a group's are its own. */
enum wall_kind {
	WALL_CUT, /* an address that a graph has, or an edge of the group: of no length */
	WALL_NEEDED,
	WALL_WRITTEN,
	WALL_BOUND,
};

struct wall {
	uint32_t group;
	enum wall_kind kind;
	uint64_t start, end;
};

struct part { /* of a record: what no later one says of the same bytes, and none that holds contents */
	uint32_t group, alloc;
	uint64_t start, end;
	const struct md_trace_unread *from;
};

struct place { /* what the second capture saved, read or not; zeros: data is NULL */
	uint32_t alloc;
	uint64_t offset, size, sequence;
	const uint8_t *data;
};

struct tables {
	struct md_analysis *analysis;
	uint8_t *wanted; /* per group: contents of it are held */
	struct wall *walls;
	uint32_t wall_count, wall_room;
	struct part *parts;
	uint32_t part_count, part_room;
	struct place *places;
	uint32_t place_count;
	uint32_t held_room;
};

static void tables_finish(struct tables *tables)
{
	free(tables->wanted);
	free(tables->walls);
	free(tables->parts);
	free(tables->places);
}

static bool grow(void *list, uint32_t count, uint32_t *room, size_t size)
{
	char *items;
	uint32_t more = *room ? 2 * *room : 256;

	if (count < *room)
		return true;
	memcpy(&items, list, sizeof items);
	items = realloc(items, more * size);
	if (!items)
		return false;
	memcpy(list, &items, sizeof items);
	*room = more;
	return true;
}

static bool add_wall(struct tables *tables, uint32_t alloc, enum wall_kind kind, uint64_t start, uint64_t end)
{
	uint32_t group = tables->analysis->group[alloc];

	if (!tables->wanted[group])
		return true;
	if (!grow(&tables->walls, tables->wall_count, &tables->wall_room, sizeof *tables->walls))
		return false;
	tables->walls[tables->wall_count++] = (struct wall){group, kind, start, end};
	return true;
}

/* ---- walls ---- */

static uint64_t address_of(const struct md_analysis *analysis, const struct md_target *target)
{
	return analysis->views[0].allocs[target->alloc].address + (uint64_t)target->offset;
}

static bool add_cut(struct tables *tables, const struct md_target *target)
{
	uint64_t address;

	if (target->alloc == MD_NONE || target->binding != MD_NONE)
		return true;
	address = address_of(tables->analysis, target);
	return add_wall(tables, target->alloc, WALL_CUT, address, address);
}

static bool add_findings(struct tables *tables, const struct md_findings *findings)
{
	bool added = true;

	for (uint32_t i = 0; i < findings->count && added; i++)
		added = add_cut(tables, &findings->items[i].target);
	return added;
}

static bool add_addresses(struct tables *tables)
{
	const struct md_analysis *analysis = tables->analysis;
	bool added = true;

	for (uint32_t i = 0; i < analysis->pair_count && added; i++) {
		const struct md_pair *pair = &analysis->pairs[i];
		added = add_findings(tables, &pair->findings);
		for (uint32_t o = 0; pair->outputs && o < pair->graph[0]->output_count && added; o++)
			added = add_cut(tables, &pair->outputs[o]);
	}
	for (uint32_t i = 0; i < analysis->held_count && added; i++) {
		const struct md_held *held = &analysis->held[i];
		uint64_t start = analysis->views[0].allocs[held->alloc].address + held->offset;
		added = add_wall(tables, held->alloc, WALL_NEEDED, start, start + held->size) &&
			add_findings(tables, &held->findings);
	}
	return added;
}

/* Where allocations of one group meet is no edge. */
static bool add_edges(struct tables *tables)
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
		added = (!first || add_wall(tables, i, WALL_CUT, alloc->address, alloc->address)) &&
			(!last || add_wall(tables, i, WALL_CUT, end, end));
		for (uint32_t p = view->first_piece[i]; p < view->first_piece[i + 1] && added; p++)
			added = add_wall(tables, i, WALL_BOUND, alloc->address + view->pieces[p].start,
					 alloc->address + view->pieces[p].end);
	}
	return added;
}

static enum md_status add_written(struct tables *tables, unsigned capture, const struct md_trace_graph *graph,
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
		if (!add_wall(tables, alloc, WALL_WRITTEN, start, start + range->size))
			return md_analysis_no_memory(err);
	}
	return MD_OK;
}

static int compare_walls(const void *left, const void *right)
{
	const struct wall *a = left, *b = right;

	if (a->group != b->group)
		return a->group < b->group ? -1 : 1;
	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return (int)a->kind - (int)b->kind;
}

static enum md_status list_walls(struct tables *tables, struct md_error *err)
{
	const struct md_analysis *analysis = tables->analysis;

	if (!add_addresses(tables) || !add_edges(tables))
		return md_analysis_no_memory(err);
	for (unsigned c = 0; c < analysis->captures; c++)
		for (uint32_t i = 0; i < analysis->traces[c]->graph_count; i++)
			MD_FORWARD(add_written(tables, c, &analysis->traces[c]->graphs[i], err));
	if (tables->wall_count)
		qsort(tables->walls, tables->wall_count, sizeof *tables->walls, compare_walls);
	return MD_OK;
}

/* ---- what was saved ---- */

static bool add_part(struct tables *tables, struct part part)
{
	if (!grow(&tables->parts, tables->part_count, &tables->part_room, sizeof *tables->parts))
		return false;
	tables->parts[tables->part_count++] = part;
	return true;
}

/* The part of [at, end) that begins there and is known, or is not: its end. */
static uint64_t known_until(const struct md_interval_index *known, uint64_t at, uint64_t end, bool *is)
{
	const struct md_interval *item = md_interval_floor(known, at);

	*is = item && at - item->start < item->size;
	if (*is)
		return item->start + item->size < end ? item->start + item->size : end;
	item = item ? item + 1 : known->items;
	return item < known->items + known->count && item->start < end ? item->start : end;
}

/* From the last record to the first one; indices by allocation, as addresses come again. */
static enum md_status take_record(struct tables *tables, const struct md_trace_unread *unread,
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
	for (uint64_t at = unread->address; at < end; at = next) {
		next = known_until(&known[alloc], at, end, &is);
		if (is)
			continue;
		if (!add_part(tables, (struct part){analysis->group[alloc], alloc, at, next, unread}) ||
		    !md_interval_add(&known[alloc], at, next - at, 0))
			return md_analysis_no_memory(err);
	}
	return MD_OK;
}

static int compare_parts(const void *left, const void *right)
{
	const struct part *a = left, *b = right;

	if (a->group != b->group)
		return a->group < b->group ? -1 : 1;
	return (a->start > b->start) - (a->start < b->start);
}

static enum md_status list_parts(struct tables *tables, struct md_error *err)
{
	const struct md_analysis *analysis = tables->analysis;
	const struct md_trace *trace = analysis->traces[0];
	uint32_t allocs = analysis->views[0].alloc_count;
	MD_AUTO_FREE struct md_interval_index *known = calloc(allocs + 1u, sizeof *known);
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
		qsort(tables->parts, tables->part_count, sizeof *tables->parts, compare_parts);
	return status;
}

static int compare_places(const void *left, const void *right)
{
	const struct place *a = left, *b = right;

	if (a->alloc != b->alloc)
		return a->alloc < b->alloc ? -1 : 1;
	return (a->sequence > b->sequence) - (a->sequence < b->sequence);
}

static enum md_status add_place(struct tables *tables, struct place place, uint64_t address, struct md_error *err)
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

static enum md_status list_places(struct tables *tables, struct md_error *err)
{
	const struct md_trace *trace = tables->analysis->captures == 2 ? tables->analysis->traces[1] : NULL;

	if (!trace)
		return MD_OK;
	tables->places = calloc((size_t)trace->unread_count + trace->content_count + 1, sizeof *tables->places);
	if (!tables->places)
		return md_analysis_no_memory(err);
	for (uint32_t i = 0; i < trace->unread_count; i++) {
		const struct md_trace_unread *from = &trace->unread[i];
		MD_FORWARD(add_place(tables, (struct place){0, 0, from->size, from->sequence, from->data},
				     from->address, err));
	}
	for (uint32_t i = 0; i < trace->content_count; i++) {
		const struct md_trace_content *from = &trace->contents[i];
		MD_FORWARD(add_place(tables, (struct place){0, 0, from->size, from->sequence, from->data},
				     from->address, err));
	}
	if (tables->place_count)
		qsort(tables->places, tables->place_count, sizeof *tables->places, compare_places);
	return MD_OK;
}

/* ---- tables ---- */

struct table { /* between two walls */
	uint32_t group;
	uint64_t start, end;
	uint64_t address; /* by which graphs reach it */
	bool by_address;  /* false: it lies before any */
	char *why;        /* owned; NULL, or why it can't be kept */
};

static bool fill_counterpart(const struct tables *tables, const struct part *part, const uint8_t *one,
			     struct md_counterpart *two)
{
	const struct md_analysis *analysis = tables->analysis;
	uint64_t size = part->end - part->start, end;
	uint64_t offset = part->start - analysis->views[0].allocs[part->alloc].address;

	two->data = malloc(size);
	two->known = calloc(size, 1);
	if (!two->data || !two->known)
		return false;
	memcpy(two->data, one, size);
	end = offset + size;
	for (uint32_t i = 0; i < tables->place_count; i++) {
		const struct place *place = &tables->places[i];
		uint64_t from = place->offset > offset ? place->offset : offset;
		uint64_t to = place->offset + place->size < end ? place->offset + place->size : end;
		if (place->alloc != analysis->partner[part->alloc] || from >= to)
			continue;
		if (place->data)
			memcpy(two->data + (from - offset), place->data + (from - place->offset), to - from);
		else
			memset(two->data + (from - offset), 0, to - from);
		memset(two->known + (from - offset), 1, to - from);
		two->sequence = place->sequence;
		two->found = true;
	}
	return true;
}

/* Without the zeros at both ends, which hold in the other capture, too. False: there is nothing but zeros. */
static bool trim(struct part *part, const uint8_t *one, const uint8_t *two)
{
	uint64_t size = part->end - part->start, from = 0, to = size;

	while (from < size && !one[from] && !two[from])
		from++;
	while (to > from && !one[to - 1] && !two[to - 1])
		to--;
	for (; from && (part->start + from) % 8; from--)
		;
	for (; to < size && (part->start + to) % 8; to++)
		;
	part->end = part->start + to;
	part->start += from;
	return from < to;
}

static enum md_status hold(struct tables *tables, struct table *table, const struct part *part, const uint8_t *one,
			   const struct md_counterpart *two, struct md_error *err)
{
	struct md_analysis *analysis = tables->analysis;
	struct md_held held = {.variable = MD_NONE,
			       .alloc = part->alloc,
			       .offset = part->start - analysis->views[0].allocs[part->alloc].address,
			       .size = part->end - part->start,
			       .unread = true,
			       .compared = two->found && !memchr(two->known, 0, part->end - part->start)};

	if (!grow(&analysis->held, analysis->held_count, &tables->held_room, sizeof *analysis->held))
		return md_analysis_no_memory(err);
	held.data = malloc(held.size);
	if (!held.data)
		return md_analysis_no_memory(err);
	memcpy(held.data, one, held.size);
	analysis->held[analysis->held_count] = held;
	MD_FORWARD(md_view_seek(&analysis->views[0], part->from->sequence, err));
	if (two->found)
		MD_FORWARD(md_view_seek(&analysis->views[1], two->sequence, err));
	if (!md_content_classify(analysis, &analysis->held[analysis->held_count++], one, two, &table->why))
		return md_analysis_no_memory(err);
	return MD_OK;
}

static enum md_status hold_part(struct tables *tables, struct table *table, struct part part, struct md_error *err)
{
	MD_CLEANUP(md_counterpart_finish) struct md_counterpart two = {0};
	MD_AUTO_FREE uint8_t *zeros = NULL;
	const uint8_t *one = part.from->data ? part.from->data + (part.start - part.from->address) : NULL;
	uint64_t start = part.start;

	if (!one)
		one = zeros = calloc(part.end - part.start, 1);
	if (!one || !fill_counterpart(tables, &part, one, &two))
		return md_analysis_no_memory(err);
	if (!trim(&part, one, two.data))
		return MD_OK;
	struct md_counterpart rest = {two.data + (part.start - start), two.known + (part.start - start), two.sequence,
				      two.found};
	return hold(tables, table, &part, one + (part.start - start), &rest, err);
}

static void drop_from(struct md_analysis *analysis, uint32_t count)
{
	while (analysis->held_count > count) {
		struct md_held *held = &analysis->held[--analysis->held_count];
		free(held->data);
		free(held->findings.items);
	}
}

static bool has_address(const struct tables *tables, const struct table *table, const struct md_target *target)
{
	return target->alloc != MD_NONE && target->binding == MD_NONE &&
	       tables->analysis->group[target->alloc] == table->group &&
	       address_of(tables->analysis, target) == table->address;
}

static bool any_address(const struct tables *tables, const struct table *table, const struct md_findings *findings)
{
	for (uint32_t i = 0; i < findings->count; i++)
		if (has_address(tables, table, &findings->items[i].target))
			return true;
	return false;
}

/* Graphs that have its address, and those that read it in contents. */
static void refuse_users(struct tables *tables, const struct table *table)
{
	struct md_analysis *analysis = tables->analysis;
	bool found = false;

	for (uint32_t i = 0; table->by_address && i < analysis->pair_count; i++) {
		struct md_pair *pair = &analysis->pairs[i];
		bool uses = any_address(tables, table, &pair->findings);
		for (uint32_t o = 0; pair->outputs && o < pair->graph[0]->output_count && !uses; o++)
			uses = has_address(tables, table, &pair->outputs[o]);
		if (uses)
			md_pair_refuse(pair, "%s", table->why);
		found |= uses;
	}
	for (uint32_t i = 0; table->by_address && i < analysis->held_count; i++) {
		if (!any_address(tables, table, &analysis->held[i].findings))
			continue;
		md_content_break(analysis, analysis->held[i].alloc, table->why);
		found = true;
	}
	if (!found)
		md_content_break(analysis, table->group, table->why);
}

/* Of a group, the allocation that holds where it begins. */
static uint32_t alloc_of(const struct md_analysis *analysis, const struct table *table)
{
	const struct md_view *view = &analysis->views[0];

	for (uint32_t i = 0; i < view->alloc_count; i++)
		if (analysis->group[i] == table->group && table->start >= view->allocs[i].address &&
		    table->start - view->allocs[i].address < view->allocs[i].size)
			return i;
	return table->group;
}

static char *explain(const struct md_analysis *analysis, const struct table *table, const char *why)
{
	uint32_t index = alloc_of(analysis, table);
	const struct md_view_alloc *alloc = &analysis->views[0].allocs[index];
	char *text = NULL;

	if (asprintf(&text,
		     "memory that nobody bound: %s; no input that was seen reads bytes %" PRIu64 " to %" PRIu64
		     " of allocation %" PRIu32 " (%" PRIu64 " bytes), and another one may: bind it",
		     why, table->start - alloc->address, table->end - 1 - alloc->address, index, alloc->size) < 0)
		return NULL;
	return text;
}

static enum md_status refuse(struct tables *tables, struct table *table, uint32_t held_before, struct md_error *err)
{
	char *text = explain(tables->analysis, table, table->why);

	free(table->why);
	table->why = text;
	drop_from(tables->analysis, held_before);
	if (!text)
		return md_analysis_no_memory(err);
	refuse_users(tables, table);
	return MD_OK;
}

static uint32_t first_part(const struct tables *tables, const struct table *table)
{
	uint32_t low = 0, high = tables->part_count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		const struct part *part = &tables->parts[middle];
		if (part->group < table->group || (part->group == table->group && part->end <= table->start))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static enum md_status take_table(struct tables *tables, struct table *table, struct md_error *err)
{
	uint32_t held_before = tables->analysis->held_count;
	uint64_t at = table->start;

	for (uint32_t i = first_part(tables, table); i < tables->part_count && at < table->end && !table->why; i++) {
		struct part part = tables->parts[i];
		if (part.group != table->group || part.start > at)
			break;
		part.start = at;
		part.end = part.end < table->end ? part.end : table->end;
		MD_FORWARD(hold_part(tables, table, part, err));
		at = part.end;
	}
	if (at < table->end && !table->why)
		table->why = strdup("it is too large to be saved");
	return table->why ? refuse(tables, table, held_before, err) : MD_OK;
}

/* What lies between two walls of a group is a table if one of them is contents. */
static enum md_status take_tables(struct tables *tables, struct md_error *err)
{
	struct table table = {.group = MD_NONE};
	uint64_t reached = 0;
	bool needed = false;
	enum md_status status = MD_OK;

	for (uint32_t i = 0; i < tables->wall_count && status == MD_OK; i++) {
		const struct wall *wall = &tables->walls[i];
		if (wall->group != table.group) {
			table = (struct table){.group = wall->group};
			reached = wall->start;
			needed = false;
		}
		table.start = reached;
		table.end = wall->start;
		if (wall->start > reached && (needed || wall->kind == WALL_NEEDED))
			status = take_table(tables, &table, err);
		free(md_steal_ptr(&table.why));
		if (wall->end >= reached)
			needed =
			    wall->kind == WALL_NEEDED || (wall->kind != WALL_CUT && wall->end == reached && needed);
		if (wall->kind == WALL_CUT) {
			table.by_address = true;
			table.address = wall->start;
		}
		reached = wall->end > reached ? wall->end : reached;
	}
	return status;
}

/* ---- graphs of which too little is known ---- */

static bool reaches_wanted(const struct tables *tables, const struct md_pair *pair)
{
	for (uint32_t i = 0; i < pair->findings.count; i++) {
		const struct md_target *target = &pair->findings.items[i].target;
		if (target->binding == MD_NONE && tables->wanted[tables->analysis->group[target->alloc]])
			return true;
	}
	return false;
}

/* Those that passed no test are refused elsewhere, or nobody wanted tests. */
static void refuse_unknown(struct tables *tables)
{
	for (uint32_t i = 0; i < tables->analysis->pair_count; i++) {
		struct md_pair *pair = &tables->analysis->pairs[i];
		enum md_probe_result probe = pair->graph[0]->probe;
		if (!pair->why && (probe == MD_PROBE_CLEAN || probe == MD_PROBE_CONTENT_SAVED) &&
		    !pair->graph[0]->written_known && reaches_wanted(tables, pair))
			md_pair_refuse(pair, "what it writes beside contents in memory that nobody bound is not known");
	}
}

static bool any_map(const struct md_trace *trace)
{
	for (uint32_t i = 0; i < trace->graph_count; i++)
		if (trace->graphs[i].written_known)
			return true;
	return false;
}

enum md_status md_pass_table(struct md_analysis *analysis, struct md_error *err)
{
	MD_CLEANUP(tables_finish) struct tables tables = {.analysis = analysis, .held_room = analysis->held_count + 1};

	if (!analysis->held_count)
		return MD_OK;
	tables.wanted = calloc(analysis->views[0].alloc_count + 1u, 1);
	if (!tables.wanted)
		return md_analysis_no_memory(err);
	for (uint32_t i = 0; i < analysis->held_count; i++)
		tables.wanted[analysis->group[analysis->held[i].alloc]] = 1;
	refuse_unknown(&tables);
	if (!any_map(analysis->traces[0]))
		return MD_OK;
	MD_FORWARD(list_walls(&tables, err));
	MD_FORWARD(list_parts(&tables, err));
	MD_FORWARD(list_places(&tables, err));
	MD_FORWARD(take_tables(&tables, err));
	md_content_refuse_users(analysis);
	return MD_OK;
}
