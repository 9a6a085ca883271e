/* SPDX-License-Identifier: Apache-2.0 */
/* Finds where two sequences of allocations begin to differ, and says so. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "driver/alloc_sequence.h"

/*
 * Which of two earlier allocations lies lower. Both sequences agree up to here, so each item is inserted right behind
 * the one below it. Freed items may stay in the list, because nothing is compared with them.
 */
static bool lies_lower(const struct md_sequence_request *items, size_t count, uint32_t one, uint32_t two)
{
	MD_AUTO_FREE uint32_t *next = malloc((count + 1) * sizeof(*next));
	uint32_t at;
	if (!next)
		return true;            /* out of memory: only the wording of the message depends on it */
	next[count] = MD_SEQUENCE_NONE; /* before the first */
	for (uint32_t i = 0; i < count; i++) {
		size_t after = items[i].below == MD_SEQUENCE_NONE ? count : items[i].below;
		next[i] = next[after];
		next[after] = i;
	}
	for (at = next[one]; at != MD_SEQUENCE_NONE && at != two; at = next[at])
		;
	return at == two;
}

static enum md_status say_order(const struct md_sequence_side *one, const struct md_sequence_side *two, size_t index,
				struct md_error *err)
{
	uint32_t first = one->items[index].below, second = two->items[index].below;
	bool above =
	    second == MD_SEQUENCE_NONE || (first != MD_SEQUENCE_NONE && lies_lower(one->items, index, second, first));
	return md_error_set(err, MD_ERR_MISMATCH, "allocation %zu lies %s allocation %u %s, %s it %s", index,
			    above ? "above" : "below", above ? first : second, one->where, above ? "below" : "above",
			    two->where);
}

static enum md_status say_freed(const struct md_sequence_side *one, const struct md_sequence_side *two, size_t index,
				struct md_error *err)
{
	uint32_t first = one->items[index].freed, second = two->items[index].freed;
	unsigned long long size = (unsigned long long)one->items[index].size;
	if (first == MD_SEQUENCE_NONE)
		return md_error_set(err, MD_ERR_MISMATCH,
				    "allocation %zu (%llu bytes) was freed before the engine asked for a graph %s, and "
				    "not %s",
				    index, size, two->where, one->where);
	if (second == MD_SEQUENCE_NONE)
		return md_error_set(err, MD_ERR_MISMATCH,
				    "allocation %zu (%llu bytes) was freed before the engine asked for a graph %s, and "
				    "not %s",
				    index, size, one->where, two->where);
	return md_error_set(err, MD_ERR_MISMATCH,
			    "allocation %zu (%llu bytes) was freed after %u allocations %s, and after %u %s", index,
			    size, first, one->where, second, two->where);
}

static enum md_status compare_item(const struct md_sequence_side *one, const struct md_sequence_side *two, size_t index,
				   struct md_error *err)
{
	const struct md_sequence_request *a = &one->items[index], *b = &two->items[index];
	if (a->size != b->size)
		return md_error_set(
		    err, MD_ERR_MISMATCH,
		    "allocation %zu: %s has %llu bytes, %s %llu: the allocation sequences differ from here on", index,
		    one->whose, (unsigned long long)a->size, two->whose, (unsigned long long)b->size);
	if (a->family != b->family)
		return md_error_set(err, MD_ERR_MISMATCH,
				    "allocation %zu: %s has memory of family %u, %s of %u: the allocation sequences "
				    "differ from here on",
				    index, one->whose, a->family, two->whose, b->family);
	if (a->below != b->below)
		return say_order(one, two, index, err);
	return a->freed == b->freed ? MD_OK : say_freed(one, two, index, err);
}

enum md_status md_sequence_compare(const struct md_sequence_side *one, const struct md_sequence_side *two,
				   struct md_error *err)
{
	for (size_t i = 0; i < one->count && i < two->count; i++)
		MD_FORWARD(compare_item(one, two, i, err));
	if (one->count == two->count)
		return MD_OK;
	return md_error_set(err, MD_ERR_MISMATCH,
			    "%s has %zu allocations before the engine asks for a graph, %s %zu: the allocation "
			    "sequences differ from here on",
			    one->whose, one->count, two->whose, two->count);
}
