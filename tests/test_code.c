/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that tell things apart: any two of them differ in both ways. */
#include <criterion/criterion.h>

#include "base/code.h"

static void assert_tells_apart(size_t count)
{
	size_t codes[300];
	unsigned width = md_code_width(count);
	codes[0] = md_code_first(width);
	for (size_t i = 1; i < count; i++)
		codes[i] = md_code_next(codes[i - 1]);
	for (size_t i = 0; i < count; i++) {
		cr_assert(codes[i] && codes[i] >> width == 0, "%zu things: number %zu has %u bits", count, i, width);
		for (size_t k = 0; k < count; k++)
			cr_assert(i == k || (codes[i] & ~codes[k]), "%zu things: a step takes %zu and leaves %zu",
				  count, i, k);
	}
}

Test(code, tells_apart)
{
	for (size_t count = 1; count <= 300; count++)
		assert_tells_apart(count);
}

Test(code, few_bits)
{
	static const struct {
		size_t count;
		unsigned width;
	} cases[] = {{0, 1}, {1, 1},   {2, 2},   {3, 3},    {4, 4},     {6, 4},
		     {7, 5}, {100, 9}, {126, 9}, {127, 10}, {24310, 17}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		cr_assert(md_code_width(cases[i].count) == cases[i].width, "%zu things: %u bits, not %u",
			  cases[i].count, cases[i].width, md_code_width(cases[i].count));
}
