/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pass: unbound memory of a graph that kernels outside of graphs are given. A restored graph has its own memory in that
 * place, so neither the graph nor the engine would see what the other one writes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "analyze/analysis.h"
#include "analyze/spots.h"
#include "base/cleanup.h"
#include "driver/maker.h"

/* A part of an allocation. */
struct range {
	uint32_t alloc;
	uint64_t start, end;
};

/* What one launch was given; size 0: one address. */
struct given {
	struct md_spot spot;
	const struct md_trace_given *record;
	unsigned capture;
	const struct md_kernel *kernel; /* NULL: unknown */
	/* of the address; NULL: unknown, or the address lies in several parameters */
	const struct md_param *param;
	const struct md_view_alloc *alloc; /* of the capture that recorded the launch */
	bool scratch; /* memory that only graphs use, as the engine states; the address may be a stale one */
};

struct work {
	struct md_analysis *analysis;
	struct md_spots *of_pair; /* targets of each pair's words */
	struct md_spots starts;   /* targets of all pairs' words */
	struct md_spots asked;    /* addresses that kernels are given */
	struct range *outputs;    /* outputs that graphs have declared, ascending */
	size_t output_count;
	struct given *given;
	size_t given_count;
	struct range *spared; /* of the launch that is judged: memory that only graphs use, as the engine states */
	size_t spared_count;
	struct md_spots passed; /* addresses that refused no graph for that reason */
};

static void work_finish(struct work *work)
{
	for (uint32_t i = 0; work->of_pair && i < work->analysis->pair_count; i++)
		free(work->of_pair[i].items);
	free(work->of_pair);
	free(work->starts.items);
	free(work->asked.items);
	free(work->outputs);
	free(work->given);
	free(work->spared);
	free(work->passed.items);
}

/* ---- what graphs have ---- */

/* A virtual origin may lead anywhere in its allocation. */
static bool add_target(struct work *work, struct md_spots *spots, const struct md_target *target)
{
	const struct md_view *view = &work->analysis->views[0];
	struct md_spot spot = {target->alloc, (uint64_t)target->offset};
	if (target->binding != MD_NONE)
		return true;
	if (target->offset < 0 || spot.offset > view->allocs[target->alloc].size)
		spot.offset = 0;
	return md_spots_add(spots, spot) && md_spots_add(&work->starts, spot);
}

static bool list_pair(struct work *work, uint32_t index)
{
	const struct md_analysis *analysis = work->analysis;
	const struct md_findings *findings = &analysis->pairs[index].findings;
	struct md_spots *spots = &work->of_pair[index];
	for (uint32_t f = 0; f < findings->count; f++)
		if (!add_target(work, spots, &findings->items[f].target))
			return false;
	for (uint32_t h = 0; h < analysis->held_count; h++) /* any graph may follow an address that lies in contents */
		for (uint32_t f = 0; f < analysis->held[h].findings.count; f++)
			if (!add_target(work, spots, &analysis->held[h].findings.items[f].target))
				return false;
	md_spots_sort(spots);
	return true;
}

static int compare_ranges(const void *left, const void *right)
{
	const struct range *a = left, *b = right;
	return md_spot_compare(&(struct md_spot){a->alloc, a->start}, &(struct md_spot){b->alloc, b->start});
}

static enum md_status list_outputs(struct work *work, struct md_error *err)
{
	const struct md_analysis *analysis = work->analysis;
	size_t count = 0;
	for (uint32_t i = 0; i < analysis->pair_count; i++)
		count += analysis->pairs[i].graph[0]->output_count;
	work->outputs = calloc(count + 1, sizeof(*work->outputs));
	if (!work->outputs)
		return md_analysis_no_memory(err);
	for (uint32_t i = 0; i < analysis->pair_count; i++) {
		const struct md_pair *pair = &analysis->pairs[i];
		for (uint32_t o = 0; pair->outputs && o < pair->graph[0]->output_count; o++) {
			const struct md_target *target = &pair->outputs[o];
			if (target->alloc == MD_NONE || target->binding != MD_NONE)
				continue;
			work->outputs[work->output_count++] =
			    (struct range){target->alloc, (uint64_t)target->offset,
					   (uint64_t)target->offset + pair->graph[0]->outputs[o].size};
		}
	}
	qsort(work->outputs, work->output_count, sizeof(*work->outputs), compare_ranges);
	return MD_OK;
}

static const struct range *range_at(const struct range *ranges, size_t count, struct md_spot spot)
{
	for (size_t i = 0; i < count; i++)
		if (ranges[i].alloc == spot.alloc && spot.offset >= ranges[i].start && spot.offset < ranges[i].end)
			return &ranges[i];
	return NULL;
}

