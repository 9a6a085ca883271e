/* SPDX-License-Identifier: Apache-2.0 */
/* Moves blocks from memory to the spill file, and finds them again. */
#include "swap/pool_spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "swap/pool_layout.h"
#include "swap/spill_queue.h"

#define BATCH 128u /* blocks that are chosen, and written, before others are */

/* ---- resting ---- */

static void set_rest(struct md_swap_pool *pool, uint64_t since)
{
	md_swap_pool_lock(pool);
	pool->head->owners[pool->owner].rests_since = since;
	md_swap_pool_unlock(pool);
}

void md_swap_pool_rest(struct md_swap_pool *pool)
{
	set_rest(pool, md_clock_ns());
}

void md_swap_pool_work(struct md_swap_pool *pool)
{
	set_rest(pool, 0);
}

/* ---- finding ---- */

/* The next block in the chain, from index + 1 on, that has this hash; 0: none. */
static uint32_t next_with(const struct md_swap_pool *pool, uint32_t at, const struct md_hash *hash)
{
	while (at && at <= pool->layout.all && !md_hash_equal(&pool->blocks[at - 1].hash, hash))
		at = pool->blocks[at - 1].next;
	return at <= pool->layout.all ? at : 0;
}

/* One that this owner holds: in memory if there is one. */
static bool find_mine(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t *index)
{
	const uint32_t *refs = md_swap_pool_refs(pool, pool->owner);
	uint32_t at = next_with(pool, *md_swap_pool_bucket(pool, hash), hash);
	bool found = false;
	for (; at; at = next_with(pool, pool->blocks[at - 1].next, hash)) {
		if (!refs[at - 1])
			continue;
		*index = at - 1;
		found = true;
		if (*index < pool->layout.blocks)
			break;
	}
	return found;
}

bool md_swap_pool_locate(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t *block)
{
	uint32_t index = 0, nearer = 0;
	md_swap_pool_lock(pool);
	bool found = find_mine(pool, hash, &index);
	if (found && index >= pool->layout.blocks && md_swap_pool_look_up(pool, hash, &nearer) &&
	    nearer < pool->layout.blocks) {
		md_swap_pool_hold(pool, nearer);
		md_swap_pool_let_go(pool, index, 1);
		index = nearer;
	}
	md_swap_pool_unlock(pool);
	if (found)
		*block = md_swap_pool_number(pool, index);
	return found;
}

void md_swap_pool_give_hash(struct md_swap_pool *pool, const struct md_hash *hash)
{
	uint32_t index;
	md_swap_pool_lock(pool);
	if (find_mine(pool, hash, &index))
		md_swap_pool_let_go(pool, index, 1);
	md_swap_pool_unlock(pool);
}

/* Whether the block is there, with this owner's reference. */
static bool is_there(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t block)
{
	md_swap_pool_lock(pool);
	bool there = block < pool->layout.blocks && md_swap_pool_refs(pool, pool->owner)[block] &&
		     md_hash_equal(&pool->blocks[block].hash, hash);
	md_swap_pool_unlock(pool);
	return there;
}

/* This owner's references do not come back to a place from which they were moved while it rests. */
const void *md_swap_pool_peek(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t block, void *room)
{
	if (!pool->spill.blocks)
		return md_swap_pool_bytes(pool, block);
	if (!is_there(pool, hash, block))
		return NULL;
	memcpy(room, md_swap_pool_bytes(pool, block), MD_SWAP_BLOCK);
	return is_there(pool, hash, block) ? room : NULL;
}

/* ---- taking ---- */

bool md_swap_pool_take_spilled(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t *block, bool *fresh)
{
	uint32_t index = 0;
	md_swap_pool_lock(pool);
	bool found = md_swap_pool_look_up(pool, hash, &index);
	bool done = found || md_swap_pool_take_fresh(pool, MD_SWAP_TIER_FILE, hash, &index);
	if (found)
		md_swap_pool_hold(pool, index);
	md_swap_pool_unlock(pool);
	if (done) {
		*block = md_swap_pool_number(pool, index);
		*fresh = !found;
	}
	return done;
}

