/* SPDX-License-Identifier: Apache-2.0 */
/* Divides device memory into blocks, and hashes them. */
#include "swap/contents.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "swap/pool_spill.h"
#include "swap/pulse.h"

/* ---- gathering ---- */

static size_t blocks_of(const struct md_swap_range *range)
{
	if (range->flags & MD_SWAP_MOVES)
		return 0;
	return (range->bytes + MD_SWAP_BLOCK - 1) / MD_SWAP_BLOCK;
}

static void divide(struct md_swap_contents *contents, struct md_swap_part *part)
{
	for (size_t i = 0; i < part->count; i++) {
		uint64_t at = i * MD_SWAP_BLOCK, left = part->range.bytes - at;
		contents->hashes[part->first + i] = (struct md_hash_range){
		    .address = part->range.address + at, .size = left < MD_SWAP_BLOCK ? left : MD_SWAP_BLOCK};
		contents->blocks[part->first + i] = MD_SWAP_NOT_TAKEN;
	}
}

static enum md_status make_room(struct md_swap_contents *contents, size_t parts, size_t blocks, struct md_error *err)
{
	contents->parts = calloc(parts + 1, sizeof(*contents->parts));
	contents->hashes = calloc(blocks + 1, sizeof(*contents->hashes));
	contents->blocks = calloc(blocks + 1, sizeof(*contents->blocks));
	contents->fresh = calloc(blocks + 1, sizeof(*contents->fresh));
	if (contents->parts && contents->hashes && contents->blocks && contents->fresh)
		return MD_OK;
	return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the list of %zu blocks", blocks);
}

enum md_status md_swap_contents_gather(const struct md_swap_below *below, struct md_swap_contents *contents,
				       struct md_error *err)
{
	MD_AUTO_FREE struct md_swap_range *ranges = NULL;
	size_t count = 0, blocks = 0;
	*contents = (struct md_swap_contents){0};
	MD_FORWARD(below->list(&ranges, &count, err));
	for (size_t i = 0; i < count; i++)
		blocks += blocks_of(&ranges[i]);
	MD_FORWARD(make_room(contents, count, blocks, err));
	for (size_t i = 0; i < count; i++) {
		if (ranges[i].flags & MD_SWAP_RESIDENT) {
			contents->resident += ranges[i].bytes;
			continue;
		}
		struct md_swap_part *part = &contents->parts[contents->part_count++];
		*part = (struct md_swap_part){
		    .range = ranges[i], .first = contents->block_count, .count = blocks_of(&ranges[i])};
		contents->block_count += part->count;
		divide(contents, part);
	}
	return MD_OK;
}

/* By their hashes, because blocks may have been moved since they were taken. */
void md_swap_contents_finish(struct md_swap_contents *contents, struct md_swap_pool *pool)
{
	for (size_t i = 0; i < contents->block_count; i++)
		if (contents->blocks[i] < MD_SWAP_ZERO)
			md_swap_pool_give_hash(pool, &contents->hashes[i].hash);
	free(contents->parts);
	free(contents->hashes);
	free(contents->blocks);
	free(contents->fresh);
	*contents = (struct md_swap_contents){0};
}

/* ---- hashing ---- */

static enum md_status hash_in(struct md_swap_links *links, CUcontext context, struct md_hash_range *hashes,
			      size_t count, struct md_error *err)
{
	struct md_swap_link *link;
	size_t failed = 0;
	if (!count)
		return MD_OK;
	MD_FORWARD(md_swap_links_get(links, context, &link, err));
	md_swap_pulse_step();
	return md_device_hash(&link->hasher, link->streams[0], hashes, count, &failed, err);
}

/* Hashes neighbouring parts of one context by one call. */
enum md_status md_swap_contents_hash(struct md_swap_contents *contents, struct md_swap_links *links,
				     struct md_error *err)
{
	for (size_t i = 0, next; i < contents->part_count; i = next) {
		CUcontext context = contents->parts[i].range.context;
		size_t first = contents->parts[i].first, end = first;
		for (next = i; next < contents->part_count && contents->parts[next].range.context == context; next++)
			end = contents->parts[next].first + contents->parts[next].count;
		MD_FORWARD(hash_in(links, context, contents->hashes + first, end - first, err));
	}
	return MD_OK;
}

/* Hashes into a copy, so that the known hashes of the part stay. */
static enum md_status verify_part(const struct md_swap_contents *contents, const struct md_swap_part *part,
				  struct md_swap_links *links, struct md_error *err)
{
	MD_AUTO_FREE struct md_hash_range *now = calloc(part->count + 1, sizeof(*now));
	const struct md_hash_range *then = contents->hashes + part->first;
	if (!now)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the hashes of %zu blocks", part->count);
	for (size_t i = 0; i < part->count; i++)
		now[i] = then[i];
	MD_FORWARD(hash_in(links, part->range.context, now, part->count, err));
	for (size_t i = 0; i < part->count; i++)
		if (!md_hash_equal(&now[i].hash, &then[i].hash))
			return md_error_set(err, MD_ERR_CORRUPT,
					    "the block at %#" PRIx64 " has other bytes than when it went out",
					    then[i].address);
	return MD_OK;
}

enum md_status md_swap_contents_verify(const struct md_swap_contents *contents, struct md_swap_links *links,
				       struct md_error *err)
{
	for (size_t i = 0; i < contents->part_count; i++)
		if (contents->parts[i].place == MD_SWAP_EMPTY || contents->parts[i].place == MD_SWAP_GIVEN)
			MD_FORWARD(verify_part(contents, &contents->parts[i], links, err));
	return MD_OK;
}
