/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pass: the memory beside contents that graphs read, up to the next address, binding, or byte that a graph writes. Such
 * memory is a table, and another input may read the rest of it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/tables.h"
#include "base/array.h"
#include "base/cleanup.h"

/* ---- tables ---- */

struct table { /* between two walls */
	uint32_t group;
	uint64_t start, end;
	uint64_t address; /* by which graphs reach the table */
	bool by_address;  /* false: the table lies before every address */
	char *why;        /* owned; NULL, or why the table cannot be stored */
};

static bool fill_counterpart(const struct md_tables *tables, const struct md_table_part *part, const uint8_t *one,
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
		const struct md_table_place *place = &tables->places[i];
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

/* Cuts off zeros at both ends, which are zeros in the other capture, too. False: there is nothing but zeros. */
static bool trim(struct md_table_part *part, const uint8_t *one, const uint8_t *two)
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

static enum md_status hold(struct md_tables *tables, struct table *table, const struct md_table_part *part,
			   const uint8_t *one, const struct md_counterpart *two, struct md_error *err)
{
	struct md_analysis *analysis = tables->analysis;
	struct md_held held = {.variable = MD_NONE,
			       .alloc = part->alloc,
			       .offset = part->start - analysis->views[0].allocs[part->alloc].address,
			       .size = part->end - part->start,
			       .unread = true,
			       .compared = two->found && !memchr(two->known, 0, part->end - part->start)};
	if (!MD_ARRAY_GROW(analysis->held, analysis->held_count, tables->held_room))
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

static enum md_status hold_part(struct md_tables *tables, struct table *table, struct md_table_part part,
				struct md_error *err)
{
	MD_CLEANUP(md_counterpart_finish) struct md_counterpart two = {0};
	MD_AUTO_FREE uint8_t *zeros = part.from->data ? NULL : calloc(part.end - part.start, 1);
	const uint8_t *one = part.from->data ? part.from->data + (part.start - part.from->address) : zeros;
	uint64_t start = part.start;
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

static bool has_address(const struct md_tables *tables, const struct table *table, const struct md_target *target)
{
	return target->alloc != MD_NONE && target->binding == MD_NONE &&
	       tables->analysis->group[target->alloc] == table->group &&
	       md_tables_address(tables->analysis, target) == table->address;
}

static bool any_address(const struct md_tables *tables, const struct table *table, const struct md_findings *findings)
{
	for (uint32_t i = 0; i < findings->count; i++)
		if (has_address(tables, table, &findings->items[i].target))
			return true;
	return false;
}

/* Refuses the graphs that have the table's address, and those that reach it through contents. */
static void refuse_users(struct md_tables *tables, const struct table *table)
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

/* The allocation of the group in which the table begins. */
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
		     "unbound memory: %s; no recorded input makes the graph read bytes %" PRIu64 " to %" PRIu64
		     " of allocation %" PRIu32 " (%" PRIu64 " bytes), but another input may: bind it",
		     why, table->start - alloc->address, table->end - 1 - alloc->address, index, alloc->size) < 0)
		return NULL;
	return text;
}

static enum md_status refuse(struct md_tables *tables, struct table *table, uint32_t held_before, struct md_error *err)
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