bool md_swap_pool_take_spare(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t *block)
{
	uint32_t index = 0;
	md_swap_pool_lock(pool);
	bool known = md_swap_pool_look_up(pool, hash, &index) && index < pool->layout.blocks;
	bool done = !known && md_swap_pool_take_fresh(pool, MD_SWAP_TIER_MEMORY, hash, &index);
	md_swap_pool_unlock(pool);
	if (done)
		*block = md_swap_pool_number(pool, index);
	return done;
}

static uint64_t room_in(struct md_swap_pool *pool, enum md_swap_tier tier)
{
	return (uint64_t)pool->head->tiers[tier].free + pool->head->tiers[tier].cached;
}

static uint64_t room_now(struct md_swap_pool *pool)
{
	md_swap_pool_lock(pool);
	uint64_t room = room_in(pool, MD_SWAP_TIER_MEMORY) + room_in(pool, MD_SWAP_TIER_FILE);
	md_swap_pool_unlock(pool);
	return room;
}

static uint64_t room_in_memory(struct md_swap_pool *pool)
{
	md_swap_pool_lock(pool);
	uint64_t room = room_in(pool, MD_SWAP_TIER_MEMORY);
	md_swap_pool_unlock(pool);
	return room;
}

uint64_t md_swap_pool_room(struct md_swap_pool *pool, uint64_t wanted)
{
	uint64_t room = room_now(pool);
	if (room >= wanted)
		return room;
	md_swap_pool_sweep(pool); /* whoever should have done that may have died as well */
	return room_now(pool);
}

/* ---- moving ---- */

struct move {
	uint32_t from, to; /* indexes */
	struct md_swap_spill_job job;
};

/*
 * Done a second time, by whoever finds the lock's holder dead, it changes nothing that was moved already, because nobody
 * who holds `from` held `to` before.
 */
static void move_references(struct md_swap_pool *pool, uint32_t from, uint32_t to)
{
	for (uint32_t i = 0; i < MD_SWAP_POOL_OWNERS; i++) {
		uint32_t *refs = md_swap_pool_refs(pool, i);
		if (!pool->head->owners[i].used || !refs[from])
			continue;
		refs[to] = refs[from];
		atomic_signal_fence(memory_order_seq_cst);
		refs[from] = 0;
		atomic_signal_fence(memory_order_seq_cst);
	}
}

void md_swap_pool_end_move(struct md_swap_pool *pool)
{
	uint32_t from = pool->head->moves_from, to = pool->head->moves_to;
	if (from && to && from <= pool->layout.blocks && to <= pool->layout.all)
		move_references(pool, from - 1, to - 1);
	pool->head->moves_from = pool->head->moves_to = 0;
}

/* From here on, `from` is a cached block. This owner holds neither. The lock is held. */
static void move(struct md_swap_pool *pool, uint32_t from, uint32_t to)
{
	struct md_swap_pool_block *memory = &pool->blocks[from], *file = &pool->blocks[to];
	pool->head->moves_to = to + 1;
	atomic_signal_fence(memory_order_seq_cst);
	pool->head->moves_from = from + 1;
	atomic_signal_fence(memory_order_seq_cst);
	move_references(pool, from, to);
	pool->head->tiers[MD_SWAP_TIER_FILE].cached -= !file->held && memory->held;
	pool->head->tiers[MD_SWAP_TIER_MEMORY].cached += memory->held != 0;
	file->held += memory->held;
	memory->held = 0;
	memory->recent = false;
	atomic_signal_fence(memory_order_seq_cst);
	pool->head->moves_from = 0;
	atomic_fetch_add(&pool->head->moves, 1);
}

