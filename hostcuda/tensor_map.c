/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor maps: 128 bytes with the global address in word 0, then the shape as it was given. */
#include <string.h>

#include "hostcuda/device_state.h"

/*
 * word 0: global address; word 1: data type, rank, interleave, swizzle, L2 promotion, fill (8 bits each from bit 0);
 * words 2-6: dimensions; words 7-10: strides; words 11-13: box (32 bits each), words 13-15: element strides (32 bits
 * each).
 */
struct encoded {
	uint64_t address, kind, dims[5], strides[4];
	uint32_t box[5], element_strides[5];
};
_Static_assert(sizeof(struct encoded) == sizeof(CUtensorMap), "a tensor map has 128 bytes");

CUresult hc_cuTensorMapEncodeTiled(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
				   void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
				   const cuuint32_t *boxDim, const cuuint32_t *elementStrides,
				   CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
				   CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill)
{
	struct encoded encoded = {0};
	bool aligned = !((uintptr_t)tensorMap % 64) && !((uintptr_t)globalAddress % 16);
	if (!tensorMap || !globalDim || !boxDim || !elementStrides || !aligned || !tensorRank || tensorRank > 5 ||
	    (tensorRank > 1 && !globalStrides))
		return CUDA_ERROR_INVALID_VALUE;
	encoded.address = (uint64_t)(uintptr_t)globalAddress;
	encoded.kind = (uint64_t)tensorDataType | (uint64_t)tensorRank << 8 | (uint64_t)interleave << 16 |
		       (uint64_t)swizzle << 24 | (uint64_t)l2Promotion << 32 | (uint64_t)oobFill << 40;
	memcpy(encoded.dims, globalDim, tensorRank * sizeof(*globalDim));
	if (tensorRank > 1)
		memcpy(encoded.strides, globalStrides, (tensorRank - 1) * sizeof(*globalStrides));
	memcpy(encoded.box, boxDim, tensorRank * sizeof(*boxDim));
	memcpy(encoded.element_strides, elementStrides, tensorRank * sizeof(*elementStrides));
	memcpy(tensorMap, &encoded, sizeof(encoded));
	return CUDA_SUCCESS;
}

CUresult hc_cuTensorMapReplaceAddress(CUtensorMap *tensorMap, void *globalAddress)
{
	uint64_t address = (uint64_t)(uintptr_t)globalAddress;
	if (!tensorMap || address % 16)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(tensorMap, &address, sizeof(address));
	return CUDA_SUCCESS;
}
