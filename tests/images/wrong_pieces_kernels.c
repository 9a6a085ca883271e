/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel that compares is right; the ones for pieces and for a search leave the last byte or word alone, and must not be trusted. */
#include <string.h>

#include "hostcuda/kernel.h"
#include "tests/images/probe_params.h"

PROBE_DIFFER_KERNEL
{
	uint64_t first = (uint64_t)block->block_idx[0] * 256, left = p->words - first, count = left < 256 ? left : 256;
	if (first < p->words && memcmp(p->one + 2 * first, p->two + 2 * first, 16 * count))
		p->flags[block->block_idx[0]] = 1;
}

PROBE_PIECES_KERNEL
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

PROBE_SEARCH_KERNEL
{
	uint64_t first = (uint64_t)block->block_idx[0] * 512;
	for (uint64_t at = first; at < first + 512 && at + 1 < p->words; at++)
		if (p->data[at] - p->lowest < p->span)
			p->flags[block->block_idx[0]] = 1;
}
