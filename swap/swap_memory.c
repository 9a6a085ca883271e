/* SPDX-License-Identifier: Apache-2.0 */
/* Lists and takes away the memory of all families of allocations. */
#include "swap/swap_memory.h"

#include <stdlib.h>

#include "base/array.h"
#include "swap/constant.h"
#include "swap/contexts.h"
#include "swap/layer.h"
#include "swap/memory_managed.h"
#include "swap/memory_ordered.h"
#include "swap/memory_own.h"
#include "swap/physical.h"

struct list {
	struct md_swap_range *ranges;
	size_t count, room;
};

static bool add(struct list *list, const struct md_swap_range *range)
{
	if (!MD_ARRAY_GROW(list->ranges, list->count, list->room))
		return false;
	list->ranges[list->count++] = *range;
	return true;
}

/* The mapping through which all of the physical memory can be read and written, or NULL. */
static const struct md_swap_mapping *whole_mapping(const struct md_swap_physical *physical)
{
	for (const struct md_swap_mapping *at = physical->mappings; at; at = at->next)
		if (!at->offset && at->bytes == physical->bytes)
			for (uint32_t i = 0; i < at->access_count; i++)
				if (at->access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
				    at->access[i].location.id == physical->prop.location.id &&
				    at->access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
					return at;
	return NULL;
}

static const char *why_resident(const struct md_swap_physical *physical)
{
	if (physical->resident)
		return physical->resident;
	if (!physical->mappings)
		return "not mapped";
	if (!physical->context && !md_swap_context_on(physical->prop.location.id))
		return "on a device on which the process has no context";
	return whole_mapping(physical) ? NULL : "mapped in part, or without the right to write";
}

static struct md_swap_range range_of(struct md_swap_physical *physical)
{
	const struct md_swap_mapping *mapping = whole_mapping(physical);
	struct md_swap_range range = {.bytes = physical->bytes,
				      .device = physical->prop.location.id,
				      .why = why_resident(physical),
				      .context = physical->context,
				      .owner = physical,
				      .serial = physical->serial};
	if (mapping || physical->mappings)
		range.address = (mapping ? mapping : physical->mappings)->address;
	if (range.why)
		range.flags |= MD_SWAP_RESIDENT;
	if (md_swap_is_piece(physical))
		range.flags |= MD_SWAP_ALONE;
	if (physical->mappings && physical->mappings->next)
		range.flags |= MD_SWAP_SEVERAL;
	if (!range.context)
		range.context = md_swap_context_on(range.device);
	return range;
}

static struct md_swap_range range_of_managed(struct md_swap_managed *managed)
{
	return (struct md_swap_range){.address = managed->address,
				      .bytes = managed->bytes,
				      .device = managed->device,
				      .flags = managed->resident ? MD_SWAP_RESIDENT : MD_SWAP_MOVES,
				      .why = managed->resident,
				      .context = managed->context,
				      .owner = managed};
}

static int by_address(const void *one, const void *other)
{
	CUdeviceptr a = ((const struct md_swap_range *)one)->address,
		    b = ((const struct md_swap_range *)other)->address;
	return a < b ? -1 : a > b;
}

enum md_status md_swap_memory_list(struct md_swap_range **ranges, size_t *count, struct md_error *err)
{
	struct list list = {0};
	bool whole = true;
	pthread_mutex_lock(&md_swap_memory_lock);
	md_swap_ordered_reclaim(true, false);
	md_swap_own_trim();
	for (struct md_swap_physical *at = md_swap_physicals; at && whole; at = at->next) {
		struct md_swap_range range = range_of(at);
		whole = add(&list, &range);
	}
	for (struct md_swap_managed *at = md_swap_all_managed; at && whole; at = at->next) {
		struct md_swap_range range = range_of_managed(at);
		whole = add(&list, &range);
	}
	pthread_mutex_unlock(&md_swap_memory_lock);
	if (!whole) {
		free(list.ranges);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a list of %zu ranges of device memory",
				    list.count + 1);
	}
	if (list.count)
		qsort(list.ranges, list.count, sizeof(*list.ranges), by_address);
	*ranges = list.ranges;
	*count = list.count;
	return MD_OK;
}

static enum md_status say(CUresult result, const char *what, const struct md_swap_range *range, struct md_error *err)
{
	enum md_status status = md_cuda_status(result, what, err);
	if (status == MD_OK)
		return MD_OK;
	md_error_prefix(err, "%llu bytes at 0x%llx on device %d", (unsigned long long)range->bytes,
			(unsigned long long)range->address, range->device);
	return status;
}

enum md_status md_swap_memory_unmap(const struct md_swap_range *range, struct md_error *err)
{
	struct md_swap_physical *physical = range->owner;
	CUresult result = CUDA_SUCCESS;
	if (range->flags & MD_SWAP_RESIDENT)
		return md_error_set(err, MD_ERR_UNSUPPORTED, "%llu bytes at 0x%llx stay on the device: %s",
				    (unsigned long long)range->bytes, (unsigned long long)range->address, range->why);
	pthread_mutex_lock(&md_swap_memory_lock);
	if (range->flags & MD_SWAP_MOVES)
		result = md_swap_managed_move(range->owner, true);
	else if (physical->handle)
		result = md_swap_physical_out(physical);
	pthread_mutex_unlock(&md_swap_memory_lock);
	if (result == CUDA_ERROR_NOT_SUPPORTED && range->flags & MD_SWAP_MOVES)
		return md_error_set(err, MD_ERR_UNSUPPORTED,
				    "the driver does not move %llu bytes of managed memory at 0x%llx",
				    (unsigned long long)range->bytes, (unsigned long long)range->address);
	return say(result, "taking memory away", range, err);
}

