/* SPDX-License-Identifier: Apache-2.0 */
/* Scans blocks for words that lie in regions with memory. */
#include "swap/leads.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define KEPT_MOST ((size_t)1 << 20) /* contents */
#define STEP 64u                    /* words that are looked at together */

static void forget(struct md_swap_leads *leads)
{
	md_map_finish(&leads->known);
	md_map_init(&leads->known);
	leads->count = leads->granule_count = 0;
}

void md_swap_leads_finish(struct md_swap_leads *leads)
{
	md_map_finish(&leads->known);
	free(leads->items);
	free(leads->granules);
	*leads = (struct md_swap_leads){0};
}

static bool has_region(const struct md_swap_leads *leads, uint32_t region)
{
	return region < MD_SWAP_REGIONS && (leads->regions[region / 64] >> region % 64 & 1);
}

void md_swap_leads_add_region(struct md_swap_leads *leads, uint64_t address, uint64_t bytes)
{
	bool more = false;
	if (!bytes)
		return;
	for (uint64_t region = address >> 32; region <= (address + bytes - 1) >> 32; region++) {
		if (region == 0 || region >= MD_SWAP_REGIONS) {
			leads->beyond = true;
			return;
		}
		more = more || !has_region(leads, (uint32_t)region);
		leads->regions[region / 64] |= (uint64_t)1 << region % 64;
	}
	if (more)
		forget(leads);
}

static uint64_t key_of(const struct md_hash *hash)
{
	uint64_t key;
	memcpy(&key, hash->bytes, sizeof(key));
	return key;
}

const struct md_swap_lead *md_swap_leads_find(const struct md_swap_leads *leads, const struct md_hash *hash)
{
	uint64_t index;
	return md_map_get(&leads->known, key_of(hash), &index) ? &leads->items[index] : NULL;
}

bool md_swap_leads_has_region(const struct md_swap_leads *leads, uint64_t word)
{
	return leads->beyond || (word >> 32 < MD_SWAP_REGIONS && has_region(leads, (uint32_t)(word >> 32)));
}

/* Only addresses in known regions were found. A block that may lead anywhere makes every call wait for everything anyway. */
bool md_swap_leads_mention(const struct md_swap_leads *leads, uint64_t address, uint64_t bytes)
{
	uint64_t first = address >> MD_SWAP_GRANULE_SHIFT, last = (address + bytes) >> MD_SWAP_GRANULE_SHIFT;
	for (uint64_t region = address >> 32; bytes && region <= (address + bytes - 1) >> 32; region++)
		if (region >= MD_SWAP_REGIONS || !has_region(leads, (uint32_t)region))
			return true;
	for (size_t i = 0; i < leads->granule_count; i++)
		if (leads->granules[i] + 1 >= first && leads->granules[i] <= last + 1)
			return true;
	return false;
}

/* ---- scanning ---- */

/* False: no memory. */
static bool note(struct md_swap_leads *leads, struct md_swap_lead *lead, uint64_t granule)
{
	for (uint32_t i = lead->count; i-- > 0;)
		if (leads->granules[lead->at + i] == granule)
			return true;
	if (lead->count == MD_SWAP_LEADS_MOST) {
		lead->count = MD_SWAP_LEADS_ANYWHERE;
		return true;
	}
	if (!MD_ARRAY_GROW(leads->granules, lead->at + lead->count, leads->granule_room))
		return false;
	leads->granules[lead->at + lead->count++] = granule;
	return true;
}

/* The upper halves of addresses are few: weights and activations have hardly any. */
static bool has_upper_half(const uint32_t *words)
{
	uint32_t found = 0;
	for (size_t i = 0; i < STEP; i++)
		found |= words[i] - 1 < MD_SWAP_REGIONS - 1;
	return found;
}

static bool scan_some(struct md_swap_leads *leads, struct md_swap_lead *lead, const uint32_t *words, size_t from,
		      size_t to)
{
	for (size_t i = from ? from : 1; i < to && lead->count != MD_SWAP_LEADS_ANYWHERE; i++)
		if (words[i] && has_region(leads, words[i]) &&
		    !note(leads, lead, ((uint64_t)words[i] << 32 | words[i - 1]) >> MD_SWAP_GRANULE_SHIFT))
			return false;
	return true;
}

static bool scan(struct md_swap_leads *leads, struct md_swap_lead *lead, const uint32_t *words, size_t count)
{
	size_t at = 0;
	for (; at + STEP <= count; at += STEP)
		if (has_upper_half(words + at) && !scan_some(leads, lead, words, at, at + STEP))
			return false;
	return scan_some(leads, lead, words, at, count);
}

bool md_swap_leads_scan(struct md_swap_leads *leads, const struct md_hash *hash, const void *bytes, size_t size)
{
	const uint32_t *words = bytes;
	if (leads->count == KEPT_MOST)
		forget(leads);
	if (!size || leads->granule_count > UINT32_MAX - MD_SWAP_LEADS_MOST ||
	    !MD_ARRAY_GROW(leads->items, leads->count, leads->room))
		return false;
	struct md_swap_lead lead = {
	    .first = words[0], .last = words[size / 4 - 1], .at = (uint32_t)leads->granule_count};
	if (!scan(leads, &lead, words, size / 4) || !md_map_put(&leads->known, key_of(hash), leads->count))
		return false;
	leads->items[leads->count++] = lead;
	leads->granule_count += lead.count == MD_SWAP_LEADS_ANYWHERE ? 0 : lead.count;
	return true;
}