/* Whether all who hold the block rest, none of them for a shorter time than this owner. */
static bool may_move(struct md_swap_pool *pool, uint32_t index, uint64_t since)
{
	const struct md_swap_pool_block *block = &pool->blocks[index];
	if (block->state != MD_SWAP_BLOCK_FILLED)
		return false;
	for (uint32_t i = 0; i < MD_SWAP_POOL_OWNERS; i++) {
		const struct md_swap_pool_owner *owner = &pool->head->owners[i];
		if (owner->used && md_swap_pool_refs(pool, i)[index] &&
		    (!owner->rests_since || owner->rests_since > since))
			return false;
	}
	return true;
}

static bool share_a_holder(struct md_swap_pool *pool, uint32_t one, uint32_t other)
{
	for (uint32_t i = 0; i < MD_SWAP_POOL_OWNERS; i++)
		if (pool->head->owners[i].used && md_swap_pool_refs(pool, i)[one] && md_swap_pool_refs(pool, i)[other])
			return true;
	return false;
}

/* A block of the file that has these bytes already, as after the engine was in meanwhile. */
static bool find_copy(struct md_swap_pool *pool, uint32_t from, uint32_t *to)
{
	const struct md_hash *hash = &pool->blocks[from].hash;
	uint32_t at = next_with(pool, *md_swap_pool_bucket(pool, hash), hash);
	for (; at; at = next_with(pool, pool->blocks[at - 1].next, hash)) {
		if (at > pool->layout.blocks && pool->blocks[at - 1].state == MD_SWAP_BLOCK_FILLED &&
		    !share_a_holder(pool, from, at - 1)) {
			*to = at - 1;
			return true;
		}
	}
	return false;
}

/* Holds the block, which keeps its bytes, and a fresh block of the file. False: the file is full. */
static bool choose(struct md_swap_pool *pool, uint32_t from, struct move *moves, uint32_t *count)
{
	uint32_t to;
	if (find_copy(pool, from, &to)) {
		move(pool, from, to);
		return true;
	}
	if (!md_swap_pool_take_fresh(pool, MD_SWAP_TIER_FILE, &pool->blocks[from].hash, &to))
		return false;
	md_swap_pool_hold(pool, from);
	moves[(*count)++] = (struct move){.from = from, .to = to};
	return true;
}

struct resting {
	uint64_t since;
	uint32_t owner;
};

static int compare_resting(const void *a, const void *b)
{
	const struct resting *one = a, *other = b;
	return (one->since > other->since) - (one->since < other->since);
}

static uint32_t list_resting(struct md_swap_pool *pool, struct resting list[MD_SWAP_POOL_OWNERS])
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < MD_SWAP_POOL_OWNERS; i++)
		if (pool->head->owners[i].used && pool->head->owners[i].rests_since)
			list[count++] = (struct resting){pool->head->owners[i].rests_since, i};
	qsort(list, count, sizeof(*list), compare_resting);
	return count;
}

/* The blocks of those who have rested for longest; `most` at most. */
static uint32_t choose_some(struct md_swap_pool *pool, uint64_t wanted, struct move moves[BATCH])
{
	struct resting list[MD_SWAP_POOL_OWNERS];
	uint32_t resting = list_resting(pool, list), count = 0;
	for (uint32_t i = 0; i < resting; i++) {
		const uint32_t *refs = md_swap_pool_refs(pool, list[i].owner);
		for (uint32_t at = 0; at < pool->layout.blocks; at++) {
			if (count == BATCH || room_in(pool, MD_SWAP_TIER_MEMORY) + count >= wanted)
				return count;
			if (refs[at] && may_move(pool, at, list[i].since) && !choose(pool, at, moves, &count))
				return count;
		}
	}
	return count;
}

/*
 * The block was written, or was not. Its owners may have begun to work, or ended, meanwhile: then it stays in memory, and
 * the file has a copy.
 */
