/* SPDX-License-Identifier: Apache-2.0 */
/* The spill file of a pool: blocks of engines that have been out for longest are moved there when memory is full. */
#ifndef MD_SWAP_POOL_SPILL_H
#define MD_SWAP_POOL_SPILL_H

#include "swap/pool.h"
#include "swap/spill_file.h"

/*
 * A block of the spill file has a number from MD_SWAP_SPILLED on, its place in the file being what is above it. The pool
 * finds, holds and gives it like a block in memory, but it has no address.
 *
 * An owner that rests has its blocks moved, and learns their new places when it works again. So an owner that fills,
 * copies or reads blocks works; one whose engine is out and idle rests. A new owner works.
 */

/* What this owner holds may be moved from now on. */
void md_swap_pool_rest(struct md_swap_pool *pool);
/* ... and may not. Never waits for a block that is being written. */
void md_swap_pool_work(struct md_swap_pool *pool);
/*
 * Where a block with this hash is that this owner holds: in memory if one is there, which it holds from then on in place
 * of that in the file. False: it holds none.
 */
bool md_swap_pool_locate(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t *block);
/* Drops one reference to a block with this hash, wherever it is now. A fresh block that was not filled becomes free. */
void md_swap_pool_give_hash(struct md_swap_pool *pool, const struct md_hash *hash);
/*
 * The bytes of a block in memory that this owner holds, which may rest: NULL, if the block is elsewhere by now. room is
 * 2 MiB of the caller's; it is used where bytes could change while they are read.
 */
const void *md_swap_pool_peek(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t block, void *room);

/* Blocks that can be taken, in memory and in the file together: those that are free or cached. Sweeps if there are fewer. */
uint64_t md_swap_pool_room(struct md_swap_pool *pool, uint64_t wanted);
/*
 * Moves blocks of owners that rest to the file until so many can be taken in memory, or nothing is left that can be
 * moved. *written is the number of bytes that were. MD_ERR_NO_MEMORY: a block could not be written, since the disk
 * is full or fails; it stays in memory.
 */
enum md_status md_swap_pool_make_room(struct md_swap_pool *pool, uint64_t wanted, uint64_t *written,
				      struct md_error *err);
/* As md_swap_pool_take, but a fresh block lies in the file. False: all are held. */
bool md_swap_pool_take_spilled(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t *block, bool *fresh);
/* A fresh block in memory, unless one of this hash is there, or none is free or cached. */
bool md_swap_pool_take_spare(struct md_swap_pool *pool, const struct md_hash *hash, uint32_t *block);

/* The file; its descriptor may be renewed by md_swap_pool_renew_spill. Blocks 0: there is none. */
const struct md_swap_spill_file *md_swap_pool_spill(const struct md_swap_pool *pool);
/* Takes a copy of this descriptor if the engine has closed that which there was. */
enum md_status md_swap_pool_renew_spill(struct md_swap_pool *pool, int fd, struct md_error *err);
/* Whether the descriptor is that of the spill file of this pool. Fails as md_swap_pool_look does. */
enum md_status md_swap_pool_is_spill(int fd, int spill_fd, bool *is, struct md_error *err);
/* Bytes in the file that this owner holds while it rests; else 0. It costs little if nothing was moved since the last call. */
uint64_t md_swap_pool_spilled(struct md_swap_pool *pool);

#endif
