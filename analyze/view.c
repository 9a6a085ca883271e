/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a view: events of the allocations in order, and the parts of allocations that are bound by name. */
#include "analyze/view.h"

#include <stdlib.h>
#include <string.h>

#include "analyze/paint.h"
#include "base/cleanup.h"

static enum md_status no_memory(struct md_error *err)
{
	return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the index of a trace");
}

static int compare_events(const void *left, const void *right)
{
	const struct md_view_event *a = left, *b = right;
	if (a->sequence != b->sequence)
		return a->sequence < b->sequence ? -1 : 1;
	if (a->birth != b->birth)
		return a->birth ? 1 : -1; /* an address is freed before it is handed out again */
	return (a->alloc > b->alloc) - (a->alloc < b->alloc);
}

/* Events and address limits of all allocations, made-up ones included; starts over at sequence 0. */
static enum md_status build_events(struct md_view *view, struct md_error *err)
{
	struct md_view_event *events = calloc(view->alloc_count ? 2 * (size_t)view->alloc_count : 1, sizeof(*events));
	uint32_t count = 0;
	if (!events)
		return no_memory(err);
	view->lowest = UINT64_MAX;
	view->highest = 0;
	for (uint32_t i = 0; i < view->alloc_count; i++) {
		const struct md_view_alloc *alloc = &view->allocs[i];
		if (!alloc->size)
			continue;
		events[count++] = (struct md_view_event){alloc->born, i, true};
		if (alloc->died != UINT64_MAX)
			events[count++] = (struct md_view_event){alloc->died, i, false};
		if (alloc->address < view->lowest)
			view->lowest = alloc->address;
		if (alloc->address + alloc->size > view->highest)
			view->highest = alloc->address + alloc->size;
	}
	qsort(events, count, sizeof(*events), compare_events);
	free(view->events);
	view->events = events;
	view->event_count = count;
	view->next_event = 0;
	view->now = 0;
	md_interval_finish(&view->live);
	md_interval_init(&view->live);
	return MD_OK;
}

enum md_status md_view_seek(struct md_view *view, uint64_t sequence, struct md_error *err)
{
	if (sequence < view->now) {
		md_interval_finish(&view->live);
		md_interval_init(&view->live);
		view->next_event = 0;
	}
	view->now = sequence;
	for (; view->next_event < view->event_count; view->next_event++) {
		const struct md_view_event *event = &view->events[view->next_event];
		const struct md_view_alloc *alloc = &view->allocs[event->alloc];
		if (event->sequence > sequence)
			break;
		if (event->birth) {
			if (!md_interval_add(&view->live, alloc->address, alloc->size, event->alloc))
				return no_memory(err);
		} else if (md_view_find(view, alloc->address) == event->alloc) {
			/* Otherwise a free was not seen and the address already belongs to a younger allocation. */
			md_interval_remove(&view->live, alloc->address);
		}
	}
	return MD_OK;
}

uint32_t md_view_find(const struct md_view *view, uint64_t address)
{
	const struct md_interval *interval;
	if (address < view->lowest || address >= view->highest)
		return MD_NONE;
	interval = md_interval_find(&view->live, address);
	return interval ? (uint32_t)interval->value : MD_NONE;
}

const struct md_view_piece *md_view_piece_at(const struct md_view *view, uint32_t alloc, uint64_t offset)
{
	uint32_t low = view->first_piece[alloc], high = view->first_piece[alloc + 1];
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		const struct md_view_piece *piece = &view->pieces[middle];
		if (offset < piece->start)
			high = middle;
		else if (offset >= piece->end)
			low = middle + 1;
		else
			return piece;
	}
	return NULL;
}

bool md_view_fully_bound(const struct md_view *view, uint32_t alloc)
{
	uint64_t reached = 0;
	for (uint32_t i = view->first_piece[alloc]; i < view->first_piece[alloc + 1]; i++) {
		if (view->pieces[i].start != reached || view->pieces[i].replaced)
			return false;
		reached = view->pieces[i].end;
	}
	return reached == view->allocs[alloc].size;
}

bool md_view_locate(const struct md_view *view, uint64_t address, struct md_place *place)
{
	const struct md_view_piece *piece;
	const struct md_view_alloc *alloc;
	*place = (struct md_place){.alloc = md_view_find(view, address), .binding = MD_NONE};
	if (place->alloc == MD_NONE)
		return false;
	alloc = &view->allocs[place->alloc];
	place->alloc_offset = address - alloc->address;
	place->offset = (int64_t)place->alloc_offset;
	place->last = place->alloc_offset + 1 == alloc->size;
	piece = md_view_piece_at(view, place->alloc, place->alloc_offset);
	if (piece) {
		place->replaced = piece->replaced;
		place->binding = piece->binding;
		place->offset = (int64_t)(piece->binding_offset + (place->alloc_offset - piece->start));
		place->last = (uint64_t)place->offset + 1 == view->bindings[piece->binding].size;
	}
	return true;
}

/* ---- bindings ---------------------------------------------------------------------------------------------------- */

struct record { /* a bind record before it becomes pieces */
	const struct md_trace_bind *bind;
	uint32_t binding;
	uint64_t replaced;
};

static int compare_names(const void *left, const void *right)
{
	const struct record *a = left, *b = right;
	int order = strcmp(a->bind->name, b->bind->name);
	return order ? order : (a->bind->sequence > b->bind->sequence) - (a->bind->sequence < b->bind->sequence);
}