static const struct range *output_at(const struct work *work, struct md_spot spot)
{
	return range_at(work->outputs, work->output_count, spot);
}

/* ---- what kernels are given ---- */

/* NULL: the layout is unknown, or the word spans two parameters. */
static const struct md_param *param_of(const struct md_kernel *kernel, uint32_t offset)
{
	for (uint32_t i = 0; kernel && offset != MD_NONE && i < kernel->param_count; i++) {
		const struct md_param *param = &kernel->params[i];
		if (param->offset <= offset && (uint64_t)offset + 8 <= (uint64_t)param->offset + param->size)
			return param;
	}
	return NULL;
}

/* Members of a struct may be unset. A parameter of 8 bytes was set by its caller. */
static bool in_struct(const struct given *given)
{
	return given->param && given->param->size > 8;
}

static void take_record(struct given *given, const struct md_trace *trace, const struct md_trace_given *record)
{
	given->record = record;
	given->kernel = record->kernel == MD_NONE ? NULL : &trace->kernels[record->kernel];
	given->param = param_of(given->kernel, record->offset);
}

/*
 * Translates the address into the first capture; false if no graph can have it, because the first capture has no such
 * allocation.
 */
static enum md_status place_given(struct work *work, unsigned capture, const struct md_trace_given *record,
				  struct md_error *err)
{
	struct md_analysis *analysis = work->analysis;
	const struct md_trace *trace = analysis->traces[capture];
	struct given *given = &work->given[work->given_count];
	struct md_place place;
	MD_FORWARD(md_view_seek(&analysis->views[capture], record->sequence, err));
	if (!md_view_locate(&analysis->views[capture], record->address, &place) ||
	    (place.binding != MD_NONE && !place.replaced && !record->size))
		return MD_OK;
	*given = (struct given){.spot = {place.alloc, place.alloc_offset},
				.capture = capture,
				.alloc = &analysis->views[capture].allocs[place.alloc]};
	take_record(given, trace, record);
	if (capture)
		given->spot.alloc = analysis->partner_back[place.alloc];
	if (given->spot.alloc == MD_NONE)
		return MD_OK;
	given->scratch = record->scratch && in_struct(given) && !output_at(work, given->spot);
	work->given_count++;
	return given->scratch || md_spots_add(&work->asked, given->spot) ? MD_OK : md_analysis_no_memory(err);
}

static enum md_status list_given(struct work *work, struct md_error *err)
{
	const struct md_analysis *analysis = work->analysis;
	size_t count = 0, scratch = 0;
	for (unsigned c = 0; c < analysis->captures; c++) {
		count += analysis->traces[c]->given_count;
		scratch += analysis->traces[c]->scratch_count;
	}
	work->given = calloc(count + 1, sizeof(*work->given));
	work->spared = calloc(scratch + 1, sizeof(*work->spared));
	if (!work->given || !work->spared)
		return md_analysis_no_memory(err);
	for (unsigned c = 0; c < analysis->captures; c++)
		for (uint32_t i = 0; i < analysis->traces[c]->given_count; i++)
			MD_FORWARD(place_given(work, c, &analysis->traces[c]->given[i], err));
	md_spots_sort(&work->asked);
	return MD_OK;
}

/* The parts of the allocation that only graphs used at that moment, as the engine had stated. */
static void list_spared(struct work *work, const struct given *given)
{
	const struct md_trace *trace = work->analysis->traces[given->capture];
	uint64_t base = given->alloc->address, size = given->alloc->size;
	work->spared_count = 0;
	for (uint32_t i = 0; given->scratch && i < trace->scratch_count; i++) {
		const struct md_trace_scratch *said = &trace->scratch[i];
		uint64_t end = said->address + said->size;
		if (said->sequence > given->record->sequence)
			continue;
		if (!said->size)
			work->spared_count = 0;
		else if (said->sequence > given->alloc->born && end > base && said->address < base + size)
			work->spared[work->spared_count++] =
			    (struct range){given->spot.alloc, said->address > base ? said->address - base : 0,
					   end < base + size ? end - base : size};
	}
}

/* ---- what a graph does there ---- */

static bool any_unspared(const struct work *work, uint32_t alloc, uint64_t at, uint64_t end)
{
	while (at < end) {
		const struct range *spared = range_at(work->spared, work->spared_count, (struct md_spot){alloc, at});
		if (!spared)
			return true;
		at = spared->end;
	}
	return false;
}

