/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory that holds blocks of device memory by their hash: one memfd, mapped by all processes of an engine, or of
 * several. Behind it there may be a file (pool_spill.h).
 */
#ifndef MD_SWAP_POOL_H
#define MD_SWAP_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"

#define MD_SWAP_BLOCK (2ull << 20)     /* bytes of a block */
#define MD_SWAP_POOL_OWNERS 256u       /* processes that map a pool at a time */
#define MD_SWAP_POOL_BLOCKS (1u << 20) /* of the largest pool: 2 TiB */

#define MD_SWAP_SPILLED (1u << 30) /* numbers of blocks of the spill file begin here */

static inline bool md_swap_is_spilled(uint32_t block)
{
	return block >= MD_SWAP_SPILLED && block < MD_SWAP_SPILLED + (1u << 29);
}

/*
 * A process that maps a pool is an owner. A block is held as long as an owner has a reference to it. A filled block that
 * is not held is kept as a cache until its room is needed, so that an engine finds weights there that have not changed.
 * Several processes may call all functions at once.
 */
struct md_swap_pool;

struct md_swap_spill_file;

struct md_swap_tier_counts {
	uint32_t blocks; /* held + cached + free */
	uint32_t held, cached, free;
};

struct md_swap_pool_counts {
	uint32_t blocks; /* in memory: held + cached + free */
	uint32_t held, cached, free;
	struct md_swap_tier_counts spill; /* in the spill file; all 0 where there is none */
	uint32_t owners;
};

/*
 * A new pool of at least one block, and of whole blocks otherwise; *fd is the caller's. MD_ERR_TOO_LARGE names the
 * most that there can be.
 */
enum md_status md_swap_pool_create(uint64_t bytes, int *fd, struct md_error *err);
/* The same with a spill file behind it, which must be handed to all owners beside the pool. */
enum md_status md_swap_pool_create_spilling(uint64_t bytes, const struct md_swap_spill_file *spill, int *fd,
					    struct md_error *err);
/*
 * Maps the pool and makes this process an owner; fd may be closed then. MD_ERR_CORRUPT, MD_ERR_VERSION, MD_ERR_INVALID: it
 * is no pool, or could be made smaller; MD_ERR_BUSY: too many owners.
 */
enum md_status md_swap_pool_open(int fd, struct md_swap_pool **pool, struct md_error *err);
/*
 * The same with the descriptor of its spill file, which may be closed then. -1: the pool must have none;
 * MD_SWAP_WITHOUT_FILE: this owner uses nothing but blocks in memory, which others hold.
 */
#define MD_SWAP_WITHOUT_FILE (-2)
enum md_status md_swap_pool_open_spilling(int fd, int spill_fd, struct md_swap_pool **pool, struct md_error *err);
/*
 * What the pool's header says, without becoming an owner and without the lock, which a process that is stopped may hold:
 * numbers of a moment. owners is 0. Fails as md_swap_pool_open does.
 */
enum md_status md_swap_pool_look(int fd, struct md_swap_pool_counts *counts, struct md_error *err);
/* Gives back all that this owner holds. NULL is allowed. */
void md_swap_pool_close(struct md_swap_pool *pool);

/*
 * The filled block with this hash, with one more reference of this owner; in the spill file only if it is not in memory.
 * False: there is none.
 */
bool md_swap_pool_find(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t *block);
/*
 * The same, or else a fresh block, which the caller fills and then declares filled; *fresh says which it is. Fresh blocks
 * that are taken one after the other lie side by side if there is room. Blocks that have memory are preferred to free
 * blocks without memory; for that, cached blocks that were given back long ago are evicted. Before it fails, the references
 * of owners that have died are dropped. MD_ERR_NO_MEMORY: all blocks are held.
 */
enum md_status md_swap_pool_take(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t *block, bool *fresh,
				 struct md_error *err);
void md_swap_pool_filled(struct md_swap_pool *pool, uint32_t block);
/* Drops one reference. A fresh block that was not filled becomes free. */
void md_swap_pool_give(struct md_swap_pool *pool, uint32_t block);
/* Of a block in memory. */
void *md_swap_pool_bytes(const struct md_swap_pool *pool, uint32_t block);
/* Whether this process has the pool mapped at the address. */
bool md_swap_pool_is_at(const struct md_swap_pool *pool, uint64_t address);
struct md_swap_pool_counts md_swap_pool_count(struct md_swap_pool *pool);
/* Drops the references of owners that have died. */
void md_swap_pool_sweep(struct md_swap_pool *pool);

/* States how many blocks this owner would like to have memory. */
void md_swap_pool_want(struct md_swap_pool *pool, uint32_t blocks);
/* What all owners would like, and never more than the pool has. */
uint32_t md_swap_pool_wanted(const struct md_swap_pool *pool);
/*
 * States that pages which get memory from now on should lie on this NUMA node. If owners have stated several nodes, they lie on
 * these in turn. False, with a warning: the kernel refuses, and pages lie where they happen to.
 */
bool md_swap_pool_prefer(struct md_swap_pool *pool, unsigned node);
/*
 * Gives the first `blocks` of the pool memory, with several threads, so that locking their pages later is quick. Stops
 * early when *stop is set, and does nothing while another caller, in any process, is at it.
 */
void md_swap_pool_populate(struct md_swap_pool *pool, uint32_t blocks, unsigned threads, const atomic_bool *stop);
/*
 * Forgets all blocks, and gives their memory back to the machine. False: another process has the pool, and nothing was
 * done. Not while md_swap_pool_populate runs.
 */
bool md_swap_pool_empty(struct md_swap_pool *pool);
/* The number of first blocks that have memory. Blocks that were taken may lie behind them. */
uint32_t md_swap_pool_populated(const struct md_swap_pool *pool);

#endif