static int compare_sequences(const void *left, const void *right)
{
	const struct record *a = left, *b = right;
	return (a->bind->sequence > b->bind->sequence) - (a->bind->sequence < b->bind->sequence);
}

/*
 * The last record of a name makes the binding; earlier records at another place are marked as replaced. Equal records
 * repeat the binding for memory that was mapped there meanwhile, and each holds for the memory of its time.
 */
static void name_bindings(struct md_view *view, struct record *records, uint32_t count)
{
	qsort(records, count, sizeof(*records), compare_names);
	for (uint32_t i = 0; i < count; i++) {
		const struct md_trace_bind *bind = records[i].bind;
		bool last = i + 1 == count || strcmp(bind->name, records[i + 1].bind->name) != 0;
		records[i].binding = view->binding_count;
		if (last)
			view->bindings[view->binding_count++] =
			    (struct md_view_binding){bind->name, bind->address, bind->size, bind->role, MD_NONE};
	}
	for (uint32_t i = count; i-- > 1;) {
		const struct md_trace_bind *bind = records[i - 1].bind, *next = records[i].bind;
		if (records[i - 1].binding == records[i].binding)
			records[i - 1].replaced = next->address == bind->address && next->size == bind->size
						      ? records[i].replaced
						      : next->sequence;
	}
	qsort(records, count, sizeof(*records), compare_sequences);
}

/* A binding may span several mappings that lie side by side: one stroke for each. */
static bool stroke_record(struct md_view *view, const struct record *record, struct md_paint *paint)
{
	const struct md_trace_bind *bind = record->bind;
	uint64_t end = bind->address + bind->size;
	const struct md_interval *at = md_interval_floor(&view->live, bind->address);
	const struct md_interval *stop = view->live.count ? view->live.items + view->live.count : NULL;
	struct md_view_binding *binding = &view->bindings[record->binding];
	for (at = at ? at : view->live.items; at && at < stop && at->start < end; at++) {
		uint64_t from = at->start > bind->address ? at->start : bind->address;
		uint64_t to = at->start + at->size < end ? at->start + at->size : end;
		if (from >= to)
			continue;
		if (!record->replaced && binding->alloc == MD_NONE)
			binding->alloc = (uint32_t)at->value;
		if (!md_paint_add(paint, (uint32_t)at->value,
				  &(struct md_view_piece){from - at->start, to - at->start, from - bind->address,
							  record->binding, record->replaced},
				  bind->size))
			return false;
	}
	return true;
}

/* Memory whose allocation was not recorded, but which the engine has bound. */
static bool make_up_alloc(struct md_view *view, const struct record *record, struct md_paint *paint)
{
	uint32_t index = view->alloc_count++;
	view->allocs[index] = (struct md_view_alloc){.family = MD_ALLOC_DEVICE,
						     .made_up = true,
						     .address = record->bind->address,
						     .size = record->bind->size,
						     .died = UINT64_MAX};
	view->bindings[record->binding].alloc = index;
	return md_paint_add(paint, index, &(struct md_view_piece){0, record->bind->size, 0, record->binding, 0},
			    record->bind->size);
}

static enum md_status build_bindings(struct md_view *view, struct md_paint *paint, struct md_error *err)
{
	const struct md_trace *trace = view->trace;
	MD_AUTO_FREE struct record *records = calloc(trace->bind_count + 1u, sizeof(*records));
	uint32_t count = 0;
	view->bindings = calloc(trace->bind_count + 1u, sizeof(*view->bindings));
	if (!records || !view->bindings)
		return no_memory(err);
	for (uint32_t i = 0; i < trace->bind_count; i++) {
		const struct md_trace_bind *bind = &trace->binds[i];
		if (bind->size && bind->address + bind->size > bind->address)
			records[count++].bind = bind;
	}
	name_bindings(view, records, count);
	for (uint32_t i = 0; i < count; i++) {
		MD_FORWARD(md_view_seek(view, records[i].bind->sequence, err));
		if (!stroke_record(view, &records[i], paint))
			return no_memory(err);
	}
	for (uint32_t i = 0; i < count; i++) {
		if (records[i].replaced || view->bindings[records[i].binding].alloc != MD_NONE)
			continue;
		if (!make_up_alloc(view, &records[i], paint))
			return no_memory(err);
	}
	return MD_OK;
}

enum md_status md_view_init(struct md_view *view, const struct md_trace *trace, struct md_error *err)
{
	MD_CLEANUP(md_paint_finish) struct md_paint paint = {0};
	*view = (struct md_view){.trace = trace, .alloc_count = trace->alloc_count};
	md_interval_init(&view->live);
	view->allocs = calloc((size_t)trace->alloc_count + trace->bind_count + 1, sizeof(*view->allocs));
	if (!view->allocs)
		return no_memory(err);
	for (uint32_t i = 0; i < trace->alloc_count; i++) {
		const struct md_trace_alloc *alloc = &trace->allocs[i];
		view->allocs[i] =
		    (struct md_view_alloc){alloc->family, false, alloc->address, alloc->size, alloc->born, alloc->died};
	}
	MD_FORWARD(build_events(view, err));
	MD_FORWARD(build_bindings(view, &paint, err));
	if (!md_paint_dry(&paint, view->alloc_count, &view->pieces, &view->first_piece))
		return no_memory(err);
	return build_events(view, err);
}

void md_view_finish(struct md_view *view)
{
	free(view->allocs);
	free(view->bindings);
	free(view->pieces);
	free(view->first_piece);
	free(view->events);
	md_interval_finish(&view->live);
	*view = (struct md_view){0};
}
