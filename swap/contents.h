/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of an engine's device memory: parts, divided into blocks, each with a hash and a place in the pool. */
#ifndef MD_SWAP_CONTENTS_H
#define MD_SWAP_CONTENTS_H

#include "driver/device_hash.h"
#include "swap/carry.h"
#include "swap/exchange.h"
#include "swap/device_link.h"

#define MD_SWAP_LENT_LEAST (2 * MD_SWAP_BLOCK) /* smaller allocations are not worth a handle of their own */

enum md_swap_place {
	MD_SWAP_HERE,
	MD_SWAP_AWAY,  /* unmapped */
	MD_SWAP_EMPTY, /* mapped again, and its bytes are not there yet */
	MD_SWAP_GIVEN, /* mapped again, with its bytes: other engines have them, too */
};

struct md_swap_part {
	struct md_swap_range range;
	enum md_swap_place place;
	size_t first, count; /* its blocks; count is 0 where no bytes are copied */
};

/* Blocks that are not in the pool. */
#define MD_SWAP_NOT_TAKEN UINT32_MAX
#define MD_SWAP_ZERO (UINT32_MAX - 1) /* nothing but zeros */

struct md_swap_contents {
	struct md_swap_part *parts; /* owned; sorted by address */
	size_t part_count;
	struct md_hash_range *hashes; /* owned, as the two behind it: of each block */
	uint32_t *blocks;             /* in the pool, or one of the values above */
	bool *fresh;                  /* to be copied into the pool */
	size_t block_count;
	uint64_t resident; /* bytes that stay */
};

/* Lists what the engine has now. Resident ranges are only counted. */
enum md_status md_swap_contents_gather(const struct md_swap_below *below, struct md_swap_contents *contents,
				       struct md_error *err);
/* Gives the blocks back to the pool. */
void md_swap_contents_finish(struct md_swap_contents *contents, struct md_swap_pool *pool);
enum md_status md_swap_contents_hash(struct md_swap_contents *contents, struct md_swap_links *links,
				     struct md_error *err);
/*
 * Finds a block of the pool for each block that is not zero (zeros: the hash of a zero block): one that has these bytes, or
 * a fresh one, for which blocks of other engines are moved to the pool's spill file if need be. MD_ERR_NO_MEMORY says how
 * many bytes are missing, before anything was moved; or that the file cannot be written.
 */
enum md_status md_swap_contents_reserve(struct md_swap_contents *contents, struct md_swap_pool *pool,
					const struct md_hash *zeros, struct md_swap_report *report,
					struct md_error *err);
/*
 * Finds where the blocks are now; they may have been moved while this owner of the pool rested. *spilled: some are in the
 * spill file. MD_ERR_CORRUPT: the pool does not know one any more.
 */
enum md_status md_swap_contents_locate(struct md_swap_contents *contents, struct md_swap_pool *pool, bool *spilled,
				       struct md_error *err);

/*
 * Copies fresh blocks of all parts to the pool, or blocks of parts that are empty from the pool, and waits. *copied and
 * *zero are bytes, *ns_lock the time that locking pages took.
 */
enum md_status md_swap_contents_copy(const struct md_swap_contents *contents, struct md_swap_links *links,
				     enum md_swap_direction direction, struct md_swap_report *report,
				     struct md_error *err);
/*
 * The same from the pool, with the carrier's help: what goes over links of neighbours is counted in the report. Fails only
 * where the own link fails, or where new memory was needed because the carrier failed.
 */
enum md_status md_swap_contents_share(const struct md_swap_contents *contents, const struct md_swap_below *below,
				      struct md_swap_links *links, struct md_swap_carry *carry,
				      struct md_swap_report *report, struct md_error *err);
/* For contents_share.c: submits the copies of a part, and waits for all that was submitted. */
enum md_status md_swap_contents_copy_part(const struct md_swap_contents *contents, const struct md_swap_part *part,
					  struct md_swap_links *links, enum md_swap_direction direction,
					  struct md_swap_report *report, struct md_error *err);
enum md_status md_swap_contents_wait(const struct md_swap_contents *contents, struct md_swap_links *links,
				     struct md_error *err);
/*
 * The same for blocks in the spill file, through page-locked memory; called by md_swap_contents_copy. On the way to the
 * device, what has come is hashed and compared: MD_ERR_CORRUPT names the place in the file. What fits into the pool's
 * memory is kept there, too.
 */
enum md_status md_swap_contents_copy_spilled(const struct md_swap_contents *contents, struct md_swap_links *links,
					     enum md_swap_direction direction, struct md_swap_report *report,
					     struct md_error *err);
/*
 * After a failure, before memory is unmapped or blocks are given back: waits for what may still be under way, as when
 * the wait itself has failed.
 */
void md_swap_contents_settle(const struct md_swap_contents *contents, struct md_swap_links *links);
/* Locks the pages of the pool from which parts that are empty are filled; *ns_lock of the report is the time. */
enum md_status md_swap_contents_lock(const struct md_swap_contents *contents, struct md_swap_links *links,
				     struct md_swap_report *report, struct md_error *err);
/*
 * Compares the bytes of parts that have been filled with the hashes from before. MD_ERR_CORRUPT names the first block
 * that differs.
 */
enum md_status md_swap_contents_verify(const struct md_swap_contents *contents, struct md_swap_links *links,
				       struct md_error *err);

#endif
