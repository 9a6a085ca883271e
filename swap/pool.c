/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a pool: found by hash, taken, filled, given back, evicted. */
#include "swap/pool.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "swap/pool_layout.h"

static struct md_swap_pool_tables *tables_of(struct md_swap_pool *pool, uint32_t index)
{
	return &pool->head->tiers[md_swap_pool_tier(pool, index)];
}

void md_swap_pool_set_state(struct md_swap_pool_block *block, uint8_t state)
{
	atomic_signal_fence(memory_order_seq_cst);
	block->state = state;
	atomic_signal_fence(memory_order_seq_cst);
}

/* ---- chains of blocks whose hashes fall into one bucket ---- */

uint32_t *md_swap_pool_bucket(struct md_swap_pool *pool, const struct md_hash *hash)
{
	uint32_t word;
	memcpy(&word, hash->bytes, sizeof(word));
	return &pool->buckets[word & (pool->layout.buckets - 1)];
}

static void chain(struct md_swap_pool *pool, uint32_t index)
{
	struct md_swap_pool_block *block = &pool->blocks[index];
	uint32_t *bucket = md_swap_pool_bucket(pool, &block->hash);
	block->next = *bucket;
	*bucket = index + 1;
}

static void unchain(struct md_swap_pool *pool, uint32_t index)
{
	uint32_t *at = md_swap_pool_bucket(pool, &pool->blocks[index].hash);
	while (*at && *at <= pool->layout.all) {
		if (*at == index + 1) {
			*at = pool->blocks[index].next;
			return;
		}
		at = &pool->blocks[*at - 1].next;
	}
}

/* A block that another owner is still filling does not count. */
bool md_swap_pool_look_up(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t *index)
{
	uint32_t at = *md_swap_pool_bucket(pool, hash);
	bool found = false;
	while (at && at <= pool->layout.all) {
		const struct md_swap_pool_block *block = &pool->blocks[at - 1];
		bool usable = block->state == MD_SWAP_BLOCK_FILLED || block->filler == pool->owner;
		if (usable && md_hash_equal(&block->hash, hash)) {
			*index = at - 1;
			found = true;
			if (*index < pool->layout.blocks)
				return true;
		}
		at = block->next;
	}
	return found;
}

/* ---- references ---- */

void md_swap_pool_hold(struct md_swap_pool *pool, uint32_t index)
{
	struct md_swap_pool_block *block = &pool->blocks[index];
	if (!block->held && block->state == MD_SWAP_BLOCK_FILLED)
		tables_of(pool, index)->cached--;
	block->held++;
	md_swap_pool_refs(pool, pool->owner)[index]++;
}

static void make_free(struct md_swap_pool *pool, uint32_t index)
{
	unchain(pool, index);
	md_swap_pool_set_state(&pool->blocks[index], MD_SWAP_BLOCK_FREE);
	tables_of(pool, index)->free++;
}

void md_swap_pool_let_go(struct md_swap_pool *pool, uint32_t index, uint32_t references)
{
	struct md_swap_pool_block *block = &pool->blocks[index];
	md_swap_pool_refs(pool, pool->owner)[index] -= references;
	block->held -= references;
	if (block->held)
		return;
	if (block->state != MD_SWAP_BLOCK_FILLED) {
		make_free(pool, index);
		return;
	}
	block->recent = true;
	tables_of(pool, index)->cached++;
}

void md_swap_pool_drop_all(struct md_swap_pool *pool)
{
	const uint32_t *refs = md_swap_pool_refs(pool, pool->owner);
	for (uint32_t i = 0; i < pool->layout.all; i++)
		if (refs[i])
			md_swap_pool_let_go(pool, i, refs[i]);
}

/* ---- after a death ---- */

/* Rows of places that nobody has hold nothing, and are not touched: that would give them memory. */
static void count_held(struct md_swap_pool *pool)
{
	for (uint32_t i = 0; i < pool->layout.all; i++)
		pool->blocks[i].held = 0;
	for (uint32_t owner = 0; owner < MD_SWAP_POOL_OWNERS; owner++) {
		const uint32_t *refs = md_swap_pool_refs(pool, owner);
		for (uint32_t i = 0; pool->head->owners[owner].used && i < pool->layout.all; i++)
			pool->blocks[i].held += refs[i];
	}
}

