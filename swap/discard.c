/* SPDX-License-Identifier: Apache-2.0 */
#include "swap/discard.h"

#include <inttypes.h>

#include "base/interval.h"

static struct md_interval_index said MD_GUARDED_BY(md_swap_memory_lock);

/* Nothing lies behind the end of a large allocation, up to the end of its physical memory. */
static uint64_t end_of_memory(uint64_t end) MD_REQUIRES(md_swap_memory_lock)
{
	const struct md_swap_mapping *mapping = md_swap_mapping_at(end - 1);
	const struct md_swap_physical *piece = mapping ? mapping->physical : NULL;
	if (!piece || !md_swap_is_piece(piece) || piece->slab || end != mapping->address + piece->asked)
		return end;
	return mapping->address + mapping->bytes;
}

enum md_status md_swap_discard_say(uint64_t address, uint64_t bytes, bool discardable, struct md_error *err)
{
	pthread_mutex_lock(&md_swap_memory_lock);
	uint64_t size = end_of_memory(address + bytes) - address;
	bool done = discardable ? md_interval_merge(&said, address, size) : md_interval_cut(&said, address, size);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return done || !discardable
		   ? MD_OK
		   : md_error_set(err, MD_ERR_NO_MEMORY,
				  "out of memory for what is said of %" PRIu64 " bytes at %#" PRIx64, bytes, address);
}

void md_swap_discard_forget(uint64_t address, uint64_t bytes)
{
	md_interval_cut(&said, address, bytes);
}

bool md_swap_discard_covers(uint64_t address, uint64_t bytes)
{
	pthread_mutex_lock(&md_swap_memory_lock);
	const struct md_interval *at = md_interval_find(&said, address);
	bool covers = at && address - at->start + bytes <= at->size;
	pthread_mutex_unlock(&md_swap_memory_lock);
	return covers;
}
