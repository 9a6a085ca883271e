/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a pool: found by hash, taken, filled, given back, evicted. */
#include "swap/pool.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "swap/pool_layout.h"

static uint32_t *refs_of(struct md_swap_pool *pool, uint32_t owner)
{
	return pool->refs + (uint64_t)owner * pool->layout.blocks;
}

/* The process may be killed between any two writes, so the compiler must not move writes across this point. */
static void set_state(struct md_swap_pool_block *block, uint8_t state)
{
	atomic_signal_fence(memory_order_seq_cst);
	block->state = state;
	atomic_signal_fence(memory_order_seq_cst);
}

/* ---- chains of blocks whose hashes fall into one bucket ---- */

static uint32_t *bucket_of(struct md_swap_pool *pool, const struct md_hash *hash)
{
	uint32_t word;
	memcpy(&word, hash->bytes, sizeof(word));
	return &pool->buckets[word & (pool->layout.buckets - 1)];
}

static void chain(struct md_swap_pool *pool, uint32_t index)
{
	struct md_swap_pool_block *block = &pool->blocks[index];
	uint32_t *bucket = bucket_of(pool, &block->hash);
	block->next = *bucket;
	*bucket = index + 1;
}

static void unchain(struct md_swap_pool *pool, uint32_t index)
{
	uint32_t *at = bucket_of(pool, &pool->blocks[index].hash);
	while (*at && *at <= pool->layout.blocks) {
		if (*at == index + 1) {
			*at = pool->blocks[index].next;
			return;
		}
		at = &pool->blocks[*at - 1].next;
	}
}

/* A block that another owner is still filling does not count. */
static bool look_up(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t *index)
{
	uint32_t at = *bucket_of(pool, hash);
	while (at && at <= pool->layout.blocks) {
		const struct md_swap_pool_block *block = &pool->blocks[at - 1];
		bool usable = block->state == MD_SWAP_BLOCK_FILLED || block->filler == pool->owner;
		if (usable && md_hash_equal(&block->hash, hash)) {
			*index = at - 1;
			return true;
		}
		at = block->next;
	}
	return false;
}

/* ---- references ---- */

static void hold(struct md_swap_pool *pool, uint32_t index)
{
	struct md_swap_pool_block *block = &pool->blocks[index];
	if (!block->held && block->state == MD_SWAP_BLOCK_FILLED)
		pool->head->cached--;
	block->held++;
	refs_of(pool, pool->owner)[index]++;
}

static void make_free(struct md_swap_pool *pool, uint32_t index)
{
	unchain(pool, index);
	set_state(&pool->blocks[index], MD_SWAP_BLOCK_FREE);
	pool->head->free++;
}

static void let_go(struct md_swap_pool *pool, uint32_t index, uint32_t references)
{
	struct md_swap_pool_block *block = &pool->blocks[index];
	refs_of(pool, pool->owner)[index] -= references;
	block->held -= references;
	if (block->held)
		return;
	if (block->state != MD_SWAP_BLOCK_FILLED) {
		make_free(pool, index);
		return;
	}
	block->recent = true;
	pool->head->cached++;
}

void md_swap_pool_drop_all(struct md_swap_pool *pool)
{
	const uint32_t *refs = refs_of(pool, pool->owner);
	for (uint32_t i = 0; i < pool->layout.blocks; i++)
		if (refs[i])
			let_go(pool, i, refs[i]);
}

/* ---- after a death ---- */

/* Rows of places that nobody has hold nothing, and are not touched: that would give them memory. */
static void count_held(struct md_swap_pool *pool)
{
	for (uint32_t i = 0; i < pool->layout.blocks; i++)
		pool->blocks[i].held = 0;
	for (uint32_t owner = 0; owner < MD_SWAP_POOL_OWNERS; owner++) {
		const uint32_t *refs = refs_of(pool, owner);
		for (uint32_t i = 0; pool->head->owners[owner].used && i < pool->layout.blocks; i++)
			pool->blocks[i].held += refs[i];
	}
}