static bool is_filled_by(struct md_swap_pool *pool, uint32_t index, uint32_t owner)
{
	return owner < MD_SWAP_POOL_OWNERS && pool->head->owners[owner].used && md_swap_pool_refs(pool, owner)[index];
}

/* What nobody fills any more is free. */
static void drop_unfilled(struct md_swap_pool *pool, uint32_t index)
{
	struct md_swap_pool_block *block = &pool->blocks[index];
	if (block->state == MD_SWAP_BLOCK_FRESH && !is_filled_by(pool, index, block->filler))
		block->state = MD_SWAP_BLOCK_FREE;
	if (block->state > MD_SWAP_BLOCK_FILLED)
		block->state = MD_SWAP_BLOCK_FREE;
}

/* Computes the tables anew from states and references, because a dead process may have left a change half done. */
static void make_anew(struct md_swap_pool *pool)
{
	memset(pool->buckets, 0, pool->layout.buckets * sizeof(*pool->buckets));
	for (unsigned tier = 0; tier < MD_SWAP_TIERS; tier++)
		pool->head->tiers[tier].free = pool->head->tiers[tier].cached = 0;
	md_swap_pool_end_move(pool);
	count_held(pool);
	for (uint32_t i = 0; i < pool->layout.all; i++) {
		drop_unfilled(pool, i);
		if (pool->blocks[i].state == MD_SWAP_BLOCK_FREE) {
			tables_of(pool, i)->free++;
			continue;
		}
		chain(pool, i);
		tables_of(pool, i)->cached += !pool->blocks[i].held;
	}
}

void md_swap_pool_lock(struct md_swap_pool *pool)
{
	if (pthread_mutex_lock(&pool->head->lock) != EOWNERDEAD)
		return;
	make_anew(pool);
	pthread_mutex_consistent(&pool->head->lock);
}

void md_swap_pool_unlock(struct md_swap_pool *pool)
{
	pthread_mutex_unlock(&pool->head->lock);
}

/* Frees what these owners held, if they are still the same. The lock is held. */
static void bury(struct md_swap_pool *pool, const struct md_swap_pool_owner dead[MD_SWAP_POOL_OWNERS])
{
	bool any = false;
	for (uint32_t i = 0; i < MD_SWAP_POOL_OWNERS; i++) {
		struct md_swap_pool_owner *owner = &pool->head->owners[i];
		if (!dead[i].used || !owner->used || owner->pid != dead[i].pid || owner->started != dead[i].started)
			continue;
		memset(md_swap_pool_refs(pool, i), 0, pool->layout.all * sizeof(*pool->refs));
		atomic_signal_fence(memory_order_seq_cst); /* a process that is killed here leaves the place used */
		owner->used = false;
		any = true;
	}
	if (any)
		make_anew(pool);
}

bool md_swap_pool_forget(struct md_swap_pool *pool)
{
	for (uint32_t i = 0; i < MD_SWAP_POOL_OWNERS; i++)
		if (i != pool->owner && pool->head->owners[i].used)
			return false;
	memset(md_swap_pool_refs(pool, pool->owner), 0, pool->layout.all * sizeof(*pool->refs));
	for (uint32_t i = 0; i < pool->layout.all; i++)
		md_swap_pool_set_state(&pool->blocks[i], MD_SWAP_BLOCK_FREE);
	make_anew(pool);
	return true;
}

bool md_swap_pool_set_file(struct md_swap_pool *pool, bool mine)
{
	uint32_t *refs = md_swap_pool_refs(pool, pool->owner);
	for (uint32_t i = pool->layout.blocks; i < pool->layout.all && mine; i++)
		if (pool->blocks[i].held)
			return false;
	for (uint32_t i = pool->layout.blocks; i < pool->layout.all; i++) {
		pool->blocks[i].filler = (uint16_t)pool->owner;
		refs[i] = mine;
		md_swap_pool_set_state(&pool->blocks[i], mine ? MD_SWAP_BLOCK_FRESH : MD_SWAP_BLOCK_FREE);
	}
	make_anew(pool);
	return true;
}

