/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and sets: every variant becomes one description, which is checked, and then queued or captured. */
#include <stdlib.h>
#include <string.h>

#include "hostcuda/bus.h"
#include "hostcuda/context.h"
#include "hostcuda/copy.h"
#include "hostcuda/device_state.h"
#include "hostcuda/executor.h"
#include "hostcuda/graph.h"
#include "hostcuda/memory.h"
#include "hostcuda/queue.h"
#include "hostcuda/stream.h"
#include "hostcuda/stream_capture.h"

#define STAGED_BYTES ((size_t)64 << 10) /* pageable sources up to this size are read before the call returns */

static bool is_device_memory(uint64_t address)
{
	HC_STATE_GUARD();
	const struct hc_memory *memory = hc_memory_at(address);
	return memory && memory->kind != HC_MEMORY_HOST && memory->kind != HC_MEMORY_REGISTERED;
}

struct end {
	CUmemorytype type;
	uint64_t address;
	size_t x, y, z, pitch, height;
};

/* Finds where one end of the copy starts, and its strides, and checks that device memory covers all of it. */
static CUresult place_end(const struct end *end, const CUDA_MEMCPY3D *params, uint64_t *start, size_t *pitch,
			  size_t *slice)
{
	size_t rows = params->Height, planes = params->Depth, width = params->WidthInBytes;
	*pitch = end->pitch ? end->pitch : width;
	if (rows > 1 && *pitch < width)
		return CUDA_ERROR_INVALID_VALUE;
	if (__builtin_mul_overflow(*pitch, end->height ? end->height : rows, slice))
		return CUDA_ERROR_INVALID_VALUE;
	*start = end->address + end->z * *slice + end->y * *pitch + end->x;
	if (end->type != CU_MEMORYTYPE_DEVICE)
		return *start ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	size_t extent, rest;
	if (__builtin_mul_overflow(planes - 1, *slice, &extent) || __builtin_mul_overflow(rows - 1, *pitch, &rest) ||
	    __builtin_add_overflow(extent, rest, &extent) || __builtin_add_overflow(extent, width, &extent))
		return CUDA_ERROR_INVALID_VALUE;
	return hc_memory_covers(*start, extent) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult hc_copy_make(const CUDA_MEMCPY3D *params, struct hc_copy *copy)
{
	struct end to = {params->dstMemoryType, 0, params->dstXInBytes, params->dstY, params->dstZ, params->dstPitch,
			 params->dstHeight};
	struct end from = {params->srcMemoryType, 0, params->srcXInBytes, params->srcY, params->srcZ, params->srcPitch,
			   params->srcHeight};
	if (to.type == CU_MEMORYTYPE_ARRAY || from.type == CU_MEMORYTYPE_ARRAY)
		return CUDA_ERROR_NOT_SUPPORTED;
	to.address = to.type == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)params->dstHost : params->dstDevice;
	from.address = from.type == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)params->srcHost : params->srcDevice;
	if (to.type == CU_MEMORYTYPE_UNIFIED)
		to.type = is_device_memory(to.address) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	if (from.type == CU_MEMORYTYPE_UNIFIED)
		from.type = is_device_memory(from.address) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	*copy = (struct hc_copy){
	    .width = params->WidthInBytes, .height = params->Height, .depth = params->Depth, .bus = HC_BUS_NONE};
	if (!copy->width || !copy->height || !copy->depth) {
		copy->width = copy->height = copy->depth = 0;
		return CUDA_SUCCESS;
	}
	HC_TRY(place_end(&to, params, &copy->to, &copy->to_pitch, &copy->to_slice));
	HC_TRY(place_end(&from, params, &copy->from, &copy->from_pitch, &copy->from_slice));
	hc_bus_choose(copy, to.type == CU_MEMORYTYPE_HOST, from.type == CU_MEMORYTYPE_HOST);
	return CUDA_SUCCESS;
}

static CUresult run_copy(struct hc_op *op)
{
	if (op->copy.bus == HC_BUS_NONE)
		hc_executor_lone_op();
	return hc_execute_copy(&op->copy);
}

/* Mapped memory is reached by the devices that cuMemSetAccess has named; what nobody may touch faults. */
static bool may_reach(const struct hc_device *device, uint64_t address) HC_STATE_HELD
{
	const struct hc_memory *memory = hc_memory_at(address);
	return !memory || memory->kind != HC_MEMORY_MAPPED || !memory->reach || memory->reach >> device->ordinal & 1;
}

bool hc_copy_reaches(const struct hc_device *device, const struct hc_copy *copy)
{
	return may_reach(device, copy->to) && may_reach(device, copy->from);
}

