/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements in which a restored graph differs from the live one, in
 * verify mode: finds out whether live replays differ there, too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "restore/restore.h"
#include "restore/verify/buffers.h"
#include "restore/verify/doubt.h"

#define CELLS_MAX (1u << 21) /* elements; more differences count as wrong */
#define GAP_MAX 4096u        /* elements that lie no farther apart are fetched together */

/* ---- what differs ---- */

static struct md_verify_cell *next_cell(struct md_verify_doubt *d)
{
	if (d->count >= CELLS_MAX || !MD_ARRAY_GROW(d->cells, d->count, d->room))
		return NULL;
	return &d->cells[d->count++];
}

/* The last bytes of a buffer may be less than an element: these must be equal. */
static void add_cell(struct md_verify_doubt *d, struct md_verify_cell at, const uint8_t *live, const uint8_t *restored)
{
	struct md_verify_cell *cell = next_cell(d);
	d->beyond |= !cell;
	if (!cell)
		return;
	*cell = at;
	memcpy(cell->first, live, at.size);
	memcpy(cell->other, restored, at.size);
	md_element_span_add(&cell->live, at.type, cell->first, cell->first);
	md_element_span_add(&cell->restored, at.type, cell->other, cell->other);
	d->live_runs = d->restored_runs = 1;
}

void md_verify_doubt_add(struct md_verify_doubt *d, uint32_t place, enum md_element_type type, uint64_t offset,
			 const uint8_t *live, const uint8_t *restored, size_t size)
{
	struct md_verify_cell cell = {.place = place, .type = type ? type : d->tolerance.type};
	size_t step = md_element_size(cell.type);
	for (size_t at = 0; at < size && !d->beyond; at += cell.size) {
		cell.size = (uint8_t)(size - at < step ? size - at : step);
		cell.offset = offset + at;
		if (cell.size < step)
			cell.type = MD_ELEMENT_EXACT;
		if (memcmp(live + at, restored + at, cell.size))
			add_cell(d, cell, live + at, restored + at);
	}
}

void md_verify_doubt_finish(struct md_verify_doubt *d)
{
	free(d->cells);
	*d = (struct md_verify_doubt){.tolerance = d->tolerance};
}

/* ---- what more replays leave there ---- */

static int compare_cells(const void *left, const void *right)
{
	const struct md_verify_cell *a = left, *b = right;
	if (a->place != b->place)
		return a->place < b->place ? -1 : 1;
	return (a->offset > b->offset) - (a->offset < b->offset);
}

/* The end of the group of elements from `first` on that one copy fetches; they are in order. */
static size_t group_end(const struct md_verify_doubt *d, size_t first)
{
	size_t end = first + 1;
	while (end < d->count && d->cells[end].place == d->cells[first].place &&
	       d->cells[end].offset - d->cells[end - 1].offset <= GAP_MAX &&
	       d->cells[end].offset - d->cells[first].offset < MD_VERIFY_CHUNK - MD_ELEMENT_BYTES_MAX)
		end++;
	return end;
}

/* The first value of the other kind counts for more than its place in the order, because it may never come again. */
static void look_at(struct md_verify_cell *cell, bool restored, bool later, const uint8_t *now)
{
	uint8_t bytes[MD_ELEMENT_BYTES_MAX] = {0};
	memcpy(bytes, now, cell->size);
	if (restored) {
		cell->came_back |= !memcmp(bytes, cell->first, cell->size);
		cell->unsteady |= later && memcmp(bytes, cell->later, cell->size);
		memcpy(cell->later, bytes, sizeof(bytes));
	} else {
		cell->seen |= !memcmp(bytes, cell->other, cell->size);
	}
	struct md_element_span *span = restored ? &cell->restored : &cell->live;
	const uint8_t *before = restored ? cell->other : cell->first;
	md_element_span_add(span, cell->type, before, bytes);
	span->varied |= memcmp(before, bytes, cell->size) != 0; /* an element may have more bytes than its type */
}

enum md_status md_verify_doubt_take(struct md_verify_doubt *d, const struct md_verify_memory *m,
				    const CUdeviceptr *outputs, bool restored, CUstream stream, struct md_error *err)
{
	if (d->live_runs == 1)
		qsort(d->cells, d->count, sizeof(*d->cells), compare_cells);
	for (size_t first = 0, end; first < d->count; first = end) {
		end = group_end(d, first);
		uint32_t place = d->cells[first].place;
		uint64_t base = d->cells[first].offset;
		CUdeviceptr from =
		    place & MD_VERIFY_OUTPUT ? outputs[place & ~MD_VERIFY_OUTPUT] : m->buffers[place].address;
		size_t size = (size_t)(d->cells[end - 1].offset - base) + d->cells[end - 1].size;
		MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, m->session.device.now, from + base, size, stream));
		MD_FORWARD(md_cuda_call(err, cuStreamSynchronize, stream));
		for (size_t i = first; i < end; i++)
			look_at(&d->cells[i], restored, d->restored_runs > 1,
				m->session.device.now + (d->cells[i].offset - base));
	}
	if (restored)
		d->restored_runs++;
	else
		d->live_runs++;
	return MD_OK;
}

/* ---- what follows from it ---- */

/* Whether the values of each side lie in, or near, the span of the other side's. */
static bool is_of_one_kind(const struct md_verify_cell *cell, uint64_t ulps)
{
	return md_element_span_holds(&cell->live, cell->type, cell->other, ulps) &&
	       md_element_span_holds(&cell->restored, cell->type, cell->first, ulps);
}

