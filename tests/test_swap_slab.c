/* SPDX-License-Identifier: Apache-2.0 */
/* Small allocations in one piece never overlap, are found by every byte, and fill the piece to the last unit. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/splitmix.h"
#include "swap/slab.h"

#define MOST 600

static struct md_swap_slab slab;
static uint16_t owner[MD_SWAP_SLAB_UNITS]; /* 1 + the index of who has a unit */
static struct {
	uint64_t offset, bytes;
} held[MOST];

static unsigned units(uint64_t bytes)
{
	return (unsigned)((bytes + MD_SWAP_SLAB_UNIT - 1) / MD_SWAP_SLAB_UNIT);
}

static void take(unsigned i, uint64_t bytes)
{
	uint64_t offset;
	unsigned run = 0, longest = 0;
	for (unsigned u = 0; u < MD_SWAP_SLAB_UNITS; u++) {
		run = owner[u] ? 0 : run + 1;
		longest = run > longest ? run : longest;
	}
	bool taken = md_swap_slab_take(&slab, bytes, &offset);
	cr_assert_eq(taken, longest >= units(bytes), "%u units, %u are free in a row", units(bytes), longest);
	if (!taken)
		return;
	held[i].offset = offset;
	held[i].bytes = bytes;
	for (unsigned u = 0; u < units(bytes); u++) {
		cr_assert_eq(owner[offset / MD_SWAP_SLAB_UNIT + u], 0, "unit %u was taken twice", u);
		owner[offset / MD_SWAP_SLAB_UNIT + u] = (uint16_t)(i + 1);
	}
}

static void give(unsigned i)
{
	uint64_t start, bytes, middle = held[i].offset + held[i].bytes / 2;
	cr_assert(md_swap_slab_find(&slab, middle, &start, &bytes), "byte %llu is in nothing",
		  (unsigned long long)middle);
	cr_assert(start == held[i].offset && bytes == held[i].bytes, "another allocation was found");
	cr_assert(!md_swap_slab_give(&slab, middle + 1), "a byte in the middle was freed");
	cr_assert(md_swap_slab_give(&slab, held[i].offset), "it could not be freed");
	cr_assert(!md_swap_slab_give(&slab, held[i].offset), "it was freed twice");
	for (unsigned u = 0; u < units(held[i].bytes); u++)
		owner[held[i].offset / MD_SWAP_SLAB_UNIT + u] = 0;
	held[i].bytes = 0;
}

Test(swap_slab, random_sizes_never_overlap)
{
	static const uint64_t most[] = {1, 512, 5000, 100000, 1 << 20};
	uint64_t state = 3;
	md_swap_slab_init(&slab);
	for (unsigned step = 0; step < 40000; step++) {
		unsigned i = (unsigned)(md_random_next(&state) % MOST);
		if (held[i].bytes)
			give(i);
		else
			take(i, 1 + md_random_next(&state) % most[md_random_next(&state) % 5]);
	}
	for (unsigned i = 0; i < MOST; i++)
		if (held[i].bytes)
			give(i);
	cr_assert_eq(slab.units, 0, "%u units are left", slab.units);
	take(0, MD_SWAP_SLAB_BYTES);
	cr_assert_eq(held[0].bytes, MD_SWAP_SLAB_BYTES, "the whole piece cannot be taken");
	cr_assert(!md_swap_slab_find(&slab, MD_SWAP_SLAB_BYTES, &state, &state), "a byte past the end was found");
}
