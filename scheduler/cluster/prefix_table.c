/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/cluster/prefix_table.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/map.h"

#define NONE UINT32_MAX

struct block {
	uint64_t key;
	uint32_t newer, older; /* of the list by last use */
	struct {
		uint32_t holder; /* 0: nobody */
		uint32_t at_ms;
	} by[MD_PREFIX_HOLDERS];
};

struct md_prefix_table {
	struct md_map map; /* from a key to its block's index */
	struct block *blocks;
	uint32_t used, room, most;
	uint32_t newest, oldest;
	uint64_t age_ms, base; /* base: ns, of the first note */
	bool begun;
};

struct md_prefix_table *md_prefix_table_create(uint32_t blocks, uint64_t age_ns)
{
	struct md_prefix_table *table = calloc(1, sizeof(*table));
	if (!table)
		return NULL;
	md_map_init(&table->map);
	table->most = blocks;
	table->age_ms = age_ns / 1000000;
	table->newest = table->oldest = NONE;
	return table;
}

void md_prefix_table_destroy(struct md_prefix_table *table)
{
	if (!table)
		return;
	md_map_finish(&table->map);
	free(table->blocks);
	free(table);
}

uint32_t md_prefix_table_used(const struct md_prefix_table *table)
{
	return table->used;
}

/* ---- the list by last use ---- */

static void unlink_block(struct md_prefix_table *table, uint32_t at)
{
	const struct block *block = &table->blocks[at];
	if (block->newer == NONE)
		table->newest = block->older;
	else
		table->blocks[block->newer].older = block->older;
	if (block->older == NONE)
		table->oldest = block->newer;
	else
		table->blocks[block->older].newer = block->newer;
}

static void link_newest(struct md_prefix_table *table, uint32_t at)
{
	table->blocks[at].newer = NONE;
	table->blocks[at].older = table->newest;
	if (table->newest == NONE)
		table->oldest = at;
	else
		table->blocks[table->newest].newer = at;
	table->newest = at;
}

/* ---- noting ---- */

/* 49 days of milliseconds fit: what was noted longer ago looks newer than it is, which costs a wrong guess. */
static uint32_t stamp(const struct md_prefix_table *table, uint64_t now)
{
	return (uint32_t)((now - table->base) / 1000000);
}

/* A place for a block that is not there; NONE: out of memory. */
static uint32_t obtain(struct md_prefix_table *table, uint64_t key)
{
	uint32_t at = table->used;
	if (table->used < table->most && MD_ARRAY_GROW(table->blocks, table->used, table->room)) {
		table->used++;
	} else if (table->used) {
		uint64_t known;
		at = table->oldest;
		unlink_block(table, at);
		if (md_map_get(&table->map, table->blocks[at].key, &known) && known == at)
			md_map_remove(&table->map, table->blocks[at].key, NULL);
	} else {
		return NONE;
	}
	table->blocks[at] = (struct block){.key = key};
	link_newest(table, at);
	return at;
}

/* Where the holder stands in the block, or is to stand. */
static unsigned place_of(const struct block *block, uint32_t holder)
{
	unsigned place = 0;
	for (unsigned i = 0; i < MD_PREFIX_HOLDERS; i++)
		if (block->by[i].holder == holder)
			return i;
	for (unsigned i = 0; i < MD_PREFIX_HOLDERS && block->by[place].holder; i++)
		if (!block->by[i].holder || block->by[i].at_ms < block->by[place].at_ms)
			place = i;
	return place;
}

/* The map may have no memory: then nobody finds the block, until another one takes its place. */
static void put(struct md_prefix_table *table, uint64_t key, uint32_t holder, uint32_t at_ms)
{
	uint64_t found;
	uint32_t at;
	if (md_map_get(&table->map, key, &found)) {
		at = (uint32_t)found;
		unlink_block(table, at);
		link_newest(table, at);
	} else {
		at = obtain(table, key);
		if (at == NONE)
			return;
		md_map_put(&table->map, key, at);
	}
	struct block *block = &table->blocks[at];
	unsigned place = place_of(block, holder);
	block->by[place].holder = holder;
	block->by[place].at_ms = at_ms;
}

/* The last block first, so that the beginning of a chain, which others have too, is what stays longest. */
void md_prefix_table_note(struct md_prefix_table *table, const uint64_t *chain, uint32_t count, uint32_t holder,
			  uint64_t now)
{
	if (!table->begun)
		table->base = now;
	table->begun = true;
	for (uint32_t i = count; i-- > 0;)
		put(table, chain[i], holder, stamp(table, now));
}

/* ---- looking ---- */

static bool is_among(const struct md_prefix_hit *hits, uint32_t count, uint32_t holder)
{
	for (uint32_t i = 0; i < count; i++)
		if (hits[i].holder == holder)
			return true;
	return false;
}

uint32_t md_prefix_table_look(const struct md_prefix_table *table, const uint64_t *chain, uint32_t count, uint64_t now,
			      struct md_prefix_hit hits[MD_PREFIX_HITS])
{
	uint32_t hit_count = 0;
	uint32_t now_ms = stamp(table, now);
	for (uint32_t i = count; i-- > 0;) {
		uint64_t at;
		if (!md_map_get(&table->map, chain[i], &at))
			continue;
		const struct block *block = &table->blocks[at];
		for (unsigned k = 0; k < MD_PREFIX_HOLDERS && hit_count < MD_PREFIX_HITS; k++)
			if (block->by[k].holder && now_ms - block->by[k].at_ms <= table->age_ms &&
			    !is_among(hits, hit_count, block->by[k].holder))
				hits[hit_count++] = (struct md_prefix_hit){block->by[k].holder, i + 1};
	}
	return hit_count;
}
