/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which beginnings of prompts somebody has computed: hashes of blocks, each of which stands for all of the prompt up to its end
 * (a chain), and who has them. Bounded: what was used longest ago goes first.
 */
#ifndef MD_SCHEDULER_CLUSTER_PREFIX_TABLE_H
#define MD_SCHEDULER_CLUSTER_PREFIX_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MD_PREFIX_HOLDERS                                                                                              \
	4u /* of one block that are remembered; a further one takes the place of the one that was noted longest ago */
#define MD_PREFIX_HITS 16u

struct md_prefix_table;

/* blocks: at most, from 1 on; age_ns: what was noted longer ago counts no more. NULL: out of memory. */
struct md_prefix_table *md_prefix_table_create(uint32_t blocks, uint64_t age_ns);
void md_prefix_table_destroy(struct md_prefix_table *table); /* NULL is fine */

/* The holder has all blocks of the chain. now: ns, and never less than before. Without memory for a block it is forgotten. */
void md_prefix_table_note(struct md_prefix_table *table, const uint64_t *chain, uint32_t count, uint32_t holder,
			  uint64_t now);

struct md_prefix_hit {
	uint32_t holder, blocks; /* it has so many, from the beginning of the chain on */
};
/* Who has a beginning of the chain, each once, with the longest first; returns how many there are. */
uint32_t md_prefix_table_look(const struct md_prefix_table *table, const uint64_t *chain, uint32_t count, uint64_t now,
			      struct md_prefix_hit hits[MD_PREFIX_HITS]);

uint32_t md_prefix_table_used(const struct md_prefix_table *table); /* blocks */

#endif