static bool both_reach(const struct hc_device *to, const struct hc_device *from, const struct hc_copy *copy)
{
	HC_STATE_GUARD();
	return may_reach(to, copy->to) && may_reach(from, copy->from);
}

/* named: by contexts of both ends. */
static CUresult capture_copy(struct hc_stream *stream, const CUDA_MEMCPY3D *params, const struct hc_copy *copy,
			     bool named) HC_STATE_HELD
{
	struct hc_node *node;
	if (!named && copy->width && !hc_copy_reaches(stream->context->device, copy))
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(hc_node_new(stream->capture->graph, CU_GRAPH_NODE_TYPE_MEMCPY, &node));
	node->memcpy.params = *params;
	node->memcpy.copy = *copy;
	node->memcpy.device = named ? NULL : stream->context->device;
	return hc_capture_append(stream, node, false);
}

static bool is_pageable(uint64_t address)
{
	return !hc_memory_is_pinned(address);
}

/*
 * As in the real driver, copies between device and pinned memory return at once; a small pageable source is read before
 * the call returns; every other copy with pageable memory is waited for.
 */
static CUresult submit_copy(struct hc_stream *stream, const struct hc_copy *copy, bool wait)
{
	struct hc_op *op = hc_op_new(run_copy, NULL);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->copy = *copy;
	bool pageable_source = is_pageable(copy->from), flat = copy->height == 1 && copy->depth == 1;
	if (!wait && pageable_source && !is_pageable(copy->to) && flat && copy->width <= STAGED_BYTES) {
		op->owned = malloc(copy->width);
		if (!op->owned) {
			hc_op_unref(op);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		memcpy(op->owned, (const void *)copy->from, copy->width);
		op->copy.from = (uint64_t)(uintptr_t)op->owned;
	} else {
		wait |= pageable_source || is_pageable(copy->to);
	}
	if (!wait)
		return hc_op_submit(stream, op);
	HC_TRY(hc_op_do(stream, op));
	return hc_context_sticky(stream->context);
}

/* False: the stream is not under capture. */
static bool captured(struct hc_stream *stream, const CUDA_MEMCPY3D *params, bool named, CUresult *result)
{
	HC_STATE_GUARD();
	struct hc_copy copy;
	if (!hc_capture_active(stream, result))
		return false;
	if (*result == CUDA_SUCCESS)
		*result = hc_copy_make(params, &copy);
	if (*result == CUDA_SUCCESS)
		*result = capture_copy(stream, params, &copy, named);
	return true;
}

CUresult hc_copy_submit_between(const CUDA_MEMCPY3D *params, const struct hc_context *to, const struct hc_context *from,
				CUstream hStream, bool wait)
{
	struct hc_stream *stream;
	struct hc_copy copy;
	CUresult result;
	HC_TRY(hc_stream_resolve(hStream, &stream));
	if (captured(stream, params, to || from, &result))
		return result;
	HC_TRY(hc_copy_make(params, &copy));
	if (!copy.width)
		return CUDA_SUCCESS;
	if (!both_reach((to ? to : stream->context)->device, (from ? from : stream->context)->device, &copy))
		return CUDA_ERROR_INVALID_VALUE;
	return submit_copy(stream, &copy, wait);
}

CUresult hc_copy_submit(const CUDA_MEMCPY3D *params, CUstream hStream, bool wait)
{
	return hc_copy_submit_between(params, NULL, NULL, hStream, wait);
}

static CUresult copy_flat(CUmemorytype to_type, uint64_t to, CUmemorytype from_type, uint64_t from, size_t bytes,
			  CUstream stream, bool wait)
{
	if (to_type == CU_MEMORYTYPE_UNIFIED)
		to_type = is_device_memory(to) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	if (from_type == CU_MEMORYTYPE_UNIFIED)
		from_type = is_device_memory(from) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	CUDA_MEMCPY3D params = {.srcMemoryType = from_type,
				.dstMemoryType = to_type,
				.srcPitch = bytes,
				.dstPitch = bytes,
				.WidthInBytes = bytes,
				.Height = 1,
				.Depth = 1};
	if (to_type == CU_MEMORYTYPE_HOST)
		params.dstHost = (void *)(uintptr_t)to;
	else
		params.dstDevice = to;
	if (from_type == CU_MEMORYTYPE_HOST)
		params.srcHost = (const void *)(uintptr_t)from;
	else
		params.srcDevice = from;
	return hc_copy_submit(&params, stream, wait);
}

#define HOST CU_MEMORYTYPE_HOST
#define DEVICE CU_MEMORYTYPE_DEVICE
#define UNIFIED CU_MEMORYTYPE_UNIFIED

CUresult hc_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
	bool on_device = is_device_memory(dst) && is_device_memory(src);
	return copy_flat(UNIFIED, dst, UNIFIED, src, ByteCount, NULL, !on_device);
}