/* Looks at processes without the lock, since that takes long for many of them. */
void md_swap_pool_sweep(struct md_swap_pool *pool)
{
	struct md_swap_pool_owner owners[MD_SWAP_POOL_OWNERS] = {0};
	bool any = false;
	md_swap_pool_lock(pool);
	for (uint32_t i = 0; i < MD_SWAP_POOL_OWNERS; i++) {
		const struct md_swap_pool_owner *owner = &pool->head->owners[i];
		owners[i].used = owner->used;
		owners[i].pid = owner->pid;
		owners[i].started = owner->started;
	}
	md_swap_pool_unlock(pool);
	for (uint32_t i = 0; i < MD_SWAP_POOL_OWNERS; i++) {
		owners[i].used = owners[i].used && !md_swap_pool_owner_lives(pool, &owners[i]);
		any = any || owners[i].used;
	}
	if (!any)
		return;
	md_swap_pool_lock(pool);
	bury(pool, owners);
	md_swap_pool_unlock(pool);
}

/* ---- taking ---- */

static uint32_t first_of(const struct md_swap_pool *pool, enum md_swap_tier tier)
{
	return tier == MD_SWAP_TIER_MEMORY ? 0 : pool->layout.blocks;
}

static uint32_t count_of(const struct md_swap_pool *pool, enum md_swap_tier tier)
{
	return tier == MD_SWAP_TIER_MEMORY ? pool->layout.blocks : pool->layout.all - pool->layout.blocks;
}

/* Among the first `blocks` of the tier. */
static bool find_free(struct md_swap_pool *pool, enum md_swap_tier tier, uint32_t blocks, uint32_t *index)
{
	struct md_swap_pool_tables *tables = &pool->head->tiers[tier];
	uint32_t first = first_of(pool, tier), at = blocks ? tables->next_free % blocks : 0;
	for (uint32_t i = 0; i < blocks; i++, at = (at + 1) % blocks) {
		if (pool->blocks[first + at].state != MD_SWAP_BLOCK_FREE)
			continue;
		tables->next_free = at + 1;
		*index = first + at;
		return true;
	}
	return false;
}

/* Spares once each block that was given back since the hand last passed. */
static uint32_t evict(struct md_swap_pool *pool, enum md_swap_tier tier)
{
	struct md_swap_pool_tables *tables = &pool->head->tiers[tier];
	uint32_t first = first_of(pool, tier), blocks = count_of(pool, tier), at = tables->hand % blocks;
	for (uint32_t i = 0; i < 2 * blocks; i++, at = (at + 1) % blocks) {
		struct md_swap_pool_block *block = &pool->blocks[first + at];
		if (block->state != MD_SWAP_BLOCK_FILLED || block->held)
			continue;
		if (!block->recent)
			break;
		block->recent = false;
	}
	tables->hand = at + 1;
	unchain(pool, first + at);
	tables->cached--;
	return first + at;
}

/* Memory that has pages is preferred; blocks of the file are all alike. */
static bool find_room(struct md_swap_pool *pool, enum md_swap_tier tier, uint32_t *index)
{
	struct md_swap_pool_tables *tables = &pool->head->tiers[tier];
	uint32_t blocks = count_of(pool, tier), ready = blocks;
	if (!tables->free && !tables->cached)
		return false;
	if (tier == MD_SWAP_TIER_MEMORY)
		ready = atomic_load(&pool->head->populated);
	if (tables->free && (find_free(pool, tier, ready < blocks ? ready : blocks, index) ||
			     (!(ready && tables->cached) && find_free(pool, tier, blocks, index))))
		tables->free--;
	else
		*index = evict(pool, tier);
	return true;
}

bool md_swap_pool_take_fresh(struct md_swap_pool *pool, enum md_swap_tier tier, const struct md_hash *hash,
			     uint32_t *index)
{
	if (!find_room(pool, tier, index))
		return false;
	struct md_swap_pool_block *block = &pool->blocks[*index];
	md_swap_pool_set_state(block, MD_SWAP_BLOCK_FREE); /* until all else is there */
	block->hash = *hash;
	block->filler = (uint16_t)pool->owner;
	block->held = 0;
	md_swap_pool_refs(pool, pool->owner)[*index] = 0;
	md_swap_pool_set_state(block, MD_SWAP_BLOCK_FRESH);
	chain(pool, *index);
	md_swap_pool_hold(pool, *index);
	return true;
}

