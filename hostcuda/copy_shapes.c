/* SPDX-License-Identifier: Apache-2.0 */
/* Other copies and sets: rows, between contexts, many at once, and words that a stream writes. */
#include "hostcuda/copy.h"
#include "hostcuda/device.h"
#include "hostcuda/device_state.h"

/* ---- rows ---- */

static CUDA_MEMCPY3D rows_of(const CUDA_MEMCPY2D *copy)
{
	return (CUDA_MEMCPY3D){.srcXInBytes = copy->srcXInBytes,
			       .srcY = copy->srcY,
			       .srcMemoryType = copy->srcMemoryType,
			       .srcHost = copy->srcHost,
			       .srcDevice = copy->srcDevice,
			       .srcPitch = copy->srcPitch,
			       .dstXInBytes = copy->dstXInBytes,
			       .dstY = copy->dstY,
			       .dstMemoryType = copy->dstMemoryType,
			       .dstHost = copy->dstHost,
			       .dstDevice = copy->dstDevice,
			       .dstPitch = copy->dstPitch,
			       .WidthInBytes = copy->WidthInBytes,
			       .Height = copy->Height,
			       .Depth = 1};
}

static CUresult copy_rows(const CUDA_MEMCPY2D *copy, CUstream stream, bool wait)
{
	if (!copy)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_MEMCPY3D params = rows_of(copy);
	return hc_copy_submit(&params, stream, wait);
}

CUresult hc_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
	return copy_rows(pCopy, hStream, false);
}

CUresult hc_cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy)
{
	return copy_rows(pCopy, NULL, true);
}

CUresult hc_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy)
{
	return copy_rows(pCopy, NULL, true);
}

CUresult hc_cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
	return pCopy ? hc_copy_submit(pCopy, NULL, true) : CUDA_ERROR_INVALID_VALUE;
}

CUresult hc_cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
	return hc_fill_submit(dstDevice, dstPitch, uc, 1, Width, Height, NULL);
}

CUresult hc_cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
	return hc_fill_submit(dstDevice, dstPitch, us, 2, Width, Height, NULL);
}

CUresult hc_cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
	return hc_fill_submit(dstDevice, dstPitch, ui, 4, Width, Height, NULL);
}

CUresult hc_cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height,
			       CUstream hStream)
{
	return hc_fill_submit(dstDevice, dstPitch, us, 2, Width, Height, hStream);
}

/* ---- between contexts: all of them have one memory ---- */

static CUDA_MEMCPY3D flat(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
			       .srcDevice = from,
			       .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
			       .dstDevice = to,
			       .WidthInBytes = bytes,
			       .Height = 1,
			       .Depth = 1};
}

static CUresult copy_between(const CUDA_MEMCPY3D *params, CUcontext to, CUcontext from, CUstream stream, bool wait)
{
	if (hc_handle_kind(to) != HC_CONTEXT || hc_handle_kind(from) != HC_CONTEXT)
		return CUDA_ERROR_INVALID_CONTEXT;
	return hc_copy_submit_between(params, (struct hc_context *)to, (struct hc_context *)from, stream, wait);
}

CUresult hc_cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
			      size_t ByteCount, CUstream hStream)
{
	CUDA_MEMCPY3D params = flat(dstDevice, srcDevice, ByteCount);
	return copy_between(&params, dstContext, srcContext, hStream, false);
}

CUresult hc_cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
			 size_t ByteCount)
{
	CUDA_MEMCPY3D params = flat(dstDevice, srcDevice, ByteCount);
	return copy_between(&params, dstContext, srcContext, NULL, true);
}

static CUresult copy_peer(const CUDA_MEMCPY3D_PEER *copy, CUstream stream, bool wait)
{
	if (!copy)
		return CUDA_ERROR_INVALID_VALUE;
	const CUDA_MEMCPY3D params = {.srcXInBytes = copy->srcXInBytes,
				      .srcY = copy->srcY,
				      .srcZ = copy->srcZ,
				      .srcMemoryType = copy->srcMemoryType,
				      .srcHost = copy->srcHost,
				      .srcDevice = copy->srcDevice,
				      .srcPitch = copy->srcPitch,
				      .srcHeight = copy->srcHeight,
				      .dstXInBytes = copy->dstXInBytes,
				      .dstY = copy->dstY,
				      .dstZ = copy->dstZ,
				      .dstMemoryType = copy->dstMemoryType,
				      .dstHost = copy->dstHost,
				      .dstDevice = copy->dstDevice,
				      .dstPitch = copy->dstPitch,
				      .dstHeight = copy->dstHeight,
				      .WidthInBytes = copy->WidthInBytes,
				      .Height = copy->Height,
				      .Depth = copy->Depth};
	return copy_between(&params, copy->dstContext, copy->srcContext, stream, wait);
}

CUresult hc_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy)
{
	return copy_peer(pCopy, NULL, true);
}

CUresult hc_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
	return copy_peer(pCopy, hStream, false);
}

/* ---- many at once ---- */

CUresult hc_cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
				  CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream)
{
	if (!dsts || !srcs || !sizes || !count || !attrs || !attrsIdxs || !numAttrs)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		CUDA_MEMCPY3D params = flat(dsts[i], srcs[i], sizes[i]);
		HC_TRY(hc_copy_submit(&params, hStream, false));
	}
	return CUDA_SUCCESS;
}

CUresult hc_cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags,
				    CUstream hStream)
{
	if (!opList || flags)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < numOps; i++) {
		const CUDA_MEMCPY3D_BATCH_OP *op = &opList[i];
		if (op->src.type != CU_MEMCPY_OPERAND_TYPE_POINTER || op->dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER)
			return CUDA_ERROR_NOT_SUPPORTED;
		CUDA_MEMCPY3D params = flat(op->dst.op.ptr.ptr, op->src.op.ptr.ptr, op->extent.width);
		params.srcPitch = op->src.op.ptr.rowLength;
		params.srcHeight = op->src.op.ptr.layerHeight;
		params.dstPitch = op->dst.op.ptr.rowLength;
		params.dstHeight = op->dst.op.ptr.layerHeight;
		params.Height = op->extent.height;
		params.Depth = op->extent.depth;
		HC_TRY(hc_copy_submit(&params, hStream, false));
	}
	return CUDA_SUCCESS;
}

/* ---- words ---- */

CUresult hc_cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	return flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER ? CUDA_ERROR_INVALID_VALUE
							       : hc_fill_submit(addr, 0, value, 4, 1, 1, stream);
}

CUresult hc_cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
				  unsigned int flags)
{
	if (flags || (count && !paramArray))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count; i++) {
		if (paramArray[i].operation != CU_STREAM_MEM_OP_WRITE_VALUE_32)
			return CUDA_ERROR_NOT_SUPPORTED;
		HC_TRY(hc_cuStreamWriteValue32_v2(stream, paramArray[i].writeValue.address,
						  paramArray[i].writeValue.value, paramArray[i].writeValue.flags));
	}
	return CUDA_SUCCESS;
}
