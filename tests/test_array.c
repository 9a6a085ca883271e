/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays grow, and stay as they are where there is no memory or more is wanted than can be counted. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/array.h"

/* ---- allocations that fail: the linker sends the library's calls here ---- */

static bool fails;
static size_t asked; /* bytes, the last time */

void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);

void *__wrap_realloc(void *old, size_t size)
{
	asked = size;
	return fails ? NULL : __real_realloc(old, size);
}

/* ---- growing ---- */

Test(array, has_room_for_what_is_added)
{
	uint32_t *items = NULL;
	size_t count = 0, room = 0;
	for (uint32_t i = 0; i < 100000; i++) {
		cr_assert(MD_ARRAY_GROW(items, count, room), "item %u", i);
		cr_assert_gt(room, count, "room for item %u", i);
		items[count++] = i;
	}
	for (uint32_t i = 0; i < count; i++)
		cr_assert_eq(items[i], i, "item %u is %u", i, items[i]);
	cr_assert_lt(room, 2 * count, "%zu items have room for %zu", count, room);
	free(items);
}

Test(array, grows_only_where_there_is_no_room)
{
	uint64_t *items = NULL;
	uint32_t room = 0, nothing = 0;
	cr_assert(MD_ARRAY_RESERVE(items, nothing, room) && !items, "room for nothing");
	cr_assert(MD_ARRAY_RESERVE(items, 1, room), "room for one");
	cr_assert_gt(room, 1, "a first room is for some");
	uint32_t first = room;
	asked = 0;
	cr_assert(MD_ARRAY_RESERVE(items, first, room) && MD_ARRAY_GROW(items, first - 1, room), "what is there");
	cr_assert_eq(asked, 0, "there was room");
	cr_assert(MD_ARRAY_GROW(items, first, room), "one more");
	cr_assert_eq(room, 2 * first, "twice %u, not %u", first, room);
	cr_assert_eq(asked, room * sizeof(*items), "%u items are %zu bytes", room, asked);
	cr_assert(MD_ARRAY_RESERVE(items, 1000, room), "many at once");
	cr_assert_eq(room, 1000, "no more than they are, if that is more than twice: %u", room);
	free(items);
}

Test(array, is_as_long_as_its_count_says)
{
	uint16_t *items = NULL;
	for (uint32_t count = 0; count < 20; count++) {
		cr_assert(MD_ARRAY_EXTEND(items, count), "item %u", count);
		cr_assert_eq(asked, (count + 1) * sizeof(*items), "%zu bytes for %u items", asked, count + 1);
		items[count] = (uint16_t)count;
	}
	for (uint32_t i = 0; i < 20; i++)
		cr_assert_eq(items[i], i, "item %u", i);
	free(items);
}

Test(array, of_nothing_is_an_array)
{
	void *none = md_array_resize(NULL, 0, 16);
	cr_assert(none, "NULL is for failures alone");
	free(none);
}

/* ---- refusals ---- */

Test(array, should_fail_without_memory)
{
	uint32_t *items = NULL;
	uint32_t room = 0, count = 5;
	cr_assert(MD_ARRAY_RESERVE(items, count, room), "at first");
	uint32_t *old = items, had = room;
	items[4] = 44;
	fails = true;
	cr_assert_not(MD_ARRAY_GROW(items, room, room), "to grow");
	cr_assert_not(MD_ARRAY_RESERVE(items, 1000, room), "to reserve");
	cr_assert_not(MD_ARRAY_EXTEND(items, count), "to extend");
	cr_assert(items == old && room == had && items[4] == 44, "the array stays as it was");
	fails = false;
	cr_assert(MD_ARRAY_GROW(items, room, room) && items[4] == 44, "and grows when there is memory again");
	free(items);
}

Test(array, should_fail_more_bytes_than_there_are)
{
	struct large {
		char bytes[4096];
	} *items = NULL;
	uint64_t room = 0;
	asked = 0;
	cr_assert_not(MD_ARRAY_RESERVE(items, UINT64_MAX / sizeof(*items) + 2, room), "2^64 bytes and some");
	cr_assert_not(MD_ARRAY_EXTEND(items, UINT64_MAX / sizeof(*items) + 1), "the same");
	cr_assert_null(md_array_resize(NULL, (UINT64_C(1) << 52) + 1, 4096), "2^64 + 4096 are not 4096");
	cr_assert(!asked && !items && !room, "nothing was asked for");
}

/* A count that wraps round would have room in an array of nothing. */
Test(array, should_fail_more_items_than_can_be_counted)
{
	uint8_t *items = NULL, room = 0, all = UINT8_MAX;
	uint64_t most = UINT64_MAX, beyond = UINT8_MAX + 1;
	cr_assert(MD_ARRAY_RESERVE(items, 200, room), "200 of 255");
	cr_assert(MD_ARRAY_RESERVE(items, 201, room), "201");
	cr_assert_eq(room, UINT8_MAX, "there is no twice: %u", room);
	asked = 0;
	cr_assert_not(MD_ARRAY_GROW(items, all, room), "256 do not go into 8 bits");
	cr_assert_not(MD_ARRAY_EXTEND(items, all), "nor here");
	cr_assert_not(MD_ARRAY_RESERVE(items, beyond, room), "nor at once");
	cr_assert_not(MD_ARRAY_GROW(items, most, most), "nor into 64");
	cr_assert_not(MD_ARRAY_EXTEND(items, most), "nor here");
	cr_assert(!asked && room == UINT8_MAX, "nothing was asked for");
	free(items);
}