bool md_swap_pool_find(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t *block)
{
	uint32_t index = 0;
	md_swap_pool_lock(pool);
	bool found = md_swap_pool_look_up(pool, hash, &index);
	if (found)
		md_swap_pool_hold(pool, index);
	md_swap_pool_unlock(pool);
	if (found)
		*block = md_swap_pool_number(pool, index);
	return found;
}

static bool find_or_take(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t *block, bool *fresh)
{
	uint32_t index = 0;
	md_swap_pool_lock(pool);
	bool found = md_swap_pool_look_up(pool, hash, &index);
	bool done = found || md_swap_pool_take_fresh(pool, MD_SWAP_TIER_MEMORY, hash, &index);
	if (found)
		md_swap_pool_hold(pool, index);
	md_swap_pool_unlock(pool);
	if (done) {
		*block = md_swap_pool_number(pool, index);
		*fresh = !found;
	}
	return done;
}

enum md_status md_swap_pool_take(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t *block, bool *fresh,
				 struct md_error *err)
{
	if (find_or_take(pool, hash, block, fresh))
		return MD_OK;
	md_swap_pool_sweep(pool); /* whoever should have done that may have died as well */
	if (find_or_take(pool, hash, block, fresh))
		return MD_OK;
	return md_error_set(err, MD_ERR_NO_MEMORY,
			    "the pool of %u blocks of 2 MiB is full: all are held by engines that are out",
			    pool->layout.blocks);
}

void md_swap_pool_filled(struct md_swap_pool *pool, uint32_t block)
{
	md_swap_pool_lock(pool);
	md_swap_pool_set_state(&pool->blocks[md_swap_pool_index(pool, block)], MD_SWAP_BLOCK_FILLED);
	md_swap_pool_unlock(pool);
}

void md_swap_pool_give(struct md_swap_pool *pool, uint32_t block)
{
	uint32_t index = md_swap_pool_index(pool, block);
	md_swap_pool_lock(pool);
	if (md_swap_pool_refs(pool, pool->owner)[index])
		md_swap_pool_let_go(pool, index, 1);
	md_swap_pool_unlock(pool);
}

/* ---- looking ---- */

void *md_swap_pool_bytes(const struct md_swap_pool *pool, uint32_t block)
{
	return pool->bytes + block * MD_SWAP_BLOCK;
}

bool md_swap_pool_is_at(const struct md_swap_pool *pool, uint64_t address)
{
	return address - (uint64_t)(uintptr_t)pool->head < pool->layout.size;
}

static void count_tier(const struct md_swap_pool_tables *tables, uint32_t blocks, struct md_swap_tier_counts *counts)
{
	counts->blocks = blocks;
	counts->free = tables->free < blocks ? tables->free : blocks;
	counts->cached = tables->cached < blocks - counts->free ? tables->cached : blocks - counts->free;
	counts->held = blocks - counts->free - counts->cached;
}

void md_swap_pool_count_tiers(const struct md_swap_pool_head *head, const struct md_swap_pool_layout *layout,
			      struct md_swap_pool_counts *counts)
{
	struct md_swap_tier_counts memory;
	count_tier(&head->tiers[MD_SWAP_TIER_MEMORY], layout->blocks, &memory);
	count_tier(&head->tiers[MD_SWAP_TIER_FILE], layout->all - layout->blocks, &counts->spill);
	counts->blocks = memory.blocks;
	counts->held = memory.held;
	counts->cached = memory.cached;
	counts->free = memory.free;
}

struct md_swap_pool_counts md_swap_pool_count(struct md_swap_pool *pool)
{
	struct md_swap_pool_counts counts = {0};
	md_swap_pool_lock(pool);
	md_swap_pool_count_tiers(pool->head, &pool->layout, &counts);
	for (uint32_t i = 0; i < MD_SWAP_POOL_OWNERS; i++)
		counts.owners += pool->head->owners[i].used;
	md_swap_pool_unlock(pool);
	return counts;
}
