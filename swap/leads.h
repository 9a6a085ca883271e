/* SPDX-License-Identifier: Apache-2.0 */
/* Which addresses the blocks of device memory hold: found on the host, once for each content. */
#ifndef MD_SWAP_LEADS_H
#define MD_SWAP_LEADS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/map.h"

/* Addresses are rounded down to granules; the place within a granule does not matter. */
#define MD_SWAP_GRANULE_SHIFT 16u
/* Memory is known by regions of 4 GiB, up to 2^49: words that lie in none of them are no addresses. */
#define MD_SWAP_REGIONS (1u << 17)
#define MD_SWAP_LEADS_MOST 512u /* of a block: one that has more may lead anywhere */
#define MD_SWAP_LEADS_ANYWHERE UINT32_MAX

struct md_swap_lead {
	uint32_t first, last; /* four bytes at the beginning and the end, for an address that lies in two blocks */
	uint32_t at, count;   /* its granules; or MD_SWAP_LEADS_ANYWHERE */
};

struct md_swap_leads {
	struct md_map known; /* of a block's hash, 8 bytes -> index */
	struct md_swap_lead *items;
	size_t count, room;
	uint64_t *granules;
	size_t granule_count, granule_room;
	uint64_t regions[MD_SWAP_REGIONS / 64];
	bool beyond; /* some memory lies where no region is */
};

void md_swap_leads_finish(struct md_swap_leads *leads);
/* Words that point there are addresses from now on. If the region is new, all that is known of blocks is forgotten. */
void md_swap_leads_add_region(struct md_swap_leads *leads, uint64_t address, uint64_t bytes);
/*
 * The addresses in a block of this hash, or NULL if they are not known. Valid until the next call of another function.
 */
const struct md_swap_lead *md_swap_leads_find(const struct md_swap_leads *leads, const struct md_hash *hash);
/* Whether a word points into a region that had memory. */
bool md_swap_leads_has_region(const struct md_swap_leads *leads, uint64_t word);
/* Whether some block may hold an address that lies there, or up to a granule beside it. */
bool md_swap_leads_mention(const struct md_swap_leads *leads, uint64_t address, uint64_t bytes);
/*
 * Looks for addresses at all multiples of 4 bytes. size is a multiple of 4. False: no memory; the block stays unknown.
 */
bool md_swap_leads_scan(struct md_swap_leads *leads, const struct md_hash *hash, const void *bytes, size_t size);

#endif