static void end_one(struct md_swap_pool *pool, const struct move *one)
{
	struct md_swap_pool_block *file = &pool->blocks[one->to];
	if (!one->job.failure)
		md_swap_pool_set_state(file, MD_SWAP_BLOCK_FILLED);
	md_swap_pool_let_go(pool, one->to, 1);
	md_swap_pool_let_go(pool, one->from, 1);
	if (!one->job.failure && pool->blocks[one->from].held && may_move(pool, one->from, UINT64_MAX) &&
	    !share_a_holder(pool, one->from, one->to))
		move(pool, one->from, one->to);
}

static enum md_status write_all(struct md_swap_pool *pool, struct md_swap_spill_queue *queue, struct move *moves,
				uint32_t count, uint64_t *written, struct md_error *err)
{
	enum md_status status = MD_OK;
	for (uint32_t i = 0; i < count; i++) {
		moves[i].job = (struct md_swap_spill_job){.block = moves[i].to - pool->layout.blocks,
							  .data = md_swap_pool_bytes(pool, moves[i].from),
							  .write = true};
		md_swap_spill_put(queue, &moves[i].job);
	}
	for (uint32_t i = 0; i < count; i++) {
		int failure = md_swap_spill_await(queue, &moves[i].job);
		*written += failure ? 0 : MD_SWAP_BLOCK;
		if (failure && status == MD_OK)
			status = md_swap_spill_explain(&pool->spill, moves[i].job.block, true, failure, err);
	}
	md_swap_pool_lock(pool);
	for (uint32_t i = 0; i < count; i++)
		end_one(pool, &moves[i]);
	md_swap_pool_unlock(pool);
	return status;
}

/* *over: there is room, or no more can be made. */
static enum md_status move_some(struct md_swap_pool *pool, struct md_swap_spill_queue *queue, struct move *moves,
				uint64_t wanted, bool *over, uint64_t *written, struct md_error *err)
{
	md_swap_pool_lock(pool);
	uint32_t count = choose_some(pool, wanted, moves);
	md_swap_pool_unlock(pool);
	*over = !count;
	return count ? write_all(pool, queue, moves, count, written, err) : MD_OK;
}

enum md_status md_swap_pool_make_room(struct md_swap_pool *pool, uint64_t wanted, uint64_t *written,
				      struct md_error *err)
{
	struct md_swap_spill_queue *queue = NULL;
	bool over = false;
	*written = 0;
	if (!pool->spill.blocks || wanted <= room_in_memory(pool))
		return MD_OK;
	md_swap_pool_sweep(pool); /* what the dead hold is not worth writing */
	struct move *moves = calloc(BATCH, sizeof(*moves));
	enum md_status status =
	    moves ? MD_OK : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a list of blocks");
	if (status == MD_OK)
		status = md_swap_spill_queue_begin(&pool->spill, &queue, err);
	while (status == MD_OK && !over)
		status = move_some(pool, queue, moves, wanted, &over, written, err);
	md_swap_spill_queue_end(queue);
	free(moves);
	return status;
}

/* ---- the file ---- */

const struct md_swap_spill_file *md_swap_pool_spill(const struct md_swap_pool *pool)
{
	return &pool->spill;
}

static bool is_file(const struct md_swap_pool_spill *spill, int fd)
{
	struct stat info;
	int flags = fcntl(fd, F_GETFL);
	return flags >= 0 && (flags & O_ACCMODE) == O_RDWR && !fstat(fd, &info) && info.st_dev == spill->device &&
	       info.st_ino == spill->inode && (uint64_t)info.st_size >= spill->blocks * MD_SWAP_BLOCK;
}

static enum md_status keep(struct md_swap_pool *pool, const struct md_swap_pool_spill *spill, int fd,
			   struct md_error *err)
{
	int flags = fcntl(fd, F_GETFL), copy;
	if (!is_file(spill, fd))
		return md_error_set(err, MD_ERR_INVALID, "the descriptor is not that of the pool's spill file in %s",
				    pool->spill.path);
	if (spill->direct && !(flags & O_DIRECT) && fcntl(fd, F_SETFL, flags | O_DIRECT))
		return md_error_set(err, MD_ERR_IO, "the spill file in %s: O_DIRECT: %s", pool->spill.path,
				    strerror(errno));
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (copy < 0 || !md_descriptor_keep(&pool->spill.kept, md_descriptor_raise(copy)))
		return md_error_set(err, MD_ERR_IO, "the spill file in %s: its descriptor: %s", pool->spill.path,
				    strerror(errno));
	return MD_OK;
}

