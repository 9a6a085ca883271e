/* SPDX-License-Identifier: Apache-2.0 */
/* Peer access, which an engine enables for contexts and pools, and which mapped memory has for each mapping. */
#include "swap/peers.h"

#include "swap/contexts.h"
#include "swap/layer.h"

static uint64_t allowed[MD_SWAP_DEVICES_MOST] MD_GUARDED_BY(md_swap_memory_lock); /* a bit for each other device */

static CUmemAccessDesc right_of(CUdevice device)
{
	return (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}

size_t md_swap_peers_of(CUdevice device, CUmemAccessDesc access[MD_SWAP_DEVICES_MOST])
{
	size_t count = 0;
	access[count++] = right_of(device);
	for (CUdevice other = 0; other < MD_SWAP_DEVICES_MOST && device < MD_SWAP_DEVICES_MOST; other++)
		if (other != device && allowed[device] >> other & 1)
			access[count++] = right_of(other);
	return count;
}

static CUresult allow(CUdevice to, CUdevice from) MD_REQUIRES(md_swap_memory_lock)
{
	const CUmemAccessDesc right = right_of(from);
	CUresult result = CUDA_SUCCESS;
	if (allowed[to] >> from & 1)
		return CUDA_SUCCESS;
	for (struct md_swap_physical *at = md_swap_physicals; at && result == CUDA_SUCCESS; at = at->next)
		if (md_swap_is_piece(at) && at->prop.location.id == to)
			result = md_swap_mapping_allow(at->mappings, &right, 1);
	if (result == CUDA_SUCCESS)
		allowed[to] |= (uint64_t)1 << from;
	return result;
}

CUresult md_swap_peers_allow(CUdevice to, CUdevice from)
{
	if (to == from || to < 0 || from < 0 || to >= MD_SWAP_DEVICES_MOST || from >= MD_SWAP_DEVICES_MOST)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&md_swap_memory_lock);
	CUresult result = allow(to, from);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return result;
}

CUresult md_swap_own_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
	CUdevice from, to;
	CUresult result = md_swap_real.cuCtxEnablePeerAccess(peerContext, Flags);
	if (result == CUDA_SUCCESS && md_swap_real.cuCtxGetDevice(&from) == CUDA_SUCCESS &&
	    md_swap_context_device(peerContext, &to) == CUDA_SUCCESS)
		result = md_swap_peers_allow(to, from);
	return result;
}
