/* SPDX-License-Identifier: Apache-2.0 */
/* For hostcuda, which knows no PTX: the kernels that compare, search, copy, fill and hash memory. */
#include <string.h>

#include "hostcuda/kernel.h"
#include "tests/images/probe_params.h"

PROBE_DIFFER_KERNEL
{
	for (uint32_t thread = 0; thread < block->block_dim[0]; thread++) {
		uint64_t at = (uint64_t)block->block_idx[0] * block->block_dim[0] + thread;
		if (at < p->words && (p->one[2 * at] != p->two[2 * at] || p->one[2 * at + 1] != p->two[2 * at + 1]))
			p->flags[block->block_idx[0]] = 1;
	}
}

PROBE_SEARCH_KERNEL
{
	for (uint32_t thread = 0; thread < block->block_dim[0]; thread++) {
		uint64_t at = (uint64_t)block->block_idx[0] * block->block_dim[0] + thread;
		if (at < p->words && p->data[at] - p->lowest < p->span)
			p->flags[block->block_idx[0]] = 1;
	}
}

static void differ(const struct md_probe_part *part)
{
	uint8_t *flags = (uint8_t *)(uintptr_t)part->what;
	for (uint64_t at = 0; at < part->bytes; at += 4096) {
		uint64_t size = part->bytes - at < 4096 ? part->bytes - at : 4096;
		if (memcmp(part->to + at, part->from + at, size))
			flags[at / 4096] = 1;
	}
}

PROBE_PIECES_KERNEL
{
	for (uint64_t at = block->block_idx[0]; at < p->count; at += block->grid_dim[0]) {
		const struct md_probe_part *part = &p->pieces[at];
		if (part->from && part->what)
			differ(part);
		else if (part->from)
			memcpy(part->to, part->from, part->bytes);
		for (uint64_t i = 0; !part->from && i < part->bytes; i += 8)
			memcpy(part->to + i, &part->what, part->bytes - i < 8 ? part->bytes - i : 8);
	}
}

struct md_probe_piece {
	const uint8_t *from;
	uint64_t bytes, lane;
	uint64_t *sums;
};

struct md_probe_hash_params {
	const struct md_probe_piece *pieces;
	uint64_t count;
};

static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 32) * 0xd6e8feb86659fd93u;
	z = (z ^ z >> 32) * 0xd6e8feb86659fd93u;
	return z ^ z >> 32;
}

/* By blocks that run at the same time. */
HOSTCUDA_KERNEL(md_probe_hash, struct md_probe_hash_params, HOSTCUDA_PARAM(struct md_probe_hash_params, pieces),
		HOSTCUDA_PARAM(struct md_probe_hash_params, count))
{
	for (uint64_t at = block->block_idx[0]; at < p->count; at += block->grid_dim[0]) {
		const struct md_probe_piece *piece = &p->pieces[at];
		uint64_t one = 0, two = 0;
		for (uint64_t i = 0; i < piece->bytes; i += 16) {
			uint64_t key = (piece->lane + i / 16 + 1) * 0x9e3779b97f4a7c15u, words[2] = {0, 0};
			memcpy(words, piece->from + i, piece->bytes - i < 16 ? piece->bytes - i : 16);
			uint64_t x = mix(words[0] + key), y = mix((words[1] + key) ^ x);
			one += mix(x + y);
			two += y;
		}
		__atomic_fetch_add(&piece->sums[0], one, __ATOMIC_RELAXED);
		__atomic_fetch_add(&piece->sums[1], two, __ATOMIC_RELAXED);
	}
}
