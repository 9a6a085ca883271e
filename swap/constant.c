/* SPDX-License-Identifier: Apache-2.0 */
#include "swap/constant.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/child.h"
#include "base/hash.h"
#include "base/interval.h"
#include "base/map.h"

struct bound {
	uint64_t address, bytes;
};

static struct md_interval_index constant MD_GUARDED_BY(md_swap_memory_lock), written MD_GUARDED_BY(md_swap_memory_lock);
static struct bound *bound MD_GUARDED_BY(md_swap_memory_lock); /* by name */
static size_t bound_count MD_GUARDED_BY(md_swap_memory_lock), bound_room MD_GUARDED_BY(md_swap_memory_lock);
static struct md_map names MD_GUARDED_BY(md_swap_memory_lock); /* checksum of a name -> its number in bound */
static bool doubt MD_GUARDED_BY(md_swap_memory_lock); /* there was no memory to note something: nothing is constant */

static struct bound *find_or_add(const char *name) MD_REQUIRES(md_swap_memory_lock)
{
	uint64_t key = md_hash_checksum(name, strlen(name)), at;
	if (md_map_get(&names, key, &at))
		return &bound[at];
	if (!MD_ARRAY_GROW(bound, bound_count, bound_room) || !md_map_put(&names, key, bound_count))
		return NULL;
	bound[bound_count] = (struct bound){0};
	return &bound[bound_count++];
}

/* What was said to be written where the name was before may have been said by other names: it stays so until it is freed. */
static bool bind(const char *name, uint64_t address, uint64_t bytes, bool is_constant) MD_REQUIRES(md_swap_memory_lock)
{
	struct bound *one = find_or_add(name);
	if (!one)
		return false;
	bool known = !one->bytes || md_interval_cut(&constant, one->address, one->bytes);
	*one = (struct bound){address, bytes};
	return md_interval_merge(is_constant ? &constant : &written, address, bytes) && known;
}

void md_swap_constant_bind(const char *name, uint64_t address, uint64_t bytes, bool is_constant)
{
	md_child_check();
	pthread_mutex_lock(&md_swap_memory_lock);
	doubt |= !bind(name, address, bytes, is_constant);
	pthread_mutex_unlock(&md_swap_memory_lock);
}

void md_swap_constant_forget(uint64_t address, uint64_t bytes)
{
	doubt |= !md_interval_cut(&constant, address, bytes) || !md_interval_cut(&written, address, bytes);
}

/* ---- what is constant ---- */

static bool covers(uint64_t address, uint64_t bytes) MD_REQUIRES(md_swap_memory_lock)
{
	const struct md_interval *at = md_interval_find(&constant, address);
	return at && address - at->start + bytes <= at->size;
}

static bool is_written(uint64_t address, uint64_t bytes) MD_REQUIRES(md_swap_memory_lock)
{
	const struct md_interval *after = md_interval_after(&written, address);
	return md_interval_find(&written, address) || (after && after->start - address < bytes);
}

static bool can_be_shared(const struct md_swap_physical *physical)
{
	return !physical->slab && !physical->resident && !physical->shared_fd && physical->mappings &&
	       physical->prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	       (unsigned)physical->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

bool md_swap_constant_is(const struct md_swap_physical *physical)
{
	if (doubt || !can_be_shared(physical))
		return false;
	for (const struct md_swap_mapping *at = physical->mappings; at; at = at->next) {
		uint64_t used = md_swap_is_piece(physical) ? physical->asked : at->bytes;
		if (!used || !covers(at->address, used) || is_written(at->address, at->bytes))
			return false;
	}
	return true;
}
