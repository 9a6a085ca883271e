/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a pool's memory, and its tables; for pool.c, pool_file.c and pool_spill.c. */
#ifndef MD_SWAP_POOL_LAYOUT_H
#define MD_SWAP_POOL_LAYOUT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

#include "swap/pool.h"
#include "swap/spill_file.h"

#define MD_SWAP_POOL_MAGIC 0x6c6f6f704d53u
#define MD_SWAP_POOL_VERSION 4u

/* Blocks lie in memory or in the spill file. The tables know both kinds by one index: those in memory come first. */
enum md_swap_tier { MD_SWAP_TIER_MEMORY, MD_SWAP_TIER_FILE, MD_SWAP_TIERS };

enum md_swap_block_state {
	MD_SWAP_BLOCK_FREE,
	MD_SWAP_BLOCK_FRESH, /* its owner fills it: nobody else may use it */
	MD_SWAP_BLOCK_FILLED,
};

struct md_swap_pool_block {
	struct md_hash hash;
	uint32_t next; /* in the chain of its bucket: index + 1, or 0 */
	uint32_t held; /* references of all owners */
	uint8_t state; /* enum md_swap_block_state; written after hash and filler */
	bool recent;   /* it was given back since the clock's hand last passed */
	uint16_t filler;
};

struct md_swap_pool_owner {
	atomic_bool used; /* it and `wants` are read without the lock, too */
	pid_t pid;
	uint64_t started;  /* distinguishes the process from a later one with the same id */
	atomic_uint wants; /* blocks that are to have memory */
	/*
	 * CLOCK_MONOTONIC, ns: what it holds may be moved to the spill file since then; 0: it may not, because this owner
	 * knows its blocks by their places now.
	 */
	uint64_t rests_since;
};

struct md_swap_pool_tables {
	uint32_t free, cached;
	uint32_t next_free, hand; /* where the next free block is looked for, and the next one to be evicted */
};

/* What the spill file is; never changes. blocks is 0 where there is none. */
struct md_swap_pool_spill {
	uint32_t blocks;
	bool direct;
	uint64_t device, inode;
	char path[MD_SWAP_SPILL_PATH];
};

/* At the beginning of the memory; behind it come blocks, buckets, references by owner, and the bytes. */
struct md_swap_pool_head {
	uint64_t magic;
	uint32_t version, blocks; /* blocks: in memory */
	struct md_swap_pool_spill spill;
	atomic_uint populated;
	uint64_t nodes;             /* NUMA nodes on which pages should lie: a bit for each; 0: no matter */
	atomic_uint moves;          /* of blocks to the spill file, so far */
	pthread_mutex_t populating; /* held by whoever gives blocks memory; free when that process dies */
	/*
	 * Guards all that follows, and the tables. A process that finds the lock's holder dead makes the tables anew.
	 */
	pthread_mutex_t lock;
	struct md_swap_pool_tables tiers[MD_SWAP_TIERS];
	uint32_t moves_from, moves_to; /* index + 1: references are being moved; 0: none are */
	struct md_swap_pool_owner owners[MD_SWAP_POOL_OWNERS];
};

/* Offsets in the memory, which follow from the numbers of blocks. */
struct md_swap_pool_layout {
	uint32_t blocks;  /* in memory */
	uint32_t all;     /* these, and those of the spill file behind them */
	uint32_t buckets; /* a power of two */
	uint64_t blocks_at, buckets_at, refs_at, bytes_at, size;
};

/* What was counted last. */
struct md_swap_pool_spilled {
	uint64_t since, bytes;
	uint32_t moves;
};

struct md_swap_pool {
	struct md_swap_pool_layout layout; /* never read again from the memory, which others can write */
	struct md_swap_pool_head *head;
	struct md_swap_pool_block *blocks;
	uint32_t *buckets; /* index of the first block + 1, or 0 */
	uint32_t *refs;    /* of all owners, a row of blocks for each */
	uint8_t *bytes;
	uint32_t owner;                  /* this process */
	ino_t inode;                     /* of the file, as /proc/PID/maps has it */
	struct md_swap_spill_file spill; /* blocks is 0 where there is none */
	struct md_swap_pool_spilled spilled;
};

/* ---- indexes; callers know blocks of the spill file by other numbers ---- */

static inline uint32_t md_swap_pool_index(const struct md_swap_pool *pool, uint32_t block)
{
	return block < MD_SWAP_SPILLED ? block : block - MD_SWAP_SPILLED + pool->layout.blocks;
}

static inline uint32_t md_swap_pool_number(const struct md_swap_pool *pool, uint32_t index)
{
	return index < pool->layout.blocks ? index : index - pool->layout.blocks + MD_SWAP_SPILLED;
}

static inline enum md_swap_tier md_swap_pool_tier(const struct md_swap_pool *pool, uint32_t index)
{
	return index < pool->layout.blocks ? MD_SWAP_TIER_MEMORY : MD_SWAP_TIER_FILE;
}

static inline uint32_t *md_swap_pool_refs(const struct md_swap_pool *pool, uint32_t owner)
{
	return pool->refs + (uint64_t)owner * pool->layout.all;
}

/* Whether the process lives, and has not replaced itself by another program (exec), which has nothing of the pool. */
bool md_swap_pool_owner_lives(const struct md_swap_pool *pool, const struct md_swap_pool_owner *owner);

/* ---- in pool.c; the lock is held from lock to unlock, and never while a file is written or read ---- */

void md_swap_pool_lock(struct md_swap_pool *pool);
void md_swap_pool_unlock(struct md_swap_pool *pool);
void md_swap_pool_drop_all(struct md_swap_pool *pool);
/* Makes all blocks free, if this process is the only owner. */
bool md_swap_pool_forget(struct md_swap_pool *pool);
/* Makes all blocks of the file this owner's, or free. False: somebody else has one, and nothing was done. */
bool md_swap_pool_set_file(struct md_swap_pool *pool, bool mine);
/* The first block in the chain of a hash; each block names the next one. Ends at 0. */
uint32_t *md_swap_pool_bucket(struct md_swap_pool *pool, const struct md_hash *hash);
/*
 * A block with this hash that is filled, or that this owner fills: one in memory if there is one. False: there is none.
 */
bool md_swap_pool_look_up(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t *index);
/* One reference more of this owner. */
void md_swap_pool_hold(struct md_swap_pool *pool, uint32_t index);
void md_swap_pool_let_go(struct md_swap_pool *pool, uint32_t index, uint32_t references);
/* A block that this owner fills, and holds. False: all blocks of the tier are held. */
bool md_swap_pool_take_fresh(struct md_swap_pool *pool, enum md_swap_tier tier, const struct md_hash *hash,
			     uint32_t *index);
/* Of both tiers; what the head says is not trusted. */
void md_swap_pool_count_tiers(const struct md_swap_pool_head *head, const struct md_swap_pool_layout *layout,
			      struct md_swap_pool_counts *counts);
/* The process may be killed between any two writes, so the compiler must not move writes across this one. */
void md_swap_pool_set_state(struct md_swap_pool_block *block, uint8_t state);

/* ---- in pool_spill.c ---- */

/* Ends a move of references that a process which was killed has begun. */
void md_swap_pool_end_move(struct md_swap_pool *pool);
/* Gives the disk back what the file takes, if it holds nothing. */
void md_swap_pool_punch(struct md_swap_pool *pool);
/* Takes a copy of the descriptor of the pool's spill file, after a check. */
enum md_status md_swap_pool_keep_spill(struct md_swap_pool *pool, int fd, struct md_error *err);

#endif
