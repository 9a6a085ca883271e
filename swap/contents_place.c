/* SPDX-License-Identifier: Apache-2.0 */
/* Finds places for blocks in the pool: in memory, in the spill file, or in neither, which is a refusal. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "swap/contents.h"
#include "swap/pool_spill.h"

/* Holds the blocks that the pool has, before fresh ones are taken, which must not evict them. */
static size_t find_all(struct md_swap_contents *contents, struct md_swap_pool *pool, const struct md_hash *zeros)
{
	size_t missing = 0;
	for (size_t i = 0; i < contents->block_count; i++) {
		if (md_hash_equal(&contents->hashes[i].hash, zeros)) {
			contents->blocks[i] = MD_SWAP_ZERO;
		} else if (!md_swap_pool_find(pool, &contents->hashes[i].hash, &contents->blocks[i])) {
			contents->blocks[i] = MD_SWAP_NOT_TAKEN;
			missing++;
		}
	}
	return missing;
}

/* ---- how much is missing ---- */

static int compare_hashes(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct md_hash));
}

/* Equal blocks take one place. */
static enum md_status count_distinct(const struct md_swap_contents *contents, size_t missing, size_t *distinct,
				     struct md_error *err)
{
	MD_AUTO_FREE struct md_hash *hashes = calloc(missing + 1, sizeof(*hashes));
	size_t count = 0;
	if (!hashes)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the hashes of %zu blocks", missing);
	for (size_t i = 0; i < contents->block_count && count < missing; i++)
		if (contents->blocks[i] == MD_SWAP_NOT_TAKEN)
			hashes[count++] = contents->hashes[i].hash;
	qsort(hashes, count, sizeof(*hashes), compare_hashes);
	*distinct = count > 0;
	for (size_t i = 1; i < count; i++)
		*distinct += !md_hash_equal(&hashes[i], &hashes[i - 1]);
	return MD_OK;
}

static enum md_status refuse(struct md_swap_pool *pool, uint64_t missing, struct md_error *err)
{
	const struct md_swap_spill_file *spill = md_swap_pool_spill(pool);
	uint64_t memory = md_swap_pool_count(pool).blocks * (uint64_t)MD_SWAP_BLOCK, bytes = missing * MD_SWAP_BLOCK;
	if (spill->blocks)
		return md_error_set(err, MD_ERR_NO_MEMORY,
				    "the pool is too small: it has %" PRIu64 " bytes of memory, its spill file in %s "
				    "%" PRIu64 ", and %" PRIu64 " more are needed (--pool-bytes or --spill-bytes of "
				    "medusa-swap run, or the sizes of the pool that engines share)",
				    memory, spill->path, spill->blocks * (uint64_t)MD_SWAP_BLOCK, bytes);
	return md_error_set(err, MD_ERR_NO_MEMORY,
			    "the pool is too small: it has %" PRIu64 " bytes, and %" PRIu64
			    " more are needed (medusa-swap run --pool-bytes, or the size of the pool that engines "
			    "share)",
			    memory, bytes);
}

static enum md_status make_room(const struct md_swap_contents *contents, struct md_swap_pool *pool, size_t missing,
				struct md_swap_report *report, struct md_error *err)
{
	size_t distinct = 0;
	uint64_t began = md_clock_ns();
	MD_FORWARD(count_distinct(contents, missing, &distinct, err));
	uint64_t room = md_swap_pool_room(pool, distinct);
	if (room < distinct)
		return refuse(pool, distinct - room, err);
	enum md_status status = md_swap_pool_make_room(pool, distinct, &report->spilled, err);
	report->ns_spill = md_clock_ns() - began;
	return status;
}

/* ---- for callers ---- */

/* Once memory is full, the rest goes to the file. */
static bool take(struct md_swap_contents *contents, struct md_swap_pool *pool, size_t i, bool *full)
{
	const struct md_hash *hash = &contents->hashes[i].hash;
	struct md_error none = {0};
	*full = *full || md_swap_pool_take(pool, hash, &contents->blocks[i], &contents->fresh[i], &none) != MD_OK;
	return !*full || md_swap_pool_take_spilled(pool, hash, &contents->blocks[i], &contents->fresh[i]);
}

enum md_status md_swap_contents_reserve(struct md_swap_contents *contents, struct md_swap_pool *pool,
					const struct md_hash *zeros, struct md_swap_report *report,
					struct md_error *err)
{
	size_t missing = find_all(contents, pool, zeros);
	bool full = false;
	MD_FORWARD(make_room(contents, pool, missing, report, err));
	for (size_t i = 0; i < contents->block_count; i++) {
		if (contents->blocks[i] == MD_SWAP_NOT_TAKEN && !take(contents, pool, i, &full))
			return refuse(pool, missing, err); /* another engine was faster */
		missing -= contents->fresh[i];
	}
	return MD_OK;
}

enum md_status md_swap_contents_locate(struct md_swap_contents *contents, struct md_swap_pool *pool, bool *spilled,
				       struct md_error *err)
{
	*spilled = false;
	for (size_t i = 0; i < contents->block_count; i++) {
		if (contents->blocks[i] >= MD_SWAP_ZERO)
			continue;
		if (!md_swap_pool_locate(pool, &contents->hashes[i].hash, &contents->blocks[i]))
			return md_error_set(err, MD_ERR_CORRUPT,
					    "the pool has lost the block of the memory at %#" PRIx64,
					    contents->hashes[i].address);
		*spilled = *spilled || md_swap_is_spilled(contents->blocks[i]);
	}
	return MD_OK;
}
