/* SPDX-License-Identifier: Apache-2.0 */
/* Paints ranges onto elementary intervals, from the narrowest to the widest; an interval keeps its first colour. */
#include "analyze/paint.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"

bool md_paint_add(struct md_paint *paint, uint32_t alloc, const struct md_view_piece *piece, uint64_t width)
{
	if (!MD_ARRAY_GROW(paint->strokes, paint->count, paint->capacity))
		return false;
	paint->strokes[paint->count++] = (struct md_paint_stroke){alloc, width, *piece};
	return true;
}

void md_paint_finish(struct md_paint *paint)
{
	free(paint->strokes);
	*paint = (struct md_paint){0};
}

/* A range whose name was bound elsewhere later gives way to all current ranges. */
static int compare_strokes(const void *left, const void *right)
{
	const struct md_paint_stroke *a = left, *b = right;
	bool a_replaced = a->piece.replaced != 0, b_replaced = b->piece.replaced != 0;
	if (a->alloc != b->alloc)
		return a->alloc < b->alloc ? -1 : 1;
	if (a_replaced != b_replaced)
		return a_replaced ? 1 : -1;
	if (a->width != b->width)
		return a->width < b->width ? -1 : 1;
	if (a->piece.start != b->piece.start)
		return a->piece.start < b->piece.start ? -1 : 1;
	return (a->piece.binding > b->piece.binding) - (a->piece.binding < b->piece.binding);
}

static int compare_u64(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
	return (a > b) - (a < b);
}

static uint32_t lower_bound(const uint64_t *values, uint32_t count, uint64_t value)
{
	uint32_t low = 0, high = count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (values[middle] < value)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* First interval at or after i that has no colour yet; next[] is halved on the way, so painting is nearly linear. */
static uint32_t unpainted(uint32_t *next, uint32_t i)
{
	while (next[i] != i) {
		next[i] = next[next[i]];
		i = next[i];
	}
	return i;
}

/* The strokes of one allocation; appends the pieces that show. pieces has room for 2 * count. */
static bool dry_alloc(const struct md_paint_stroke *strokes, uint32_t count, struct md_view_piece *pieces,
		      uint32_t *piece_count)
{
	MD_AUTO_FREE uint64_t *bounds = calloc(2 * (size_t)count, sizeof(*bounds));
	MD_AUTO_FREE uint32_t *next = calloc(2 * (size_t)count + 1, sizeof(*next));
	MD_AUTO_FREE uint32_t *owner = calloc(2 * (size_t)count + 1, sizeof(*owner));
	uint32_t bound_count = 0, first = *piece_count;
	if (!bounds || !next || !owner)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		bounds[2 * i] = strokes[i].piece.start;
		bounds[2 * i + 1] = strokes[i].piece.end;
	}
	qsort(bounds, 2 * (size_t)count, sizeof(*bounds), compare_u64);
	for (uint32_t i = 0; i < 2 * count; i++) {
		if (!bound_count || bounds[bound_count - 1] != bounds[i])
			bounds[bound_count++] = bounds[i];
	}
	for (uint32_t i = 0; i <= bound_count; i++) {
		next[i] = i;
		owner[i] = MD_NONE;
	}
	for (uint32_t s = 0; s < count; s++) {
		uint32_t stop = lower_bound(bounds, bound_count, strokes[s].piece.end);
		for (uint32_t i = unpainted(next, lower_bound(bounds, bound_count, strokes[s].piece.start)); i < stop;
		     i = unpainted(next, i)) {
			owner[i] = s;
			next[i] = i + 1;
		}
	}
	for (uint32_t i = 0; i + 1 < bound_count; i++) {
		struct md_view_piece piece;
		struct md_view_piece *before = *piece_count > first ? &pieces[*piece_count - 1] : NULL;
		if (owner[i] == MD_NONE)
			continue;
		piece = strokes[owner[i]].piece;
		if (i && owner[i - 1] == owner[i] && before) {
			before->end = bounds[i + 1];
			continue;
		}
		piece.binding_offset += bounds[i] - piece.start;
		piece.start = bounds[i];
		piece.end = bounds[i + 1];
		pieces[(*piece_count)++] = piece;
	}
	return true;
}

bool md_paint_dry(struct md_paint *paint, uint32_t alloc_count, struct md_view_piece **pieces, uint32_t **first)
{
	MD_AUTO_FREE struct md_view_piece *shown = calloc(2 * (size_t)paint->count + 1, sizeof(*shown));
	MD_AUTO_FREE uint32_t *starts = calloc((size_t)alloc_count + 1, sizeof(*starts));
	uint32_t count = 0, stroke = 0;
	if (!shown || !starts)
		return false;
	if (paint->count)
		qsort(paint->strokes, paint->count, sizeof(*paint->strokes), compare_strokes);
	for (uint32_t alloc = 0; alloc < alloc_count; alloc++) {
		uint32_t from = stroke;
		starts[alloc] = count;
		while (stroke < paint->count && paint->strokes[stroke].alloc == alloc)
			stroke++;
		if (stroke > from && !dry_alloc(paint->strokes + from, stroke - from, shown, &count))
			return false;
	}
	starts[alloc_count] = count;
	*pieces = md_steal_ptr(&shown);
	*first = md_steal_ptr(&starts);
	return true;
}
