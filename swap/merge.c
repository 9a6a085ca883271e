/* SPDX-License-Identifier: Apache-2.0 */
#define MD_LOG_DOMAIN "swap"

#include "swap/merge.h"

#include <inttypes.h>

#include "base/log.h"
#include "swap/constant.h"
#include "swap/equal.h"
#include "swap/gate.h"
#include "swap/physical.h"
#include "swap/unmerge.h"

void md_swap_merge_note(const struct md_swap_range *range, const struct md_hash *held)
{
	struct md_swap_physical *physical = range->owner;
	if (range->flags & (MD_SWAP_MOVES | MD_SWAP_RESIDENT))
		return;
	pthread_mutex_lock(&md_swap_memory_lock);
	bool constant = held && md_swap_constant_is(physical);
	bool same = constant && physical->seen && md_hash_equal(&physical->held, held);
	physical->varied |= constant && physical->seen && !same;
	physical->steady = same && !physical->varied;
	physical->seen = constant;
	if (constant)
		physical->held = *held;
	pthread_mutex_unlock(&md_swap_memory_lock);
}

/*
 * The engine's own mappings (memory_vmm.c) can be given more rights by it, so they are never merged; nor is what other
 * devices reach.
 */
static bool is_fit(const struct md_swap_physical *physical) MD_REQUIRES(md_swap_memory_lock)
{
	return md_swap_is_piece(physical) && md_swap_constant_is(physical) && !physical->mappings->next &&
	       physical->mappings->access_count == 1;
}

static bool may_be_merged(const struct md_swap_range *range, const struct md_hash *holds)
{
	const struct md_swap_physical *physical = range->owner;
	if (!md_swap_equal_attach || range->flags & (MD_SWAP_MOVES | MD_SWAP_RESIDENT))
		return false;
	pthread_mutex_lock(&md_swap_memory_lock);
	bool may = !physical->handle && physical->steady && md_hash_equal(&physical->held, holds) && is_fit(physical);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return may;
}

/* medusa_bind does not wait at the gate: what the engine has said meanwhile counts. */
static bool map_given(struct md_swap_physical *physical, struct md_share *lease, int fd, bool fills)
{
	pthread_mutex_lock(&md_swap_memory_lock);
	CUresult result = is_fit(physical) ? md_swap_physical_in_from(physical, fd, !fills) : CUDA_ERROR_NOT_PERMITTED;
	if (result == CUDA_SUCCESS)
		physical->lease = lease;
	pthread_mutex_unlock(&md_swap_memory_lock);
	if (result == CUDA_SUCCESS)
		return true;
	md_swap_equal_end(lease);
	md_warn("%" PRIu64 " bytes of medusa-backbone cannot be mapped (%s): they stay this engine's own",
		physical->bytes, md_cuda_error_name(result));
	return false;
}

/* The lock is not held while the broker is asked: the gate is closed, so no call of the engine frees the memory. */
enum md_swap_merged md_swap_merge_map(const struct md_swap_range *range, const struct md_hash *holds, bool *hopeless)
{
	struct md_swap_physical *physical = range->owner;
	struct md_share *lease;
	struct md_error err = {0};
	bool fills;
	int fd;
	*hopeless = false;
	if (!may_be_merged(range, holds))
		return MD_SWAP_NOT_MERGED;
	if (md_swap_equal_attach(range->device, holds, range->bytes, &lease, &fd, &fills, &err) != MD_OK) {
		*hopeless = err.status != MD_ERR_BUSY;
		md_info("%" PRIu64 " constant bytes at %#" PRIx64 " stay this engine's own: %s", range->bytes,
			(uint64_t)range->address, err.message);
		return MD_SWAP_NOT_MERGED;
	}
	if (!map_given(physical, lease, fd, fills))
		return MD_SWAP_NOT_MERGED;
	return fills ? MD_SWAP_FILLS : MD_SWAP_READS;
}