/*
 * Equal graphs leave values of the same kind. The restored graph is replayed again, too: an element that it does not
 * write keeps its value, however near that is. A rare value may come to either side: one that comes once in fifty
 * replays may be the first restored value, and no live one for a long time.
 */
static bool is_explained(const struct md_verify_doubt *d, const struct md_verify_cell *cell)
{
	if (cell->seen || d->tolerance.given)
		return cell->seen || is_of_one_kind(cell, d->tolerance.ulps);
	return (cell->live.varied || cell->restored.varied) && (cell->came_back || is_of_one_kind(cell, 0));
}

/*
 * Live replays must differ somewhere. If only restored ones do, the
 * restored graph may be at fault, by a missing edge for example.
 */
enum md_doubt_answer md_verify_doubt_ask(const struct md_verify_doubt *d)
{
	size_t explained = 0, varied = 0;
	for (size_t i = 0; i < d->count; i++) {
		explained += is_explained(d, &d->cells[i]);
		varied += d->cells[i].live.varied;
	}
	if (d->beyond || !varied)
		return MD_DOUBT_NONE;
	return explained == d->count ? MD_DOUBT_ALL : MD_DOUBT_SOME;
}

size_t md_verify_doubt_unsteady(const struct md_verify_doubt *d)
{
	size_t count = 0;
	for (size_t i = 0; i < d->count; i++)
		count += d->cells[i].unsteady;
	return count;
}

static void name_place(const struct md_verify_memory *m, uint32_t place, char text[160])
{
	if (place & MD_VERIFY_OUTPUT)
		snprintf(text, 160, "output %u", place & ~MD_VERIFY_OUTPUT);
	else
		snprintf(text, 160, "buffer \"%.128s\"", m->buffers[place].name);
}

/* Counts different elements, in the first place and in others; both restored replays may have found the same one. */
static void count_places(const struct md_verify_doubt *d, size_t *here, size_t *elsewhere)
{
	*here = *elsewhere = 0;
	for (size_t i = 0; i < d->count; i++) {
		if (!d->cells[i].live.varied || (i && !compare_cells(&d->cells[i - 1], &d->cells[i])))
			continue;
		if (d->cells[i].place == d->cells[0].place)
			++*here;
		else
			++*elsewhere;
	}
}

/* The greatest distance from the span of live replays, in units in the last place of the element's type. */
static uint64_t farthest(const struct md_verify_doubt *d)
{
	uint64_t most = 0;
	for (size_t i = 0; i < d->count; i++) {
		const struct md_verify_cell *cell = &d->cells[i];
		uint64_t far = cell->seen ? 0 : md_element_span_distance(&cell->live, cell->type, cell->other);
		most = far > most ? far : most;
	}
	return most;
}

void md_verify_doubt_say_all(const struct md_verify_doubt *d, const struct md_verify_memory *m, struct md_error *err)
{
	char place[160], more[64] = "", judged[192], tolerance[MD_TOLERANCE_TEXT];
	size_t here, elsewhere;
	name_place(m, d->cells[0].place, place);
	count_places(d, &here, &elsewhere);
	if (elsewhere)
		snprintf(more, sizeof(more), " and %zu elsewhere", elsewhere);
	if (d->tolerance.given)
		snprintf(judged, sizeof(judged),
			 "accepted within %s of what they span, the farthest restored one lies %llu ULP outside of it",
			 md_tolerance_print(&d->tolerance, tolerance), (unsigned long long)farthest(d));
	else
		snprintf(judged, sizeof(judged), "--nondeterministic ULPS[:TYPE] accepts a graph within a tolerance");
	md_error_set(err, MD_ERR_MISMATCH,
		     "%zu elements of %s%s differ between live replays, the first at offset %llu (%u live replays); %s",
		     here, place, more, (unsigned long long)d->cells[0].offset, d->live_runs, judged);
}

static void print_bytes(const uint8_t *bytes, size_t size, char text[2 * MD_ELEMENT_BYTES_MAX + 1])
{
	for (size_t i = 0; i < size; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

void md_verify_doubt_say_some(const struct md_verify_doubt *d, const struct md_verify_memory *m, struct md_error *err)
{
	char place[160], bytes[2 * MD_ELEMENT_BYTES_MAX + 1] = "", judged[128] = "", tolerance[MD_TOLERANCE_TEXT];
	size_t at = 0;
	while (at + 1 < d->count && is_explained(d, &d->cells[at]))
		at++;
	const struct md_verify_cell *cell = &d->cells[at];
	uint64_t far = md_element_span_distance(&cell->live, cell->type, cell->other);
	name_place(m, cell->place, place);
	print_bytes(cell->other, cell->size, bytes);
	if (d->tolerance.given && far != UINT64_MAX)
		snprintf(judged, sizeof(judged), "; it lies %llu ULP (%s) outside of what they span, beyond %s",
			 (unsigned long long)far, md_element_name(cell->type),
			 md_tolerance_print(&d->tolerance, tolerance));
	md_error_set(err, MD_ERR_MISMATCH,
		     "%s differs at offset %llu: restored %s, which none of %u live replays left there (in other "
		     "elements these differ among themselves)%s",
		     place, (unsigned long long)cell->offset, bytes, d->live_runs, judged);
}
