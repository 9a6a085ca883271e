/* SPDX-License-Identifier: Apache-2.0 */
/* Small allocations in one piece of 2 MB: a bit for each unit of 512 bytes, and the size of what begins there. */
#ifndef MD_SWAP_SLAB_H
#define MD_SWAP_SLAB_H

#include <stdbool.h>
#include <stdint.h>

#define MD_SWAP_SLAB_BYTES ((uint64_t)2 << 20)
#define MD_SWAP_SLAB_UNIT 512u
#define MD_SWAP_SLAB_UNITS 4096u

struct md_swap_slab {
	uint64_t used[MD_SWAP_SLAB_UNITS / 64];
	uint32_t sizes[MD_SWAP_SLAB_UNITS]; /* bytes as asked for, at the first unit; 0 elsewhere */
	uint32_t units;                     /* taken */
	uint32_t longest;                   /* no run of free units is longer */
};

void md_swap_slab_init(struct md_swap_slab *slab);
/* The lowest place that fits; false if there is none. bytes > 0. */
bool md_swap_slab_take(struct md_swap_slab *slab, uint64_t bytes, uint64_t *offset);
/* False if no allocation begins at the offset. */
bool md_swap_slab_give(struct md_swap_slab *slab, uint64_t offset);
/* The allocation that holds the offset; false if none does. */
bool md_swap_slab_find(const struct md_swap_slab *slab, uint64_t offset, uint64_t *start, uint64_t *bytes);

#endif