enum md_status md_swap_pool_keep_spill(struct md_swap_pool *pool, int fd, struct md_error *err)
{
	struct md_swap_pool_spill spill = pool->head->spill;
	spill.path[sizeof(spill.path) - 1] = '\0';
	if (fd == MD_SWAP_WITHOUT_FILE || (!spill.blocks && fd < 0))
		return MD_OK;
	if (!spill.blocks)
		return md_error_set(err, MD_ERR_INVALID, "the pool has no spill file, and one was given");
	if (fd < 0)
		return md_error_set(err, MD_ERR_INVALID,
				    "the pool has a spill file, in %s, and its descriptor was not given "
				    "(medusa-swap run --spill-fd)",
				    spill.path);
	pool->spill.blocks = pool->layout.all - pool->layout.blocks;
	pool->spill.direct = spill.direct;
	memcpy(pool->spill.path, spill.path, sizeof(spill.path));
	return keep(pool, &spill, fd, err);
}

enum md_status md_swap_pool_renew_spill(struct md_swap_pool *pool, int fd, struct md_error *err)
{
	if (!pool->spill.blocks || md_descriptor_is_ours(&pool->spill.kept))
		return MD_OK;
	return keep(pool, &pool->head->spill, fd, err);
}

enum md_status md_swap_pool_is_spill(int fd, int spill_fd, bool *is, struct md_error *err)
{
	struct md_swap_pool_head head;
	struct md_swap_pool_counts counts;
	MD_FORWARD(md_swap_pool_look(fd, &counts, err));
	if (pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head))
		return md_error_set(err, MD_ERR_IO, "the pool's header: %s", strerror(errno));
	*is = counts.spill.blocks && is_file(&head.spill, spill_fd);
	return MD_OK;
}

static uint64_t count_spilled(const struct md_swap_pool *pool)
{
	uint64_t count = 0;
	const uint32_t *refs = md_swap_pool_refs(pool, pool->owner);
	for (uint32_t i = pool->layout.blocks; i < pool->layout.all; i++)
		count += refs[i] > 0;
	return count * MD_SWAP_BLOCK;
}

/* Without the lock where nothing has changed, since a process that is stopped may hold it. */
uint64_t md_swap_pool_spilled(struct md_swap_pool *pool)
{
	struct md_swap_pool_spilled *known = &pool->spilled;
	uint64_t since = pool->head->owners[pool->owner].rests_since; /* which nobody else writes */
	uint32_t moves = atomic_load(&pool->head->moves);
	if (!pool->spill.blocks || !since)
		return 0;
	if (known->since == since && known->moves == moves)
		return known->bytes;
	md_swap_pool_lock(pool);
	moves = atomic_load(&pool->head->moves);
	*known = (struct md_swap_pool_spilled){.since = since, .moves = moves, .bytes = count_spilled(pool)};
	md_swap_pool_unlock(pool);
	return known->bytes;
}

/* Holds all blocks of the file meanwhile, in place of the lock: nobody may write one that is about to be lost. */
void md_swap_pool_punch(struct md_swap_pool *pool)
{
	if (!pool->spill.blocks)
		return;
	md_swap_pool_lock(pool);
	bool alone = md_swap_pool_set_file(pool, true);
	md_swap_pool_unlock(pool);
	if (!alone)
		return;
	md_swap_spill_punch(&pool->spill);
	md_swap_pool_lock(pool);
	md_swap_pool_set_file(pool, false);
	md_swap_pool_unlock(pool);
}
