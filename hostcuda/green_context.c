/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Green contexts: streams of their own on a part of a device, with the memory, modules and errors of its primary context. The
 * parts are numbers here, since kernels run on the host.
 */
#include <stdlib.h>

#include "hostcuda/context.h"
#include "hostcuda/device.h"
#include "hostcuda/device_state.h"
#include "hostcuda/queue.h"
#include "hostcuda/stream.h"

#define LEAST 1u /* processors of a part; 8 on GPUs of compute capability 9.0 */

struct green {
	struct hc_context *context;
};

struct resources {
	CUdevResource part;
};

/* ---- parts of a device ---- */

CUresult hc_cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
	int count = 0;
	if (!resource)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	HC_TRY(hc_cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
	*resource = (CUdevResource){.type = CU_DEV_RESOURCE_TYPE_SM, .sm = {(unsigned)count, LEAST, LEAST}};
	return CUDA_SUCCESS;
}

CUresult hc_cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *nbGroups, const CUdevResource *input,
					CUdevResource *remainder, unsigned int useFlags, unsigned int minCount)
{
	(void)useFlags;
	if (!nbGroups || !input || input->type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_VALUE;
	unsigned each = minCount ? (minCount + LEAST - 1) / LEAST * LEAST : LEAST, room = input->sm.smCount / each;
	if (!result) {
		*nbGroups = room;
		return CUDA_SUCCESS;
	}
	if (!room)
		return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
	*nbGroups = *nbGroups < room ? *nbGroups : room;
	for (unsigned i = 0; i < *nbGroups; i++)
		result[i] = (CUdevResource){.type = CU_DEV_RESOURCE_TYPE_SM, .sm = {each, LEAST, LEAST}};
	unsigned left = input->sm.smCount - *nbGroups * each;
	if (remainder)
		*remainder = (CUdevResource){.type = left ? CU_DEV_RESOURCE_TYPE_SM : CU_DEV_RESOURCE_TYPE_INVALID,
					     .sm = {left, LEAST, LEAST}};
	return CUDA_SUCCESS;
}

/* Never freed, as cuda.h has no call for that. */
CUresult hc_cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources, unsigned int nbResources)
{
	if (!phDesc || !resources || nbResources != 1 || resources->type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_VALUE;
	struct resources *made = calloc(1, sizeof(*made));
	HC_STATE_GUARD();
	if (!made || !hc_handle_add(made, HC_RESOURCES)) {
		free(made);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	made->part = *resources;
	*phDesc = (CUdevResourceDesc)made;
	return CUDA_SUCCESS;
}

/* ---- contexts ---- */

static struct green *green_of(CUgreenCtx handle)
{
	return hc_handle_kind(handle) == HC_GREEN ? (struct green *)handle : NULL;
}

static CUresult make(struct hc_context *home, struct green **made) HC_STATE_HELD
{
	struct green *green = calloc(1, sizeof(*green));
	if (!green)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = hc_context_make(home->device, 0, home, &green->context);
	if (result == CUDA_SUCCESS && !hc_handle_add(green, HC_GREEN))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS)
		green->context->green = *made = green;
	else
		free(green);
	return result;
}

CUresult hc_cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags)
{
	CUcontext primary;
	struct green *green = NULL;
	if (!phCtx || flags != CU_GREEN_CTX_DEFAULT_STREAM || hc_handle_kind(desc) != HC_RESOURCES)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(hc_cuDevicePrimaryCtxRetain(&primary, dev));
	hc_state_lock();
	CUresult result = make((struct hc_context *)primary, &green);
	hc_state_unlock();
	if (result == CUDA_SUCCESS)
		*phCtx = (CUgreenCtx)green;
	else
		hc_cuDevicePrimaryCtxRelease_v2(dev);
	return result;
}

CUresult hc_cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
	const struct green *green = green_of(hCtx);
	if (!pContext)
		return CUDA_ERROR_INVALID_VALUE;
	if (!green)
		return CUDA_ERROR_INVALID_CONTEXT;
	*pContext = (CUcontext)green->context;
	return CUDA_SUCCESS;
}

/* Streams in it are of no use then; here they go with it, and are invalid handles, not ones of a destroyed context. */
CUresult hc_cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	hc_state_lock();
	struct green *green = green_of(hCtx);
	if (green)
		hc_handle_remove(green);
	hc_state_unlock();
	if (!green)
		return CUDA_ERROR_INVALID_CONTEXT;
	CUdevice device = green->context->device->ordinal;
	hc_context_free(green->context);
	free(green);
	return hc_cuDevicePrimaryCtxRelease_v2(device);
}

CUresult hc_cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags, int priority)
{
	const struct green *green = green_of(greenCtx);
	struct hc_stream *stream;
	if (!phStream || flags != CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	if (!green)
		return CUDA_ERROR_INVALID_CONTEXT;
	priority = priority < -5 ? -5 : priority > 0 ? 0 : priority;
	HC_TRY(hc_stream_make(green->context, flags, priority, &stream));
	*phStream = (CUstream)stream;
	return CUDA_SUCCESS;
}

CUresult hc_cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx *phCtx)
{
	struct hc_stream *stream;
	if (!phCtx)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(hc_stream_resolve(hStream, &stream));
	*phCtx = (CUgreenCtx)stream->context->green;
	return CUDA_SUCCESS;
}