/* Whether some byte of [at, end) is neither an output nor spared; *where is the first one. */
static bool any_undeclared(const struct work *work, uint32_t alloc, uint64_t at, uint64_t end, uint64_t *where)
{
	while (at < end) {
		const struct md_spot spot = {alloc, at};
		const struct range *range = output_at(work, spot);
		range = range ? range : range_at(work->spared, work->spared_count, spot);
		if (!range) {
			*where = at;
			return true;
		}
		at = range->end;
	}
	return false;
}

/*
 * Whether the graph writes in the range, outside of declared outputs; *where is the first such byte. A graph whose
 * writes are not known counts as one that writes.
 */
static bool writes(const struct work *work, const struct md_pair *pair, const struct range *range, uint64_t *where)
{
	const struct md_trace_graph *graph = pair->graph[0];
	uint64_t base = work->analysis->views[0].allocs[range->alloc].address;
	uint32_t low = 0, high = graph->written_count;
	if (!graph->written_known)
		return any_undeclared(work, range->alloc, range->start, range->end, where);
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (graph->written[middle].address + graph->written[middle].size <= base + range->start)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < graph->written_count && graph->written[low].address < base + range->end; low++) {
		uint64_t from = graph->written[low].address, to = from + graph->written[low].size;
		from = from > base + range->start ? from - base : range->start;
		to = to < base + range->end ? to - base : range->end;
		if (any_undeclared(work, range->alloc, from, to, where))
			return true;
	}
	return false;
}

/* Kernels read the addresses of what ranks share, and do not write them; the engine's copies there are known otherwise. */
static bool is_table_of_ranks(const struct md_analysis *analysis, const struct md_held *held)
{
	for (uint32_t f = 0; f < held->findings.count; f++) {
		uint32_t binding = held->findings.items[f].target.binding;
		if (binding == MD_NONE || !md_maker_is_peers(analysis->views[0].bindings[binding].name))
			return false;
	}
	return held->size == (uint64_t)held->findings.count * 8;
}

static bool needs(const struct work *work, const struct range *range)
{
	for (uint32_t i = 0; i < work->analysis->held_count; i++) {
		const struct md_held *held = &work->analysis->held[i];
		uint64_t from = held->offset > range->start ? held->offset : range->start;
		uint64_t to = held->offset + held->size < range->end ? held->offset + held->size : range->end;
		if (held->alloc == range->alloc && !is_table_of_ranks(work->analysis, held) &&
		    any_unspared(work, range->alloc, from, to))
			return true;
	}
	return false;
}

/* ---- what is said of it ---- */

#define WHERE_TEXT 96

static const char *kernel_name(const struct given *given)
{
	return given->kernel ? given->kernel->name : "";
}

/* " in parameter 1 (bytes 8..15)", or nothing. */
static const char *print_where(const struct given *given, char text[WHERE_TEXT])
{
	uint32_t at = given->record->offset;
	*text = 0;
	if (given->param)
		snprintf(text, WHERE_TEXT, " in parameter %td%s (bytes %" PRIu32 "..%" PRIu64 ")",
			 given->param - given->kernel->params, in_struct(given) ? ", a struct" : "", at,
			 (uint64_t)at + 7);
	else if (at != MD_NONE)
		snprintf(text, WHERE_TEXT, " in bytes %" PRIu32 "..%" PRIu64 " of the parameters", at,
			 (uint64_t)at + 7);
	return text;
}

/* What else the user can do about it. */
static const char *hint(const struct given *given)
{
	if (given->record->scratch && !in_struct(given))
		return "; medusa_graph_scratch does not cover an address that is a parameter of its own";
	if (!given->record->scratch && in_struct(given))
		return "; if nobody has set these bytes and only graphs use that memory, state so with "
		       "medusa_graph_scratch";
	return "";
}

/* written: a byte that the graph writes there, and that is neither a declared output nor stated to be scratch memory. */
static void refuse_written(struct md_pair *pair, const struct given *given, uint64_t offset, uint64_t written)
{
	char where[WHERE_TEXT], which[48] = "";
	if (written > offset)
		snprintf(which, sizeof(which), "; it writes byte %" PRIu64, written);
	md_pair_refuse(pair,
		       "%s%s, used outside of graphs, is given memory that the graph writes (allocation %" PRIu32
		       ", byte %" PRIu64 ")%s: bind it, or declare it with medusa_graph_output%s%s",
		       given->kernel ? "kernel " : "a kernel", kernel_name(given), given->spot.alloc, offset,
		       print_where(given, where), hint(given), which);
}

