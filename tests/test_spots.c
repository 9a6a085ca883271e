/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of places in allocations: their order, what lies behind a place, and where a piece of memory ends. */
#include <criterion/criterion.h>

#include "analyze/spots.h"
#include "tests/trace_builder.h"

static struct md_spots make(const struct md_spot *items, size_t count)
{
	struct md_spots spots = {0};
	for (size_t i = 0; i < count; i++)
		cr_assert(md_spots_add(&spots, items[i]), "memory for spot %zu", i);
	md_spots_sort(&spots);
	return spots;
}

Test(spots, order_is_by_allocation_then_offset)
{
	const struct md_spot low = {1, 900}, middle = {2, 100}, high = {2, UINT64_MAX};
	cr_assert_lt(md_spot_compare(&low, &middle), 0, "a lower allocation comes first, whatever the offset");
	cr_assert_gt(md_spot_compare(&middle, &low), 0, "and the other way round");
	cr_assert_lt(md_spot_compare(&middle, &high), 0, "offsets of more than 63 bits count as unsigned");
	cr_assert_gt(md_spot_compare(&high, &middle), 0, "and the other way round");
	cr_assert_eq(md_spot_compare(&high, &high), 0, "a spot equals itself");
}

Test(spots, sorted_lists_hold_each_spot_once)
{
	const struct md_spot items[] = {{2, 8}, {1, 16}, {2, 8}, {1, 0}, {2, 0}, {1, 16}, {2, 8}};
	const struct md_spot wanted[] = {{1, 0}, {1, 16}, {2, 0}, {2, 8}};
	struct md_spots spots = make(items, sizeof(items) / sizeof(*items));
	cr_assert_eq(spots.count, 4, "%zu spots", spots.count);
	for (size_t i = 0; i < 4; i++)
		cr_assert_eq(md_spot_compare(&spots.items[i], &wanted[i]), 0, "spot %zu: %u, %llu", i,
			     spots.items[i].alloc, (unsigned long long)spots.items[i].offset);
	free(spots.items);
}

Test(spots, an_empty_list)
{
	struct md_spots spots = {0};
	md_spots_sort(&spots);
	cr_assert_eq(spots.count, 0, "nothing was added");
	cr_assert_eq(md_spots_behind(&spots, (struct md_spot){0, 0}), 0, "nothing lies behind");
	cr_assert_eq(md_spots_next(&spots, (struct md_spot){0, 0}, 7), 7, "no next spot");
}

Test(spots, what_lies_behind)
{
	const struct md_spot items[] = {{1, 100}, {1, 200}, {3, 50}};
	static const struct {
		struct md_spot spot;
		size_t behind;
		uint64_t next; /* or 1000 */
	} cases[] = {
	    {{0, 500}, 0, 1000}, {{1, 0}, 0, 100},  {{1, 99}, 0, 100}, {{1, 100}, 1, 200}, {{1, 150}, 1, 200},
	    {{1, 200}, 2, 1000}, {{2, 0}, 2, 1000}, {{3, 49}, 2, 50},  {{3, 50}, 3, 1000}, {{4, 0}, 3, 1000},
	};
	struct md_spots spots = make(items, 3);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		size_t behind = md_spots_behind(&spots, cases[i].spot);
		uint64_t next = md_spots_next(&spots, cases[i].spot, 1000);
		cr_assert_eq(behind, cases[i].behind, "case %zu: index %zu", i, behind);
		cr_assert_eq(next, cases[i].next, "case %zu: %llu", i, (unsigned long long)next);
	}
	cr_assert_eq(md_spots_next(&spots, (struct md_spot){1, 0}, 60), 60, "the next spot lies beyond the limit");
	cr_assert_eq(md_spots_next(&spots, (struct md_spot){1, 0}, 100), 100, "the next spot lies at the limit");
	free(spots.items);
}

/* Of three allocations, the middle one has two bindings. */
Test(spots, where_a_piece_ends)
{
	enum { BASE = 0x10000, SIZE = 0x1000, ONE = 0x400, TWO = 0x800, LENGTH = 0x100 };
	static const struct {
		struct md_spot spot;
		uint64_t end;
	} cases[] = {
	    {{0, 0}, SIZE},      {{1, 0}, ONE},    {{1, ONE - 1}, ONE},   {{1, ONE}, TWO},  {{1, ONE + LENGTH}, TWO},
	    {{1, TWO - 1}, TWO}, {{1, TWO}, SIZE}, {{1, SIZE - 1}, SIZE}, {{2, 0}, LENGTH},
	};
	struct builder b;
	struct md_view view;
	struct md_error err = {0};
	builder_init(&b);
	builder_alloc(&b, MD_ALLOC_DEVICE, BASE, SIZE);
	builder_alloc(&b, MD_ALLOC_DEVICE, 2 * BASE, SIZE);
	builder_alloc(&b, MD_ALLOC_DEVICE, 3 * BASE, LENGTH);
	builder_bind(&b, "two", 2 * BASE + TWO, LENGTH, MD_BIND_STATE);
	builder_bind(&b, "one", 2 * BASE + ONE, LENGTH, MD_BIND_STATE);
	cr_assert_eq(md_view_init(&view, &b.trace, &err), MD_OK, "%s", err.message);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		uint64_t end = md_spot_piece_end(&view, cases[i].spot);
		cr_assert_eq(end, cases[i].end, "case %zu: ends at %#llx", i, (unsigned long long)end);
	}
	md_view_finish(&view);
	builder_finish(&b);
}
