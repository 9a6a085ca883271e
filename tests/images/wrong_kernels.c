/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel that compares all but the last word: the poison test must not trust it. */
#include "hostcuda/kernel.h"
#include "tests/images/probe_params.h"

PROBE_DIFFER_KERNEL
{
	for (uint32_t thread = 0; thread < block->block_dim[0]; thread++) {
		uint64_t at = (uint64_t)block->block_idx[0] * block->block_dim[0] + thread;
		if (at + 1 < p->words && (p->one[2 * at] != p->two[2 * at] || p->one[2 * at + 1] != p->two[2 * at + 1]))
			p->flags[block->block_idx[0]] = 1;
	}
}

struct md_probe_hash_params {
	const void *pieces;
	uint64_t count;
};

/* Adds nothing. */
HOSTCUDA_KERNEL(md_probe_hash, struct md_probe_hash_params, HOSTCUDA_PARAM(struct md_probe_hash_params, pieces),
		HOSTCUDA_PARAM(struct md_probe_hash_params, count))
{
	(void)p;
}
