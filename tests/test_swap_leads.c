/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses in blocks: what is found, what is not one, and when what was found is forgotten. */
#include "swap/leads.h"

#include <criterion/criterion.h>
#include <string.h>

#define BASE ((uint64_t)0x7f12 << 32)
enum { WORDS = 4096 };

static struct md_swap_leads leads;
static uint32_t words[WORDS];

static void set_up(void)
{
	md_swap_leads_add_region(&leads, BASE, (uint64_t)1 << 20);
}

static void tear_down(void)
{
	md_swap_leads_finish(&leads);
}

TestSuite(swap_leads, .init = set_up, .fini = tear_down, .timeout = 60);

static void put(size_t at, uint64_t word)
{
	memcpy(&words[at], &word, sizeof(word));
}

static const struct md_swap_lead *scan(void)
{
	struct md_hash hash = md_hash_bytes(words, sizeof(words));
	cr_assert(md_swap_leads_scan(&leads, &hash, words, sizeof(words)), "there is memory");
	return md_swap_leads_find(&leads, &hash);
}

Test(swap_leads, an_address_is_found_at_every_fourth_byte)
{
	for (size_t at = 0; at + 2 <= WORDS; at += at < 300 ? 1 : 97) {
		memset(words, 0, sizeof(words));
		put(at, BASE + 12345678);
		const struct md_swap_lead *lead = scan();
		cr_assert_eq(lead->count, 1, "word %zu: %u addresses", at, lead->count);
		cr_assert_eq(leads.granules[lead->at], (BASE + 12345678) >> MD_SWAP_GRANULE_SHIFT, "word %zu", at);
	}
}

Test(swap_leads, numbers_are_no_addresses)
{
	for (size_t i = 0; i < WORDS; i++)
		words[i] = (uint32_t)(i % 3 == 0 ? 0x3c003c00 : i % 3 == 1 ? 7 : 0xbf800000);
	cr_assert_eq(scan()->count, 0, "numbers");
}

Test(swap_leads, both_halves_at_the_borders_are_kept)
{
	words[0] = 0x7f12;
	words[WORDS - 1] = 77;
	const struct md_swap_lead *lead = scan();
	cr_assert(lead->first == 0x7f12 && lead->last == 77 && lead->count == 0, "%x %u", lead->first, lead->last);
}

Test(swap_leads, a_block_with_many_addresses_leads_anywhere)
{
	for (size_t i = 0; i < WORDS / 2; i++)
		put(2 * i, BASE + ((uint64_t)i << MD_SWAP_GRANULE_SHIFT));
	cr_assert_eq(scan()->count, MD_SWAP_LEADS_ANYWHERE, "too many");
	memset(words, 0, sizeof(words));
	for (size_t i = 0; i < WORDS / 2; i++)
		put(2 * i, BASE + 64 * i);
	cr_assert_leq(scan()->count, 3, "many addresses in a few granules");
}

Test(swap_leads, a_new_region_makes_all_blocks_unknown)
{
	struct md_hash hash = md_hash_bytes(words, sizeof(words));
	put(10, BASE + ((uint64_t)5 << 32));
	scan();
	hash = md_hash_bytes(words, sizeof(words));
	cr_assert_eq(md_swap_leads_find(&leads, &hash)->count, 0, "there is no memory there");
	md_swap_leads_add_region(&leads, BASE + 4096, 4096);
	cr_assert(md_swap_leads_find(&leads, &hash), "the region was known");
	md_swap_leads_add_region(&leads, BASE + ((uint64_t)5 << 32), 4096);
	cr_assert_not(md_swap_leads_find(&leads, &hash), "the region was not known");
	cr_assert_eq(scan()->count, 1, "there is memory now");
}

Test(swap_leads, memory_beyond_all_regions_is_noticed)
{
	cr_assert_not(leads.beyond);
	md_swap_leads_add_region(&leads, (uint64_t)1 << 50, 4096);
	cr_assert(leads.beyond, "an address that no region holds");
}