enum md_status md_swap_memory_map(const struct md_swap_range *range, struct md_error *err)
{
	struct md_swap_physical *physical = range->owner;
	CUresult result = CUDA_SUCCESS;
	pthread_mutex_lock(&md_swap_memory_lock);
	if (range->flags & MD_SWAP_MOVES)
		result = md_swap_managed_move(range->owner, false);
	else if (!physical->handle)
		result = md_swap_physical_in(physical);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return say(result, "giving memory back", range, err);
}

static CUresult hand_over(const struct md_swap_physical *physical, int *fd) MD_REQUIRES(md_swap_memory_lock)
{
	const CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	if (!physical->handle || physical->lease || !((unsigned)physical->prop.requestedHandleTypes & type) ||
	    !md_swap_real.cuMemExportToShareableHandle)
		return CUDA_ERROR_NOT_SUPPORTED;
	return md_swap_real.cuMemExportToShareableHandle(fd, physical->handle, type, 0);
}

/* This is no sharing by the engine (swap/sharing.h): whoever borrows the memory has given it back before it goes out. */
enum md_status md_swap_memory_lend(const struct md_swap_range *range, int *fd, struct md_error *err)
{
	if (range->flags & (MD_SWAP_RESIDENT | MD_SWAP_MOVES))
		return md_error_set(err, MD_ERR_UNSUPPORTED, "the memory is none that goes out");
	pthread_mutex_lock(&md_swap_memory_lock);
	CUresult result = hand_over(range->owner, fd);
	pthread_mutex_unlock(&md_swap_memory_lock);
	if (result == CUDA_ERROR_NOT_SUPPORTED)
		return md_error_set(err, MD_ERR_UNSUPPORTED, "it was made without a handle that others can use");
	return say(result, "handing memory over", range, err);
}

/* What goes out and has this number; *result says why there is none. */
static const struct md_swap_physical *find_known(uint64_t serial, CUresult *result) MD_REQUIRES(md_swap_memory_lock)
{
	*result = CUDA_ERROR_NOT_FOUND;
	for (const struct md_swap_physical *at = md_swap_physicals; at; at = at->next) {
		if (at->serial != serial)
			continue;
		*result = why_resident(at) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
		return why_resident(at) ? NULL : at;
	}
	return NULL;
}

static enum md_status say_known(CUresult result, const char *what, struct md_error *err)
{
	if (result == CUDA_ERROR_NOT_FOUND)
		return md_error_set(err, MD_ERR_NOT_FOUND, "the engine has freed the memory");
	return md_cuda_status(result, what, err);
}

static enum md_status say_locked(struct md_error *err)
{
	return md_error_set(err, MD_ERR_BUSY, "the lock of the engine's memory is held");
}

/* Whoever holds the lock may wait for borrowers (md_swap_lending_await), so the thread that serves them does not wait for it. */
enum md_status md_swap_memory_lend_known(uint64_t serial, int *fd, struct md_error *err)
{
	CUresult result;
	if (pthread_mutex_trylock(&md_swap_memory_lock))
		return say_locked(err);
	const struct md_swap_physical *known = find_known(serial, &result);
	if (known)
		result = hand_over(known, fd);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return say_known(result, "handing memory over", err);
}

/* The mapping alone keeps the memory. What medusa-backbone has given is its own. */
enum md_status md_swap_memory_map_known(uint64_t serial, uint64_t address, uint64_t bytes, struct md_error *err)
{
	CUresult result;
	if (pthread_mutex_trylock(&md_swap_memory_lock))
		return say_locked(err);
	const struct md_swap_physical *known = find_known(serial, &result);
	if (known)
		result = !known->handle || known->lease || known->bytes != bytes
			     ? CUDA_ERROR_NOT_SUPPORTED
			     : md_swap_real.cuMemMap(address, bytes, 0, known->handle, 0);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return say_known(result, "mapping memory that is lent", err);
}

void md_swap_memory_totals(struct md_swap_totals *totals)
{
	struct md_swap_context contexts[MD_SWAP_CONTEXTS_MOST];
	*totals = (struct md_swap_totals){0};
	totals->contexts = (unsigned)md_swap_contexts_list(contexts, MD_SWAP_CONTEXTS_MOST);
	pthread_mutex_lock(&md_swap_memory_lock);
	for (const struct md_swap_physical *at = md_swap_physicals; at; at = at->next) {
		if (why_resident(at))
			totals->resident += at->bytes;
		else
			totals->swappable += at->bytes;
		if (!why_resident(at) && md_swap_constant_is(at))
			totals->constant += at->bytes;
		if (at->read_only)
			totals->shared += at->bytes;
		if (!at->handle)
			totals->out += at->bytes;
	}
	for (const struct md_swap_managed *at = md_swap_all_managed; at; at = at->next) {
		if (at->resident)
			totals->resident += at->bytes;
		else
			totals->swappable += at->bytes;
		if (at->away)
			totals->out += at->bytes;
	}
	totals->kept = md_swap_own_kept_all();
	pthread_mutex_unlock(&md_swap_memory_lock);
}