static void refuse_needed(struct md_pair *pair, const struct given *given, uint64_t offset)
{
	char where[WHERE_TEXT];
	md_pair_refuse(
	    pair,
	    "%s%s, used outside of graphs, is given memory that the graph reads (allocation %" PRIu32 ", byte %" PRIu64
	    ")%s and may write it: bind it (a table as constant), or accept it with --accept-unvaried if it never "
	    "varies%s",
	    given->kernel ? "kernel " : "a kernel", kernel_name(given), given->spot.alloc, offset,
	    print_where(given, where), hint(given));
}

/* range: memory that both may use. of_output: an output, which the engine may read. */
static void judge(const struct work *work, struct md_pair *pair, const struct given *given, struct range range,
		  const struct range *of_output)
{
	uint64_t at = given->spot.offset > range.start ? given->spot.offset : range.start, written = at;
	if (of_output) {
		range.start = of_output->start > range.start ? of_output->start : range.start;
		range.end = of_output->end < range.end ? of_output->end : range.end;
	} else if (writes(work, pair, &range, &written)) {
		refuse_written(pair, given, at, written);
	}
	if (!work->analysis->options.accept_unvaried && needs(work, &range))
		refuse_needed(pair, given, at);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* From an address of the graph up to the next address of any graph, the next binding, or the allocation's end. */
static struct range stretch(const struct work *work, struct md_spot start)
{
	uint64_t end = md_spot_piece_end(&work->analysis->views[0], start);
	return (struct range){start.alloc, start.offset, md_spots_next(&work->starts, start, end)};
}

/*
 * Compares with the stretch in which the address lies, and with the stretches behind it that the address may reach: up
 * to another address that kernels are given, a binding, or the end of an output.
 */
static void compare(const struct work *work, uint32_t index, const struct given *given)
{
	struct md_pair *pair = &work->analysis->pairs[index];
	const struct md_spots *spots = &work->of_pair[index];
	const struct range *output = given->record->size ? NULL : output_at(work, given->spot);
	uint64_t reach = md_spot_piece_end(&work->analysis->views[0], given->spot);
	size_t at = md_spots_behind(spots, given->spot);
	if (at && spots->items[at - 1].alloc == given->spot.alloc) {
		struct range mine = stretch(work, spots->items[at - 1]);
		if (mine.end > given->spot.offset)
			judge(work, pair, given, mine, output);
	}
	reach = given->record->size ? given->spot.offset + given->record->size
				    : md_spots_next(&work->asked, given->spot, reach);
	reach = output ? least(reach, output->end) : reach;
	for (; !pair->why && at < spots->count && spots->items[at].alloc == given->spot.alloc &&
	       spots->items[at].offset < reach;
	     at++) {
		struct range mine = stretch(work, spots->items[at]);
		mine.end = least(mine.end, reach);
		judge(work, pair, given, mine, output);
	}
}

/* Compares with every graph that was made before the launch; false when out of memory. */
static bool compare_all(struct work *work, const struct given *given)
{
	bool compared = false;
	list_spared(work, given);
	for (uint32_t i = 0; i < work->analysis->pair_count; i++) {
		const struct md_pair *pair = &work->analysis->pairs[i];
		const struct md_trace_graph *graph = pair->graph[given->capture];
		if (pair->why || !graph || given->record->sequence <= graph->sequence)
			continue;
		compare(work, i, given);
		compared = true;
	}
	return !compared || !work->spared_count || md_spots_add(&work->passed, given->spot);
}

enum md_status md_pass_given(struct md_analysis *analysis, struct md_error *err)
{
	MD_CLEANUP(work_finish) struct work work = {.analysis = analysis};
	if (!analysis->traces[0]->given_count && !(analysis->captures == 2 && analysis->traces[1]->given_count))
		return MD_OK;
	work.of_pair = calloc(analysis->pair_count + (size_t)1, sizeof(*work.of_pair));
	if (!work.of_pair)
		return md_analysis_no_memory(err);
	for (uint32_t i = 0; i < analysis->pair_count; i++)
		if (!list_pair(&work, i))
			return md_analysis_no_memory(err);
	md_spots_sort(&work.starts);
	MD_FORWARD(list_outputs(&work, err));
	MD_FORWARD(list_given(&work, err));
	for (size_t g = 0; g < work.given_count; g++)
		if (!compare_all(&work, &work.given[g]))
			return md_analysis_no_memory(err);
	md_spots_sort(&work.passed);
	analysis->scratch_addresses = work.passed.count;
	return MD_OK;
}
