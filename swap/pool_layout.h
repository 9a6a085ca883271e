/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a pool's memory; for pool.c and pool_file.c. */
#ifndef MD_SWAP_POOL_LAYOUT_H
#define MD_SWAP_POOL_LAYOUT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

#include "swap/pool.h"

#define MD_SWAP_POOL_MAGIC 0x6c6f6f704d53u
#define MD_SWAP_POOL_VERSION 2u

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
	bool used;
	pid_t pid;
	uint64_t started;  /* distinguishes the process from a later one with the same id */
	atomic_uint wants; /* blocks that are to have memory */
};

/* At the beginning of the memory; behind it come blocks, buckets, references by owner, and the bytes. */
struct md_swap_pool_head {
	uint64_t magic;
	uint32_t version, blocks;
	atomic_uint populated;
	pthread_mutex_t populating; /* held by whoever gives blocks memory; free when that process dies */
	/*
	 * Guards all that follows, and the tables. A process that finds the lock's holder dead makes the tables anew.
	 */
	pthread_mutex_t lock;
	uint32_t free, cached;
	uint32_t next_free, hand; /* where the next free block is looked for, and the next one to be evicted */
	struct md_swap_pool_owner owners[MD_SWAP_POOL_OWNERS];
};

/* Offsets in the memory, which follow from the number of blocks. */
struct md_swap_pool_layout {
	uint32_t blocks, buckets; /* buckets: a power of two */
	uint64_t blocks_at, buckets_at, refs_at, bytes_at, size;
};

struct md_swap_pool {
	struct md_swap_pool_layout layout; /* never read again from the memory, which others can write */
	struct md_swap_pool_head *head;
	struct md_swap_pool_block *blocks;
	uint32_t *buckets; /* index of the first block + 1, or 0 */
	uint32_t *refs;    /* of all owners, a row of blocks for each */
	uint8_t *bytes;
	uint32_t owner; /* this process */
	ino_t inode;    /* of the file, as /proc/PID/maps has it */
};

/* Whether the process lives, and has not replaced itself by another program (exec), which has nothing of the pool. */
bool md_swap_pool_owner_lives(const struct md_swap_pool *pool, const struct md_swap_pool_owner *owner);
/* For pool_file.c. The lock is held from lock to unlock. */
void md_swap_pool_lock(struct md_swap_pool *pool);
void md_swap_pool_unlock(struct md_swap_pool *pool);
void md_swap_pool_drop_all(struct md_swap_pool *pool);
/* Makes all blocks free, if this process is the only owner. The lock is held. */
bool md_swap_pool_forget(struct md_swap_pool *pool);

#endif