static uint32_t first_part(const struct md_tables *tables, const struct table *table)
{
	uint32_t low = 0, high = tables->part_count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		const struct md_table_part *part = &tables->parts[middle];
		if (part->group < table->group || (part->group == table->group && part->end <= table->start))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Holds the saved parts of the table; *end is how far they reach. */
static enum md_status hold_parts(struct md_tables *tables, struct table *table, uint64_t *end, struct md_error *err)
{
	uint64_t at = table->start;
	for (uint32_t i = first_part(tables, table); i < tables->part_count && at < table->end && !table->why; i++) {
		struct md_table_part part = tables->parts[i];
		if (part.group != table->group || part.start > at)
			break;
		part.start = at;
		part.end = part.end < table->end ? part.end : table->end;
		MD_FORWARD(hold_part(tables, table, part, err));
		at = part.end;
	}
	*end = at;
	return MD_OK;
}

static enum md_status take_table(struct md_tables *tables, struct table *table, struct md_error *err)
{
	uint32_t held_before = tables->analysis->held_count;
	uint64_t end;
	MD_FORWARD(hold_parts(tables, table, &end, err));
	if (end < table->end && !table->why)
		table->why = strdup("it is too large to be saved");
	return table->why ? refuse(tables, table, held_before, err) : MD_OK;
}

static bool all_compared(const struct md_analysis *analysis, uint32_t from)
{
	for (uint32_t i = from; analysis->captures == 2 && i < analysis->held_count; i++)
		if (!analysis->held[i].compared)
			return false;
	return true;
}

/*
 * No replay has read or written the table, although a graph has its address. Bytes that the engine has copied there are
 * kept if both captures have them. All else may be garbage, and is counted.
 */
static enum md_status take_untouched(struct md_tables *tables, const struct table *table, struct md_error *err)
{
	struct md_analysis *analysis = tables->analysis;
	uint32_t held_before = analysis->held_count;
	struct table copied = *table;
	uint64_t end = table->start;
	bool is = false;
	copied.end = md_tables_known(&tables->copied[alloc_of(analysis, table)], table->start, table->end, &is);
	if (is)
		MD_FORWARD(hold_parts(tables, &copied, &end, err));
	if (copied.why || !all_compared(analysis, held_before)) {
		drop_from(analysis, held_before);
		end = table->start;
	}
	free(copied.why);
	analysis->untouched_bytes += table->end - end;
	analysis->untouched_places += table->end > end;
	return MD_OK;
}

/* The memory between two walls of a group is a table if one of the walls is contents. */
static enum md_status take_gap(struct md_tables *tables, struct table *table, const struct md_wall *wall, bool needed,
			       struct md_error *err)
{
	if (table->start >= table->end)
		return MD_OK;
	if (needed || wall->kind == MD_WALL_NEEDED)
		return take_table(tables, table, err);
	return table->by_address && table->address == table->start ? take_untouched(tables, table, err) : MD_OK;
}

static enum md_status take_tables(struct md_tables *tables, struct md_error *err)
{
	struct table table = {.group = MD_NONE};
	uint64_t reached = 0;
	bool needed = false;
	enum md_status status = MD_OK;
	for (uint32_t i = 0; i < tables->wall_count && status == MD_OK; i++) {
		const struct md_wall *wall = &tables->walls[i];
		if (wall->group != table.group) {
			table = (struct table){.group = wall->group};
			reached = wall->start;
			needed = false;
		}
		table.start = reached;
		table.end = wall->start;
		status = take_gap(tables, &table, wall, needed, err);
		free(md_steal_ptr(&table.why));
		if (wall->end >= reached)
			needed = wall->kind == MD_WALL_NEEDED ||
				 (wall->kind > MD_WALL_CUT && wall->end == reached && needed);
		if (wall->kind == MD_WALL_CUT) {
			table.by_address = true;
			table.address = wall->start;
		}
		reached = wall->end > reached ? wall->end : reached;
	}
	return status;
}

/* ---- graphs of which too little is known ---- */

static bool reaches_contents(const struct md_tables *tables, const struct md_pair *pair)
{
	for (uint32_t i = 0; i < pair->findings.count; i++) {
		const struct md_target *target = &pair->findings.items[i].target;
		if (target->binding == MD_NONE && tables->holds[tables->analysis->group[target->alloc]])
			return true;
	}
	return false;
}

/* Graphs that passed no test are refused elsewhere, unless the user has switched tests off. */
static void refuse_unknown(struct md_tables *tables)
{
	for (uint32_t i = 0; i < tables->analysis->pair_count; i++) {
		struct md_pair *pair = &tables->analysis->pairs[i];
		enum md_probe_result probe = pair->graph[0]->probe;
		if (!pair->why && (probe == MD_PROBE_CLEAN || probe == MD_PROBE_CONTENT_SAVED) &&
		    !pair->graph[0]->written_known && reaches_contents(tables, pair))
			md_pair_refuse(pair, "what it writes beside contents in unbound memory is not known");
	}
}

static bool any_map(const struct md_trace *trace)
{
	for (uint32_t i = 0; i < trace->graph_count; i++)
		if (trace->graphs[i].written_known)
			return true;
	return false;
}

static void want(struct md_tables *tables, const struct md_findings *findings)
{
	for (uint32_t i = 0; i < findings->count; i++) {
		const struct md_target *target = &findings->items[i].target;
		if (target->binding == MD_NONE)
			tables->wanted[tables->analysis->group[target->alloc]] = 1;
	}
}

static bool prepare(struct md_tables *tables)
{
	struct md_analysis *analysis = tables->analysis;
	uint32_t allocs = analysis->views[0].alloc_count;
	tables->wanted = calloc(allocs + 1u, 1);
	tables->holds = calloc(allocs + 1u, 1);
	tables->copied = calloc(allocs + 1u, sizeof(*tables->copied));
	if (!tables->wanted || !tables->holds || !tables->copied)
		return false;
	want(tables, tables->more);
	for (uint32_t i = 0; i < analysis->pair_count; i++)
		want(tables, &analysis->pairs[i].findings);
	for (uint32_t i = 0; i < analysis->held_count; i++) {
		uint32_t group = analysis->group[analysis->held[i].alloc];
		tables->wanted[group] = tables->holds[group] = 1;
		want(tables, &analysis->held[i].findings);
	}
	return true;
}

static bool is_new(const struct md_tables *tables, const struct md_target *target)
{
	return target->binding == MD_NONE && !md_map_get(&tables->cuts, md_tables_key(tables, target), NULL);
}

/* Tables may hold addresses of further tables, which no graph has otherwise. */
static enum md_status find_more(const struct md_tables *tables, uint32_t held_before, struct md_findings *more,
				struct md_error *err)
{
	const struct md_analysis *analysis = tables->analysis;
	for (uint32_t i = held_before; i < analysis->held_count; i++) {
		const struct md_findings *findings = &analysis->held[i].findings;
		for (uint32_t f = 0; f < findings->count; f++)
			if (is_new(tables, &findings->items[f].target) &&
			    !md_findings_add(more, MD_NONE, 0, &findings->items[f].target))
				return md_analysis_no_memory(err);
	}
	return MD_OK;
}

static enum md_status run_round(struct md_analysis *analysis, struct md_findings *more, bool last, struct md_error *err)
{
	MD_CLEANUP(md_tables_finish)
	struct md_tables tables = {.analysis = analysis, .held_room = analysis->held_count, .more = more};
	uint32_t held_before = analysis->held_count, known = more->count;

	analysis->untouched_bytes = analysis->untouched_places = 0;
	md_map_init(&tables.cuts);
	if (!prepare(&tables))
		return md_analysis_no_memory(err);
	refuse_unknown(&tables);
	if (!any_map(analysis->traces[0]))
		return MD_OK;
	MD_FORWARD(md_tables_list(&tables, err));
	MD_FORWARD(take_tables(&tables, err));
	MD_FORWARD(find_more(&tables, held_before, more, err));
	if (more->count > known && !last)
		drop_from(analysis, held_before);
	return MD_OK;
}

#define MOST_ROUNDS 8

enum md_status md_pass_table(struct md_analysis *analysis, struct md_error *err)
{
	struct md_findings more = {0};
	enum md_status status = MD_OK;
	bool again = true;
	for (int round = 1; status == MD_OK && again && round <= MOST_ROUNDS; round++) {
		uint32_t known = more.count;
		status = run_round(analysis, &more, round == MOST_ROUNDS, err);
		again = more.count > known;
	}
	free(more.items);
	if (analysis->options.untouched)
		*analysis->options.untouched =
		    (struct md_untouched){analysis->untouched_bytes, analysis->untouched_places};
	if (status == MD_OK)
		md_content_refuse_users(analysis);
	return status;
}
