/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of objects that kernels and nodes refer to: textures, surfaces, events, tensor maps. */
#include "capture/hooks/hook.h"
#include "capture/record/events.h"
#include "capture/record/objects.h"
#include "capture/record/tensor_maps.h"

/* clang-format off */ /* it takes a body that a macro makes for the next declaration's return type */

/* ---- textures and surfaces ---- */

CUresult CUDAAPI cuTexObjectCreate(CUtexObject *object, const CUDA_RESOURCE_DESC *resource,
                                   const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view)
MD_HOOK(cuTexObjectCreate, (object, resource, texture, view), MD_NOTHING, md_capture_texture_made(*object))

CUresult CUDAAPI cuTexObjectDestroy(CUtexObject object)
MD_HOOK(cuTexObjectDestroy, (object), md_capture_object_gone(object), MD_NOTHING)

CUresult CUDAAPI cuSurfObjectCreate(CUsurfObject *object, const CUDA_RESOURCE_DESC *resource)
MD_HOOK(cuSurfObjectCreate, (object, resource), MD_NOTHING, md_capture_surface_made(*object))

CUresult CUDAAPI cuSurfObjectDestroy(CUsurfObject object)
MD_HOOK(cuSurfObjectDestroy, (object), md_capture_object_gone(object), MD_NOTHING)

/* ---- events ---- */

/* In a stream capture, an event without a flag that makes it a node only shapes edges. */
static void used_on_stream(CUevent event, CUstream stream, const char *call)
{
	if (!md_hook_in_capture(stream))
		md_capture_event_used(event, call);
}

#define EVENTS(suffix, which)                                                                                          \
	CUresult CUDAAPI cuEventRecord##suffix(CUevent hEvent, CUstream hStream)                                       \
	MD_HOOK(cuEventRecord##suffix, (hEvent, hStream), MD_NOTHING,                                                  \
	        used_on_stream(hEvent, which(hStream), "cuEventRecord"))                                               \
	CUresult CUDAAPI cuEventRecordWithFlags##suffix(CUevent hEvent, CUstream hStream, unsigned int flags)          \
	MD_HOOK(cuEventRecordWithFlags##suffix, (hEvent, hStream, flags), MD_NOTHING,                                  \
	        used_on_stream(hEvent, which(hStream), "cuEventRecord"))                                               \
	CUresult CUDAAPI cuStreamWaitEvent##suffix(CUstream hStream, CUevent hEvent, unsigned int flags)               \
	MD_HOOK(cuStreamWaitEvent##suffix, (hStream, hEvent, flags), MD_NOTHING,                                       \
	        used_on_stream(hEvent, which(hStream), "cuStreamWaitEvent"))
EVENTS(, MD_AS_GIVEN)
EVENTS(_ptsz, md_hook_per_thread)

CUresult CUDAAPI cuEventQuery(CUevent hEvent)
MD_HOOK(cuEventQuery, (hEvent), md_capture_event_used(hEvent, "cuEventQuery"), MD_NOTHING)

CUresult CUDAAPI cuEventSynchronize(CUevent hEvent)
MD_HOOK(cuEventSynchronize, (hEvent), md_capture_event_used(hEvent, "cuEventSynchronize"), MD_NOTHING)

#define ELAPSED(symbol)                                                                                                \
	CUresult CUDAAPI symbol(float *ms, CUevent start, CUevent end)                                                 \
	MD_HOOK(symbol, (ms, start, end),                                                                              \
	        (md_capture_event_used(start, "cuEventElapsedTime"), md_capture_event_used(end, "cuEventElapsedTime")), \
	        MD_NOTHING)
ELAPSED(cuEventElapsedTime)
ELAPSED(cuEventElapsedTime_v2)

CUresult CUDAAPI cuEventCreate(CUevent *phEvent, unsigned int Flags)
MD_HOOK(cuEventCreate, (phEvent, Flags), MD_NOTHING, md_capture_event_made(__builtin_return_address(0), *phEvent))

CUresult CUDAAPI cuEventDestroy_v2(CUevent hEvent)
MD_HOOK(cuEventDestroy_v2, (hEvent), md_capture_event_destroyed(hEvent), MD_NOTHING)

/* ---- tensor maps ---- */

CUresult CUDAAPI cuTensorMapReplaceAddress(CUtensorMap *map, void *address)
MD_HOOK(cuTensorMapReplaceAddress, (map, address), MD_NOTHING, md_capture_tensor_map(map))

CUresult CUDAAPI cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                        const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                                        const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                        CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                        CUtensorMapFloatOOBfill fill)
MD_HOOK(cuTensorMapEncodeTiled,
        (map, type, rank, address, dims, strides, box, steps, interleave, swizzle, promotion, fill), MD_NOTHING,
        md_capture_tensor_map(map))

CUresult CUDAAPI cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                         const cuuint64_t *dims, const cuuint64_t *strides, const int *lower,
                                         const int *upper, cuuint32_t channels, cuuint32_t pixels,
                                         const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                         CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                         CUtensorMapFloatOOBfill fill)
MD_HOOK(cuTensorMapEncodeIm2col,
        (map, type, rank, address, dims, strides, lower, upper, channels, pixels, steps, interleave, swizzle,
         promotion, fill), MD_NOTHING, md_capture_tensor_map(map))
