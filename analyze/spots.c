/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of places in allocations of the first capture. */
#include "analyze/spots.h"

#include <stdlib.h>

#include "base/array.h"

int md_spot_compare(const void *left, const void *right)
{
	const struct md_spot *a = left, *b = right;
	if (a->alloc != b->alloc)
		return a->alloc < b->alloc ? -1 : 1;
	return (a->offset > b->offset) - (a->offset < b->offset);
}

bool md_spots_add(struct md_spots *spots, struct md_spot spot)
{
	if (!MD_ARRAY_GROW(spots->items, spots->count, spots->capacity))
		return false;
	spots->items[spots->count++] = spot;
	return true;
}

void md_spots_sort(struct md_spots *spots)
{
	size_t kept = 0;
	if (spots->count)
		qsort(spots->items, spots->count, sizeof(*spots->items), md_spot_compare);
	for (size_t i = 0; i < spots->count; i++)
		if (!kept || md_spot_compare(&spots->items[kept - 1], &spots->items[i]))
			spots->items[kept++] = spots->items[i];
	spots->count = kept;
}

size_t md_spots_behind(const struct md_spots *spots, struct md_spot spot)
{
	size_t low = 0, high = spots->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (md_spot_compare(&spots->items[middle], &spot) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

uint64_t md_spots_next(const struct md_spots *spots, struct md_spot spot, uint64_t otherwise)
{
	size_t at = md_spots_behind(spots, spot);
	return at < spots->count && spots->items[at].alloc == spot.alloc && spots->items[at].offset < otherwise
		   ? spots->items[at].offset
		   : otherwise;
}

uint64_t md_spot_piece_end(const struct md_view *view, struct md_spot spot)
{
	uint32_t low = view->first_piece[spot.alloc], high = view->first_piece[spot.alloc + 1], end = high;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (view->pieces[middle].start <= spot.offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low < end ? view->pieces[low].start : view->allocs[spot.alloc].size;
}
