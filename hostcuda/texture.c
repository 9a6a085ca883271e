/* SPDX-License-Identifier: Apache-2.0 */
/* Texture and surface objects are plain numbers; kernels cannot read through them. */
#include "hostcuda/device_state.h"

static uint64_t last_object HC_STATE_GUARDED;

static CUresult make(uint64_t *object, const CUDA_RESOURCE_DESC *resource)
{
	if (!object || !resource)
		return CUDA_ERROR_INVALID_VALUE;
	*object = __atomic_add_fetch(&last_object, 1, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

static CUresult gone(uint64_t object)
{
	return object && object <= __atomic_load_n(&last_object, __ATOMIC_RELAXED) ? CUDA_SUCCESS
										   : CUDA_ERROR_INVALID_VALUE;
}

CUresult hc_cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
			      const CUDA_TEXTURE_DESC *pTexDesc, const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
	(void)pResViewDesc;
	return pTexDesc ? make((uint64_t *)pTexObject, pResDesc) : CUDA_ERROR_INVALID_VALUE;
}

CUresult hc_cuTexObjectDestroy(CUtexObject texObject)
{
	return gone(texObject);
}

CUresult hc_cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc)
{
	return make((uint64_t *)pSurfObject, pResDesc);
}

CUresult hc_cuSurfObjectDestroy(CUsurfObject surfObject)
{
	return gone(surfObject);
}
