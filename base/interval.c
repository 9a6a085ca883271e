/* SPDX-License-Identifier: Apache-2.0 */
/* Interval index: a sorted array; allocators mostly hand out ascending addresses, so adding is mostly appending. */
#include "base/interval.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

void md_interval_init(struct md_interval_index *index)
{
	*index = (struct md_interval_index){0};
}

void md_interval_finish(struct md_interval_index *index)
{
	free(index->items);
	*index = (struct md_interval_index){0};
}

/*
 * The last byte of an interval; an empty interval holds no address, but its start counts as taken. An end that wraps is
 * clipped.
 */
static uint64_t last_of(uint64_t start, uint64_t size)
{
	uint64_t reach = size ? size - 1 : 0;
	return reach > UINT64_MAX - start ? UINT64_MAX : start + reach;
}

/* Number of items that start at or before address. */
static size_t upper_bound(const struct md_interval_index *index, uint64_t address)
{
	size_t low = 0, high = index->count;
	if (high && index->items[high - 1].start <= address)
		return high;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (index->items[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool md_interval_add(struct md_interval_index *index, uint64_t start, uint64_t size, uint64_t value)
{
	uint64_t last = last_of(start, size);
	size_t first = upper_bound(index, start), end;
	if (!MD_ARRAY_GROW(index->items, index->count, index->capacity))
		return false;
	/* The items in [first, end) overlap the new one and make room for it. */
	if (first && last_of(index->items[first - 1].start, index->items[first - 1].size) >= start)
		first--;
	for (end = first; end < index->count && index->items[end].start <= last; end++)
		;
	memmove(&index->items[first + 1], &index->items[end], (index->count - end) * sizeof(*index->items));
	index->items[first] = (struct md_interval){start, size, value};
	index->count += 1 - (end - first);
	return true;
}

bool md_interval_merge(struct md_interval_index *index, uint64_t start, uint64_t size)
{
	uint64_t end = start + size;
	const struct md_interval *item = md_interval_floor(index, end);
	while (item && item->start + item->size >= start) {
		uint64_t first = item->start, last = item->start + item->size;
		start = first < start ? first : start;
		end = last > end ? last : end;
		md_interval_remove(index, first);
		item = md_interval_floor(index, end);
	}
	return md_interval_add(index, start, end - start, 0);
}

bool md_interval_cut(struct md_interval_index *index, uint64_t start, uint64_t size)
{
	uint64_t last = last_of(start, size);
	bool whole = true;
	for (const struct md_interval *at = md_interval_floor(index, last); at; at = md_interval_floor(index, last)) {
		struct md_interval item = *at;
		uint64_t end = last_of(item.start, item.size);
		if (!size || end < start || !item.size)
			break;
		md_interval_remove(index, item.start);
		if (item.start < start)
			md_interval_add(index, item.start, start - item.start, item.value);
		if (end > last)
			whole = md_interval_add(index, last + 1, end - last, item.value);
	}
	return whole;
}

bool md_interval_remove(struct md_interval_index *index, uint64_t start)
{
	size_t at = upper_bound(index, start);
	if (!at || index->items[at - 1].start != start)
		return false;
	memmove(&index->items[at - 1], &index->items[at], (index->count - at) * sizeof(*index->items));
	index->count--;
	return true;
}

const struct md_interval *md_interval_floor(const struct md_interval_index *index, uint64_t address)
{
	size_t at = upper_bound(index, address);
	return at ? &index->items[at - 1] : NULL;
}

const struct md_interval *md_interval_after(const struct md_interval_index *index, uint64_t address)
{
	size_t at = upper_bound(index, address);
	return at < index->count ? &index->items[at] : NULL;
}

const struct md_interval *md_interval_find(const struct md_interval_index *index, uint64_t address)
{
	const struct md_interval *item = md_interval_floor(index, address);
	return item && address - item->start < item->size ? item : NULL;
}
