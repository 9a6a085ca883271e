/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory behind chosen addresses: one mapping for the blocks that
 * an allocation has to itself, and one for each shared block.
 */
#include "base/map.h"
#include "capture/place/place.h"

static struct md_map shared; /* number of a block -> device << 32 | how many allocations lie in it */
static bool peers[MD_PLACE_DEVICES][MD_PLACE_DEVICES]; /* [owner][who else] */

static unsigned list_access(int device, CUmemAccessDesc descs[MD_PLACE_DEVICES])
{
	unsigned count = 0;
	for (int other = 0; other < MD_PLACE_DEVICES; other++) {
		if (other != device && !peers[device][other])
			continue;
		descs[count++] = (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = other},
						   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	}
	return count;
}

static bool map_blocks(uint64_t first, uint64_t end, int device)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
	CUmemAccessDesc descs[MD_PLACE_DEVICES];
	unsigned count = list_access(device, descs);
	uint64_t at = first * MD_ORDER_BLOCK, bytes = (end - first) * MD_ORDER_BLOCK;
	CUmemGenericAllocationHandle handle;
	bool mapped;
	if (first >= end)
		return true;
	if (md_cuda.cuMemCreate(&handle, bytes, &prop, 0))
		return false;
	mapped = !md_cuda.cuMemMap(at, bytes, 0, handle, 0);
	md_cuda.cuMemRelease(handle); /* the mapping keeps it */
	if (mapped && md_cuda.cuMemSetAccess(at, bytes, descs, count)) {
		md_cuda.cuMemUnmap(at, bytes);
		mapped = false;
	}
	return mapped;
}

static bool take_shared(uint64_t block, int device)
{
	uint64_t value = 0;
	if (md_map_get(&shared, block, &value))
		return (int)(value >> 32) == device && md_map_put(&shared, block, value + 1);
	if (!map_blocks(block, block + 1, device))
		return false;
	if (md_map_put(&shared, block, (uint64_t)device << 32 | 1))
		return true;
	md_cuda.cuMemUnmap(block * MD_ORDER_BLOCK, MD_ORDER_BLOCK);
	return false;
}

static void drop_shared(uint64_t block)
{
	uint64_t value = 0;
	md_map_remove(&shared, block, &value);
	if ((uint32_t)value > 1)
		md_map_put(&shared, block, value - 1); /* there is room: it was just removed */
	else
		md_cuda.cuMemUnmap(block * MD_ORDER_BLOCK, MD_ORDER_BLOCK);
}

/*
 *	  first    from                to     last
 *	|  [addr---|-------|-------|---|----] |     the blocks [from, to) are its own, first and last may be shared
 */
struct range {
	uint64_t first, from, to, last;
	bool head, tail;
};

static struct range range_of(uint64_t address, uint64_t bytes)
{
	struct range range = {.first = address / MD_ORDER_BLOCK,
			      .from = (address + MD_ORDER_BLOCK - 1) / MD_ORDER_BLOCK,
			      .to = (address + bytes) / MD_ORDER_BLOCK,
			      .last = (address + bytes - 1) / MD_ORDER_BLOCK};
	range.head = range.first < range.from;
	range.tail = range.last >= range.to && !(range.head && range.last == range.first);
	return range;
}

bool md_place_map(uint64_t address, uint64_t bytes, int device)
{
	struct range range = range_of(address, bytes);
	if (range.head && !take_shared(range.first, device))
		return false;
	if (range.tail && !take_shared(range.last, device))
		goto undo_head;
	if (map_blocks(range.from, range.to, device))
		return true;
	if (range.tail)
		drop_shared(range.last);
undo_head:
	if (range.head)
		drop_shared(range.first);
	return false;
}

void md_place_unmap(uint64_t address, uint64_t bytes)
{
	struct range range = range_of(address, bytes);
	if (range.from < range.to)
		md_cuda.cuMemUnmap(range.from * MD_ORDER_BLOCK, (range.to - range.from) * MD_ORDER_BLOCK);
	if (range.tail)
		drop_shared(range.last);
	if (range.head)
		drop_shared(range.first);
}

void md_place_allow(int owner, int device, bool allowed)
{
	peers[owner][device] = allowed;
}

void md_place_allow_range(uint64_t address, uint64_t bytes, int device, bool allowed)
{
	struct range range = range_of(address, bytes);
	CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
				.flags = allowed ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE};
	md_cuda.cuMemSetAccess(range.first * MD_ORDER_BLOCK, (range.last + 1 - range.first) * MD_ORDER_BLOCK, &desc, 1);
}