CUresult hc_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
	return copy_flat(UNIFIED, dst, UNIFIED, src, ByteCount, hStream, false);
}

CUresult hc_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
	return copy_flat(DEVICE, dstDevice, HOST, (uint64_t)(uintptr_t)srcHost, ByteCount, NULL, true);
}

CUresult hc_cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
	return copy_flat(HOST, (uint64_t)(uintptr_t)dstHost, DEVICE, srcDevice, ByteCount, NULL, true);
}

/* The driver does not wait for copies between device addresses, not even in this call. */
CUresult hc_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
	return copy_flat(DEVICE, dstDevice, DEVICE, srcDevice, ByteCount, NULL, false);
}

CUresult hc_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
	return copy_flat(DEVICE, dstDevice, HOST, (uint64_t)(uintptr_t)srcHost, ByteCount, hStream, false);
}

CUresult hc_cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
	return copy_flat(HOST, (uint64_t)(uintptr_t)dstHost, DEVICE, srcDevice, ByteCount, hStream, false);
}

CUresult hc_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
	return copy_flat(DEVICE, dstDevice, DEVICE, srcDevice, ByteCount, hStream, false);
}

CUresult hc_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
	return pCopy ? hc_copy_submit(pCopy, hStream, false) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- sets ---- */
CUresult hc_fill_make(const CUDA_MEMSET_NODE_PARAMS *params, struct hc_fill *fill)
{
	unsigned element = params->elementSize;
	size_t row, extent;
	if ((element != 1 && element != 2 && element != 4) || params->dst % element)
		return CUDA_ERROR_INVALID_VALUE;
	if (__builtin_mul_overflow(params->width, element, &row))
		return CUDA_ERROR_INVALID_VALUE;
	size_t rows = row ? params->height : 0;
	*fill =
	    (struct hc_fill){params->dst, params->width, rows, rows > 1 ? params->pitch : row, params->value, element};
	if (!rows)
		return CUDA_SUCCESS;
	if (fill->pitch < row || fill->pitch % element || __builtin_mul_overflow(rows - 1, fill->pitch, &extent) ||
	    __builtin_add_overflow(extent, row, &extent))
		return CUDA_ERROR_INVALID_VALUE;
	return hc_memory_covers(params->dst, extent) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult run_fill(struct hc_op *op)
{
	return hc_execute_fill(&op->fill);
}

CUresult hc_fill_submit(uint64_t to, size_t pitch, unsigned value, unsigned element, size_t width, size_t height,
			CUstream hStream)
{
	CUDA_MEMSET_NODE_PARAMS params = {to, pitch, value, element, width, height};
	struct hc_stream *stream;
	struct hc_fill fill;
	CUresult result;
	HC_STATE_GUARD();
	HC_TRY(hc_stream_resolve(hStream, &stream));
	bool capturing = hc_capture_active(stream, &result);
	if (capturing)
		HC_TRY(result);
	HC_TRY(hc_fill_make(&params, &fill));
	if (capturing) {
		struct hc_node *node;
		HC_TRY(hc_node_new(stream->capture->graph, CU_GRAPH_NODE_TYPE_MEMSET, &node));
		node->memset.params = params;
		node->memset.fill = fill;
		return hc_capture_append(stream, node, false);
	}
	if (!fill.height)
		return CUDA_SUCCESS;
	struct hc_op *op = hc_op_new(run_fill, NULL);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->fill = fill;
	return hc_op_submit(stream, op);
}

CUresult hc_cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
	return hc_fill_submit(dstDevice, 0, uc, 1, N, 1, hStream);
}

CUresult hc_cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
	return hc_fill_submit(dstDevice, 0, us, 2, N, 1, hStream);
}

CUresult hc_cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
	return hc_fill_submit(dstDevice, 0, ui, 4, N, 1, hStream);
}

CUresult hc_cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
	return hc_cuMemsetD8Async(dstDevice, uc, N, NULL);
}

CUresult hc_cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
	return hc_cuMemsetD16Async(dstDevice, us, N, NULL);
}

CUresult hc_cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
	return hc_cuMemsetD32Async(dstDevice, ui, N, NULL);
}

CUresult hc_cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height,
			      CUstream hStream)
{
	return hc_fill_submit(dstDevice, dstPitch, uc, 1, Width, Height, hStream);
}

CUresult hc_cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height,
			       CUstream hStream)
{
	return hc_fill_submit(dstDevice, dstPitch, ui, 4, Width, Height, hStream);
}
