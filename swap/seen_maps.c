/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor maps: checks whether the address in a tensor map is a plain word of its bytes, as in other parameters. */
#include <string.h>

#include "swap/layer.h"
#include "swap/reach.h"

static CUresult encoded(CUresult result, const CUtensorMap *map, const void *address)
{
	if (result == CUDA_SUCCESS && !md_swap_reach_shows(map, sizeof(*map), (uint64_t)(uintptr_t)address))
		md_swap_reach_hide();
	return result;
}

CUresult md_swap_own_cuTensorMapEncodeTiled(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
					    cuuint32_t tensorRank, void *globalAddress, const cuuint64_t *globalDim,
					    const cuuint64_t *globalStrides, const cuuint32_t *boxDim,
					    const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
					    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
					    CUtensorMapFloatOOBfill oobFill)
{
	return encoded(md_swap_real.cuTensorMapEncodeTiled(tensorMap, tensorDataType, tensorRank, globalAddress,
							   globalDim, globalStrides, boxDim, elementStrides, interleave,
							   swizzle, l2Promotion, oobFill),
		       tensorMap, globalAddress);
}

CUresult md_swap_own_cuTensorMapEncodeIm2col(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
					     cuuint32_t tensorRank, void *globalAddress, const cuuint64_t *globalDim,
					     const cuuint64_t *globalStrides, const int *pixelBoxLowerCorner,
					     const int *pixelBoxUpperCorner, cuuint32_t channelsPerPixel,
					     cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides,
					     CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
					     CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill)
{
	return encoded(md_swap_real.cuTensorMapEncodeIm2col(tensorMap, tensorDataType, tensorRank, globalAddress,
							    globalDim, globalStrides, pixelBoxLowerCorner,
							    pixelBoxUpperCorner, channelsPerPixel, pixelsPerColumn,
							    elementStrides, interleave, swizzle, l2Promotion, oobFill),
		       tensorMap, globalAddress);
}

CUresult md_swap_own_cuTensorMapReplaceAddress(CUtensorMap *tensorMap, void *globalAddress)
{
	return encoded(md_swap_real.cuTensorMapReplaceAddress(tensorMap, globalAddress), tensorMap, globalAddress);
}
