/* SPDX-License-Identifier: Apache-2.0 */
#define MD_LOG_DOMAIN "swap"

#include "swap/unmerge.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/log.h"
#include "swap/equal.h"
#include "swap/gate.h"
#include "swap/layer.h"
#include "swap/physical.h"

#define DEADLINE_NS 10000000000ull /* for the engine's other calls and its work to end */

/* ---- room ---- */

static uint64_t end_of(uint64_t address, uint64_t bytes)
{
	return bytes > UINT64_MAX - address ? UINT64_MAX : address + bytes;
}

/* The first that is to be asked for; NULL: none. */
static struct md_share *find_lease(uint64_t start, uint64_t end)
{
	struct md_share *lease = NULL;
	pthread_mutex_lock(&md_swap_memory_lock);
	for (struct md_swap_mapping *at = md_swap_mapping_next(start, end); at && !lease;) {
		uint64_t next = at->address + at->bytes;
		if (at->physical->read_only && !at->physical->granted)
			lease = at->physical->lease;
		at = next < end ? md_swap_mapping_next(next, end) : NULL;
	}
	pthread_mutex_unlock(&md_swap_memory_lock);
	return lease;
}

/* The engine may have freed the memory meanwhile. */
static void note_granted(uint64_t start, uint64_t end, const struct md_share *lease, bool alone)
{
	pthread_mutex_lock(&md_swap_memory_lock);
	for (struct md_swap_mapping *at = md_swap_mapping_next(start, end); at;) {
		uint64_t next = at->address + at->bytes;
		if (at->physical->read_only && at->physical->lease == lease) {
			at->physical->granted = true;
			at->physical->alone = alone;
		}
		at = next < end ? md_swap_mapping_next(next, end) : NULL;
	}
	pthread_mutex_unlock(&md_swap_memory_lock);
}

/* Without the lock and with the gate open: the answer may take seconds, and other threads go on. */
enum md_status md_swap_unmerge_ask(uint64_t address, uint64_t bytes, struct md_error *err)
{
	uint64_t end = end_of(address, bytes);
	struct md_share *lease;
	while ((lease = find_lease(address, end))) {
		bool alone = false;
		if (md_swap_equal_own)
			MD_FORWARD(md_swap_equal_own(lease, &alone, err));
		note_granted(address, end, lease, alone);
	}
	return MD_OK;
}

/* ---- memory ---- */

/* Copies what lies at the address into the handle's memory, by an address that is there meanwhile. */
static CUresult copy_into(CUmemGenericAllocationHandle handle, CUdeviceptr from,
			  const struct md_swap_physical *physical)
{
	CUmemAccessDesc access = {.location = physical->prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr to;
	CUresult result = md_swap_real.cuMemAddressReserve(&to, physical->bytes, 0, 0, 0);
	if (result != CUDA_SUCCESS)
		return result;
	result = md_swap_real.cuMemMap(to, physical->bytes, 0, handle, 0);
	if (result == CUDA_SUCCESS) {
		result = md_swap_real.cuMemSetAccess(to, physical->bytes, &access, 1);
		if (result == CUDA_SUCCESS)
			result = md_swap_real.cuMemcpyDtoD_v2(to, from, physical->bytes);
		if (result == CUDA_SUCCESS)
			result = md_swap_real.cuCtxSynchronize();
		md_swap_real.cuMemUnmap(to, physical->bytes);
	}
	md_swap_real.cuMemAddressFree(to, physical->bytes);
	return result;
}

static CUresult give_copy(struct md_swap_physical *physical) MD_REQUIRES(md_swap_memory_lock)
{
	CUmemGenericAllocationHandle handle;
	CUcontext popped;
	CUresult result = md_swap_real.cuCtxPushCurrent_v2(physical->context);
	if (result != CUDA_SUCCESS)
		return result;
	result = md_swap_real.cuMemCreate(&handle, physical->bytes, &physical->prop, 0);
	if (result == CUDA_SUCCESS) {
		result = copy_into(handle, physical->mappings->address, physical);
		if (result == CUDA_SUCCESS)
			result = md_swap_physical_replace(physical, handle);
		if (result != CUDA_SUCCESS)
			md_swap_real.cuMemRelease(handle);
	}
	md_swap_real.cuCtxPopCurrent_v2(&popped);
	return result;
}

/* A copy of what nobody else has would take its room twice for a moment. */
static CUresult give_own(struct md_swap_physical *physical) MD_REQUIRES(md_swap_memory_lock)
{
	if (!physical->granted)
		return CUDA_ERROR_NOT_READY; /* it was merged after others were asked */
	return physical->alone ? md_swap_physical_unprotect(physical) : give_copy(physical);
}

/* Only whole allocations are merged, each with one mapping (merge.c). */
static enum md_status give_all(uint64_t start, uint64_t end, uint64_t *given, struct md_error *err)
{
	CUresult result = CUDA_SUCCESS;
	pthread_mutex_lock(&md_swap_memory_lock);
	for (struct md_swap_mapping *at = md_swap_mapping_next(start, end); at && result == CUDA_SUCCESS;) {
		uint64_t next = at->address + at->bytes;
		if (at->physical->read_only) {
			at->physical->varied = true;
			result = give_own(at->physical);
			*given += result == CUDA_SUCCESS ? at->bytes : 0;
		}
		at = next < end ? md_swap_mapping_next(next, end) : NULL;
	}
	pthread_mutex_unlock(&md_swap_memory_lock);
	return md_cuda_status(result, "memory of the engine's own", err);
}

enum md_status md_swap_unmerge(uint64_t address, uint64_t bytes, struct md_error *err)
{
	uint64_t end = end_of(address, bytes), began = md_clock_ns(), given = 0;
	MD_FORWARD(md_swap_unmerge_ask(address, bytes, err));
	MD_FORWARD(md_swap_gate_close_briefly(DEADLINE_NS, err));
	enum md_status status = give_all(address, end, &given, err);
	md_swap_gate_open_again();
	if (given)
		md_info("%" PRIu64
			" bytes that were shared with other engines are this engine's own again, after %llu ms",
			given, (unsigned long long)((md_clock_ns() - began) / 1000000));
	return status;
}
