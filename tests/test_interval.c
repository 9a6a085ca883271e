/* SPDX-License-Identifier: Apache-2.0 */
/* Interval index: finds holders, drops what an address was reused over, and appends quickly. */
#include "base/interval.h"

#include <criterion/criterion.h>
#include <string.h>

#include "tests/cpu_clock.h"

static uint64_t value_at(const struct md_interval_index *index, uint64_t address)
{
	const struct md_interval *item = md_interval_find(index, address);
	return item ? item->value : 0;
}

Test(interval, finds)
{
	struct md_interval_index index;
	md_interval_init(&index);
	cr_assert_null(md_interval_find(&index, 5));
	cr_assert_null(md_interval_floor(&index, 5));
	cr_assert_null(md_interval_after(&index, 0));
	cr_assert(md_interval_add(&index, 300, 10, 3));
	cr_assert(md_interval_add(&index, 100, 10, 1));
	cr_assert(md_interval_add(&index, 200, 10, 2));
	cr_assert_eq(index.count, 3);
	cr_assert_eq(value_at(&index, 99), 0);
	cr_assert_eq(value_at(&index, 100), 1);
	cr_assert_eq(value_at(&index, 109), 1);
	cr_assert_eq(value_at(&index, 110), 0, "one past the end is outside");
	cr_assert_eq(value_at(&index, 205), 2);
	cr_assert_eq(value_at(&index, 309), 3);
	cr_assert_eq(md_interval_floor(&index, 110)->value, 1, "floor answers for one past the end");
	cr_assert_eq(md_interval_floor(&index, UINT64_MAX)->value, 3);
	cr_assert_eq(md_interval_after(&index, 99)->value, 1);
	cr_assert_eq(md_interval_after(&index, 100)->value, 2, "not the one that begins there");
	cr_assert_null(md_interval_after(&index, 300));
	cr_assert_not(md_interval_remove(&index, 205), "only a start removes");
	cr_assert(md_interval_remove(&index, 200));
	cr_assert_eq(value_at(&index, 205), 0);
	cr_assert_eq(value_at(&index, 305), 3);
	md_interval_finish(&index);
}

Test(interval, touches_are_no_overlap)
{
	struct md_interval_index index;
	md_interval_init(&index);
	md_interval_add(&index, 100, 10, 1);
	md_interval_add(&index, 120, 10, 3);
	md_interval_add(&index, 110, 10, 2);
	cr_assert_eq(index.count, 3);
	md_interval_finish(&index);
}

Test(interval, reuse_drops_the_old)
{
	static const struct {
		uint64_t start, size;
		size_t left;
		const char *what;
	} cases[] = {
	    {100, 10, 3, "the same place"}, {95, 6, 3, "over a start"},
	    {109, 1, 3, "over an end"},     {95, 300, 1, "over all"},
	    {102, 2, 3, "inside one"},      {105, 100, 2, "over two"},
	    {150, 10, 4, "over none"},      {0, 50, 4, "before all"},
	    {90, 10, 4, "just before"},     {105, UINT64_MAX, 1, "to the end of the address space"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct md_interval_index index;
		md_interval_init(&index);
		for (uint64_t start = 100; start <= 300; start += 100)
			md_interval_add(&index, start, 10, start);
		cr_assert(md_interval_add(&index, cases[i].start, cases[i].size, 7));
		cr_assert_eq(index.count, cases[i].left, "%s: %zu left", cases[i].what, index.count);
		cr_assert_eq(value_at(&index, cases[i].start), 7, "%s", cases[i].what);
		for (size_t k = 1; k < index.count; k++)
			cr_assert(index.items[k - 1].start < index.items[k].start, "%s: sorted", cases[i].what);
		md_interval_finish(&index);
	}
}

/* Intervals [100, 110), [200, 210), [300, 310), and what a cut leaves of them. */
Test(interval, a_cut_leaves_what_is_outside)
{
	static const struct {
		uint64_t start, size;
		size_t left;
		uint64_t bytes;
		const char *what;
	} cases[] = {
	    {100, 10, 2, 20, "one"},
	    {95, 6, 3, 29, "a beginning"},
	    {109, 5, 3, 29, "an end"},
	    {102, 3, 4, 27, "a middle"},
	    {105, 100, 3, 20, "an end and a beginning"},
	    {0, UINT64_MAX, 0, 0, "all"},
	    {305, UINT64_MAX, 3, 25, "to the end of the address space"},
	    {110, 90, 3, 30, "between two"},
	    {205, 0, 3, 30, "nothing"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct md_interval_index index;
		uint64_t bytes = 0;
		md_interval_init(&index);
		for (uint64_t start = 100; start <= 300; start += 100)
			md_interval_add(&index, start, 10, start);
		cr_assert(md_interval_cut(&index, cases[i].start, cases[i].size));
		for (size_t k = 0; k < index.count; k++) {
			const struct md_interval *item = &index.items[k];
			bytes += item->size;
			cr_assert_eq(item->value, item->start / 100 * 100, "%s: its value", cases[i].what);
			cr_assert(item->start >= cases[i].start + cases[i].size || !cases[i].size ||
				      item->start + item->size <= cases[i].start || cases[i].size > UINT64_MAX / 2,
				  "%s: [%zu, +%zu) is left", cases[i].what, (size_t)item->start, (size_t)item->size);
		}
		cr_assert_eq(index.count, cases[i].left, "%s: %zu left", cases[i].what, index.count);
		cr_assert_eq(bytes, cases[i].bytes, "%s: %zu bytes left", cases[i].what, (size_t)bytes);
		md_interval_finish(&index);
	}
}

/* 300,000 appends move nothing: with a shift of half the array each, this would take minutes. */
Test(interval, appends_quickly)
{
	struct md_interval_index index;
	uint64_t start = cpu_ns();
	md_interval_init(&index);
	for (uint64_t i = 0; i < 300000; i++)
		cr_assert(md_interval_add(&index, i * 512, 512, i));
	for (uint64_t i = 0; i < 300000; i++)
		if (value_at(&index, i * 512 + 511) != i)
			cr_assert_fail("address in interval %llu", (unsigned long long)i);
	cr_assert(cpu_ns() - start < 5000000000u, "took %llu ns", (unsigned long long)(cpu_ns() - start));
	md_interval_finish(&index);
}