static bool is_filled_by(struct md_swap_pool *pool, uint32_t index, uint32_t owner)
{
	return owner < MD_SWAP_POOL_OWNERS && pool->head->owners[owner].used && refs_of(pool, owner)[index];
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
	pool->head->free = pool->head->cached = 0;
	count_held(pool);
	for (uint32_t i = 0; i < pool->layout.blocks; i++) {
		drop_unfilled(pool, i);
		if (pool->blocks[i].state == MD_SWAP_BLOCK_FREE) {
			pool->head->free++;
			continue;
		}
		chain(pool, i);
		pool->head->cached += !pool->blocks[i].held;
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
		memset(refs_of(pool, i), 0, pool->layout.blocks * sizeof(*pool->refs));
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
	memset(refs_of(pool, pool->owner), 0, pool->layout.blocks * sizeof(*pool->refs));
	for (uint32_t i = 0; i < pool->layout.blocks; i++)
		set_state(&pool->blocks[i], MD_SWAP_BLOCK_FREE);
	make_anew(pool);
	return true;
}

/* Looks at processes without the lock, since that takes long for many of them. */
void md_swap_pool_sweep(struct md_swap_pool *pool)
{
	struct md_swap_pool_owner owners[MD_SWAP_POOL_OWNERS];
	bool any = false;
	md_swap_pool_lock(pool);
	for (uint32_t i = 0; i < MD_SWAP_POOL_OWNERS; i++)
		owners[i] = pool->head->owners[i];
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

/* Among the first `blocks`. */
static bool find_free(struct md_swap_pool *pool, uint32_t blocks, uint32_t *index)
{
	uint32_t at = blocks ? pool->head->next_free % blocks : 0;
	for (uint32_t i = 0; i < blocks; i++, at = (at + 1) % blocks) {
		if (pool->blocks[at].state != MD_SWAP_BLOCK_FREE)
			continue;
		pool->head->next_free = at + 1;
		*index = at;
		return true;
	}
	return false;
}

/* Spares once each block that was given back since the hand last passed. */
static uint32_t evict(struct md_swap_pool *pool)
{
	uint32_t blocks = pool->layout.blocks, at = pool->head->hand % blocks;
	for (uint32_t i = 0; i < 2 * blocks; i++, at = (at + 1) % blocks) {
		struct md_swap_pool_block *block = &pool->blocks[at];
		if (block->state != MD_SWAP_BLOCK_FILLED || block->held)
			continue;
		if (!block->recent)
			break;
		block->recent = false;
	}
	pool->head->hand = at + 1;
	unchain(pool, at);
	pool->head->cached--;
	return at;
}

static enum md_status take_fresh(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t *index,
				 struct md_error *err)
{
	struct md_swap_pool_head *head = pool->head;
	if (!head->free && !head->cached)
		return md_error_set(err, MD_ERR_NO_MEMORY,
				    "the pool of %u blocks of 2 MiB is full: all are held by engines that are out",
				    pool->layout.blocks);
	uint32_t ready = atomic_load(&head->populated), blocks = pool->layout.blocks;
	if (head->free && (find_free(pool, ready < blocks ? ready : blocks, index) ||
			   (!(ready && head->cached) && find_free(pool, blocks, index))))
		head->free--;
	else
		*index = evict(pool);
	struct md_swap_pool_block *block = &pool->blocks[*index];
	set_state(block, MD_SWAP_BLOCK_FREE); /* until all else is there */
	block->hash = *hash;
	block->filler = (uint16_t)pool->owner;
	block->held = 0;
	refs_of(pool, pool->owner)[*index] = 0;
	set_state(block, MD_SWAP_BLOCK_FRESH);
	chain(pool, *index);
	hold(pool, *index);
	return MD_OK;
}

bool md_swap_pool_find(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t *block)
{
	md_swap_pool_lock(pool);
	bool found = look_up(pool, hash, block);
	if (found)
		hold(pool, *block);
	md_swap_pool_unlock(pool);
	return found;
}

static enum md_status find_or_take(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t *block, bool *fresh,
				   struct md_error *err)
{
	enum md_status status = MD_OK;
	uint32_t index = 0;
	md_swap_pool_lock(pool);
	bool found = look_up(pool, hash, &index);
	if (found)
		hold(pool, index);
	else
		status = take_fresh(pool, hash, &index, err);
	md_swap_pool_unlock(pool);
	if (status == MD_OK) {
		*block = index;
		*fresh = !found;
	}
	return status;
}

enum md_status md_swap_pool_take(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t *block, bool *fresh,
				 struct md_error *err)
{
	struct md_error full;
	if (find_or_take(pool, hash, block, fresh, &full) == MD_OK)
		return MD_OK;
	md_swap_pool_sweep(pool); /* whoever should have done that may have died as well */
	return find_or_take(pool, hash, block, fresh, err);
}

void md_swap_pool_filled(struct md_swap_pool *pool, uint32_t block)
{
	md_swap_pool_lock(pool);
	set_state(&pool->blocks[block], MD_SWAP_BLOCK_FILLED);
	md_swap_pool_unlock(pool);
}

void md_swap_pool_give(struct md_swap_pool *pool, uint32_t block)
{
	md_swap_pool_lock(pool);
	if (refs_of(pool, pool->owner)[block])
		let_go(pool, block, 1);
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

struct md_swap_pool_counts md_swap_pool_count(struct md_swap_pool *pool)
{
	struct md_swap_pool_counts counts = {.blocks = pool->layout.blocks};
	md_swap_pool_lock(pool);
	counts.free = pool->head->free;
	counts.cached = pool->head->cached;
	counts.held = counts.blocks - counts.free - counts.cached;
	for (uint32_t i = 0; i < MD_SWAP_POOL_OWNERS; i++)
		counts.owners += pool->head->owners[i].used;
	md_swap_pool_unlock(pool);
	return counts;
}
