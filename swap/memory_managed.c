/* SPDX-License-Identifier: Apache-2.0 */
/* Managed memory: prefetched to the host when the engine's memory goes, and to its device when it comes back. */
#include "swap/memory_managed.h"

#include <stdlib.h>

#include "swap/contexts.h"
#include "swap/layer.h"
#include "swap/reach.h"

struct md_swap_managed *md_swap_all_managed;

static bool has_prefetch(CUdevice device)
{
	int concurrent = 0;
	return (md_swap_real.cuMemPrefetchAsync_v2 || md_swap_real.cuMemPrefetchAsync) &&
	       md_swap_real.cuDeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device) ==
		   CUDA_SUCCESS &&
	       concurrent;
}

CUresult md_swap_own_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	struct md_swap_managed *managed = calloc(1, sizeof(*managed));
	CUresult result = managed ? md_swap_real.cuMemAllocManaged(dptr, bytesize, flags) : CUDA_ERROR_OUT_OF_MEMORY;
	if (result != CUDA_SUCCESS || md_swap_context_current(&managed->context, &managed->device) != CUDA_SUCCESS) {
		free(managed);
		return result;
	}
	managed->address = *dptr;
	managed->bytes = bytesize;
	if (!has_prefetch(managed->device))
		managed->resident = "managed memory, which this driver does not prefetch";
	pthread_mutex_lock(&md_swap_memory_lock);
	managed->next = md_swap_all_managed;
	md_swap_all_managed = managed;
	pthread_mutex_unlock(&md_swap_memory_lock);
	md_swap_reach_came(managed->address, bytesize);
	return CUDA_SUCCESS;
}

void md_swap_managed_freed(CUdeviceptr address)
{
	pthread_mutex_lock(&md_swap_memory_lock);
	for (struct md_swap_managed **link = &md_swap_all_managed; *link; link = &(*link)->next)
		if ((*link)->address == address) {
			struct md_swap_managed *gone = *link;
			*link = gone->next;
			free(gone);
			break;
		}
	pthread_mutex_unlock(&md_swap_memory_lock);
}

void md_swap_managed_context_gone(CUcontext context)
{
	for (struct md_swap_managed **link = &md_swap_all_managed; *link;) {
		struct md_swap_managed *at = *link;
		if (at->context != context) {
			link = &at->next;
			continue;
		}
		*link = at->next;
		free(at);
	}
}

static CUresult prefetch(const struct md_swap_managed *managed, bool away)
{
	CUmemLocation location = {away ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
				  away ? 0 : managed->device};
	if (md_swap_real.cuMemPrefetchAsync_v2)
		return md_swap_real.cuMemPrefetchAsync_v2(managed->address, managed->bytes, location, 0, NULL);
	return md_swap_real.cuMemPrefetchAsync(managed->address, managed->bytes, away ? CU_DEVICE_CPU : managed->device,
					       NULL);
}

/* A refusal is not the error of earlier work, which every call of a broken context returns, too. */
static CUresult stay(struct md_swap_managed *managed, CUresult refusal)
{
	CUresult broken = md_swap_real.cuCtxSynchronize();
	if (broken != CUDA_SUCCESS)
		return broken;
	if (refusal == CUDA_ERROR_NOT_SUPPORTED || refusal == CUDA_ERROR_INVALID_DEVICE ||
	    refusal == CUDA_ERROR_INVALID_VALUE || refusal == CUDA_ERROR_NOT_PERMITTED)
		managed->resident = "managed memory, which the driver does not move";
	return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult md_swap_managed_move(struct md_swap_managed *managed, bool away)
{
	CUcontext ignored;
	if (managed->away == away)
		return CUDA_SUCCESS;
	CUresult result = md_swap_real.cuCtxPushCurrent_v2(managed->context);
	if (result != CUDA_SUCCESS)
		return result;
	result = prefetch(managed, away);
	if (result == CUDA_SUCCESS)
		result = md_swap_real.cuCtxSynchronize();
	else if (away)
		result = stay(managed, result);
	md_swap_real.cuCtxPopCurrent_v2(&ignored);
	if (result == CUDA_SUCCESS)
		managed->away = away;
	return result;
}
