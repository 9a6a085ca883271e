/* SPDX-License-Identifier: Apache-2.0 */
/* Small allocations in one piece of 2 MB: first fit over a bitmap. */
#include "swap/slab.h"

#include <string.h>

#define WORDS (MD_SWAP_SLAB_UNITS / 64)

void md_swap_slab_init(struct md_swap_slab *slab)
{
	memset(slab, 0, sizeof(*slab));
	slab->longest = MD_SWAP_SLAB_UNITS;
}

/* The first unit at or after `from` that is taken (or free, with flip all ones); the number of units if there is none. */
static uint32_t next_unit(const struct md_swap_slab *slab, uint32_t from, uint64_t flip)
{
	if (from >= MD_SWAP_SLAB_UNITS)
		return MD_SWAP_SLAB_UNITS;
	uint64_t word = (slab->used[from / 64] ^ flip) & (~(uint64_t)0 << from % 64);
	for (uint32_t at = from / 64;;) {
		if (word)
			return at * 64 + (uint32_t)__builtin_ctzll(word);
		if (++at == WORDS)
			return MD_SWAP_SLAB_UNITS;
		word = slab->used[at] ^ flip;
	}
}

static void mark(struct md_swap_slab *slab, uint32_t start, uint32_t units, bool taken)
{
	for (uint32_t at = start, end = start + units; at < end;) {
		uint32_t in_word = 64 - at % 64 < end - at ? 64 - at % 64 : end - at;
		uint64_t bits = (in_word == 64 ? ~(uint64_t)0 : ((uint64_t)1 << in_word) - 1) << at % 64;
		if (taken)
			slab->used[at / 64] |= bits;
		else
			slab->used[at / 64] &= ~bits;
		at += in_word;
	}
}

static uint32_t units_of(uint64_t bytes)
{
	return (uint32_t)((bytes + MD_SWAP_SLAB_UNIT - 1) / MD_SWAP_SLAB_UNIT);
}

bool md_swap_slab_take(struct md_swap_slab *slab, uint64_t bytes, uint64_t *offset)
{
	if (bytes > MD_SWAP_SLAB_BYTES || units_of(bytes) > slab->longest)
		return false;
	uint32_t wanted = units_of(bytes), longest = 0;
	for (uint32_t start = next_unit(slab, 0, ~(uint64_t)0); start < MD_SWAP_SLAB_UNITS;) {
		uint32_t end = next_unit(slab, start, 0);
		if (end - start >= wanted) {
			mark(slab, start, wanted, true);
			slab->sizes[start] = (uint32_t)bytes;
			slab->units += wanted;
			*offset = (uint64_t)start * MD_SWAP_SLAB_UNIT;
			return true;
		}
		longest = end - start > longest ? end - start : longest;
		start = next_unit(slab, end, ~(uint64_t)0);
	}
	slab->longest = longest;
	return false;
}

bool md_swap_slab_give(struct md_swap_slab *slab, uint64_t offset)
{
	uint32_t start = (uint32_t)(offset / MD_SWAP_SLAB_UNIT);
	if (offset >= MD_SWAP_SLAB_BYTES || offset % MD_SWAP_SLAB_UNIT || !slab->sizes[start])
		return false;
	uint32_t units = units_of(slab->sizes[start]);
	mark(slab, start, units, false);
	slab->sizes[start] = 0;
	slab->units -= units;
	slab->longest = MD_SWAP_SLAB_UNITS - slab->units; /* its neighbours may be free */
	return true;
}

bool md_swap_slab_find(const struct md_swap_slab *slab, uint64_t offset, uint64_t *start, uint64_t *bytes)
{
	uint32_t at = (uint32_t)(offset / MD_SWAP_SLAB_UNIT);
	if (offset >= MD_SWAP_SLAB_BYTES)
		return false;
	while (at && !slab->sizes[at])
		at--;
	*start = (uint64_t)at * MD_SWAP_SLAB_UNIT;
	*bytes = slab->sizes[at];
	return offset - *start < *bytes;
}