/* Read-only before anybody else has it, and for good. What cannot be made read-only is given to nobody. */
bool md_swap_merge_commit(const struct md_swap_range *range)
{
	struct md_swap_physical *physical = range->owner;
	struct md_error err = {0};
	if (range->flags & (MD_SWAP_MOVES | MD_SWAP_RESIDENT))
		return true;
	pthread_mutex_lock(&md_swap_memory_lock);
	struct md_share *lease = physical->read_only ? NULL : physical->lease;
	bool safe = lease && md_swap_physical_protect(physical) == CUDA_SUCCESS;
	pthread_mutex_unlock(&md_swap_memory_lock);
	if (!safe || md_swap_equal_commit(lease, &err) == MD_OK)
		return true;
	md_info("%" PRIu64 " constant bytes at %#" PRIx64 " are not given to others yet: %s", range->bytes,
		(uint64_t)range->address, err.message);
	return err.status != MD_ERR_TIMEOUT;
}

/* ---- a write ---- */

static struct md_swap_physical *find_read_only(CUdeviceptr start, CUdeviceptr end) MD_REQUIRES(md_swap_memory_lock)
{
	const struct md_swap_mapping *at = md_swap_mapping_next(start, end);
	while (at && !at->physical->read_only)
		at = at->address + at->bytes < end ? md_swap_mapping_next(at->address + at->bytes, end) : NULL;
	return at ? at->physical : NULL;
}

static bool is_shared(uint64_t address, uint64_t end)
{
	pthread_mutex_lock(&md_swap_memory_lock);
	bool is = find_read_only(address, end) != NULL;
	pthread_mutex_unlock(&md_swap_memory_lock);
	return is;
}

/* True if it is the first time for this memory, which is the engine's own from the next in on. */
static bool note_refused(uint64_t address, uint64_t end)
{
	pthread_mutex_lock(&md_swap_memory_lock);
	struct md_swap_physical *physical = find_read_only(address, end);
	bool first = physical && !physical->varied;
	if (first)
		physical->varied = true;
	pthread_mutex_unlock(&md_swap_memory_lock);
	return first;
}

/* The driver would break the context of a call that writes there. */
CUresult md_swap_merge_store(uint64_t address, uint64_t bytes)
{
	uint64_t end = bytes > UINT64_MAX - address ? UINT64_MAX : address + bytes;
	struct md_error err = {0};
	if (!bytes || !atomic_load_explicit(&md_swap_read_only, memory_order_relaxed) || !is_shared(address, end))
		return CUDA_SUCCESS;
	bool first = note_refused(address, end);
	enum md_status status = md_swap_unmerge(address, bytes, &err);
	if (!is_shared(address, end)) /* also if another call, or an out and in, was faster */
		return CUDA_SUCCESS;
	if (first)
		md_warn(
		    "%s of %" PRIu64 " bytes to %#" PRIx64
		    " is refused: the engine has declared this memory constant (medusa_bind), shares it with other "
		    "engines, and cannot have memory of its own there now (%s). It is the engine's own after the next "
		    "out and in. Don't declare it constant, or run without --share-constant",
		    md_swap_gate_call(), bytes, address, status == MD_OK ? "unknown" : err.message);
	return CUDA_ERROR_NOT_PERMITTED;
}

void md_swap_merge_bound(uint64_t address, uint64_t bytes)
{
	uint64_t end = bytes > UINT64_MAX - address ? UINT64_MAX : address + bytes;
	struct md_error err = {0};
	if (!bytes || !atomic_load_explicit(&md_swap_read_only, memory_order_relaxed) || !is_shared(address, end))
		return;
	if (md_swap_unmerge(address, bytes, &err) != MD_OK && is_shared(address, end))
		md_warn(
		    "%" PRIu64 " bytes at %#" PRIx64
		    " were bound in a role in which they may be written, and are shared with other engines: they stay "
		    "read-only until the next out and in, because %s",
		    bytes, address, err.message);
}
