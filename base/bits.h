/* SPDX-License-Identifier: Apache-2.0 */
/* A set of indices below a fixed number: a bit each, so that emptying and listing a set takes a 64th of its range. */
#ifndef MD_BASE_BITS_H
#define MD_BASE_BITS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct md_bits {
	uint64_t *words; /* owned */
	uint32_t word_count;
};

/* False: out of memory. */
static inline bool md_bits_init(struct md_bits *bits, uint32_t range)
{
	bits->word_count = range / 64 + 1;
	bits->words = calloc(bits->word_count, sizeof(*bits->words));
	return bits->words != NULL;
}

static inline void md_bits_finish(struct md_bits *bits)
{
	free(bits->words);
	*bits = (struct md_bits){0};
}

static inline void md_bits_clear(struct md_bits *bits)
{
	memset(bits->words, 0, bits->word_count * sizeof(*bits->words));
}

static inline bool md_bits_has(const struct md_bits *bits, uint32_t index)
{
	return bits->words[index / 64] >> index % 64 & 1;
}

/* True: it was not in the set before. */
static inline bool md_bits_add(struct md_bits *bits, uint32_t index)
{
	uint64_t *word = &bits->words[index / 64], bit = (uint64_t)1 << index % 64;
	bool added = !(*word & bit);
	*word |= bit;
	return added;
}

/* Both sets have the same range. */
static inline void md_bits_add_all(struct md_bits *bits, const struct md_bits *others)
{
	for (uint32_t i = 0; i < bits->word_count; i++)
		bits->words[i] |= others->words[i];
}

static inline uint32_t md_bits_count(const struct md_bits *bits)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < bits->word_count; i++)
		count += (uint32_t)__builtin_popcountll(bits->words[i]);
	return count;
}

/* Writes the indices, ascending, and returns the place behind the last one. */
static inline uint32_t *md_bits_list(const struct md_bits *bits, uint32_t *out)
{
	for (uint32_t i = 0; i < bits->word_count; i++)
		for (uint64_t word = bits->words[i]; word; word &= word - 1)
			*out++ = i * 64 + (uint32_t)__builtin_ctzll(word);
	return out;
}

#endif
