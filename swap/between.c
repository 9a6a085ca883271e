/* SPDX-License-Identifier: Apache-2.0 */
#define MD_LOG_DOMAIN "swap"

#include "swap/between.h"

#include "base/log.h"
#include "swap/gate.h"
#include "swap/layer.h"
#include "swap/contexts.h"
#include "swap/physical.h"

atomic_bool md_swap_several_devices;

/* How the call was made. */
struct way {
	CUstream stream;
	bool waits; /* it has no stream */
	bool own;   /* a variant for the per-thread default stream */
};

/* ---- the ends ---- */

struct end {
	CUmemorytype type;
	uint64_t address;
	CUcontext context;
	bool apart; /* memory of ours that `device` does not reach */
};

static bool reaches(const struct md_swap_mapping *mapping, CUdevice device) MD_REQUIRES(md_swap_memory_lock)
{
	for (uint32_t i = 0; i < mapping->access_count; i++)
		if (mapping->access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
		    mapping->access[i].location.id == device)
			return mapping->access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return false;
}

static struct end look_at(CUmemorytype type, uint64_t address, CUdevice device)
{
	struct end end = {.type = type, .address = address};
	if (type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
		return end;
	pthread_mutex_lock(&md_swap_memory_lock);
	const struct md_swap_mapping *mapping = md_swap_mapping_at(address);
	if (mapping && md_swap_is_piece(mapping->physical)) {
		end.type = CU_MEMORYTYPE_DEVICE;
		end.context = mapping->physical->context;
		end.apart = !reaches(mapping, device);
	}
	pthread_mutex_unlock(&md_swap_memory_lock);
	return end;
}

/* Of an end that is no memory of ours. here: the context that the copy is made in. */
static void complete(struct end *end, CUcontext here)
{
	unsigned type = CU_MEMORYTYPE_HOST;
	CUcontext its = NULL;
	if (end->context)
		return;
	if (end->type == CU_MEMORYTYPE_UNIFIED) {
		if (md_swap_real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, end->address) !=
		    CUDA_SUCCESS)
			type = CU_MEMORYTYPE_HOST;
		end->type = (CUmemorytype)type;
	}
	if (end->type == CU_MEMORYTYPE_DEVICE)
		md_swap_real.cuPointerGetAttribute(&its, CU_POINTER_ATTRIBUTE_CONTEXT, end->address);
	end->context = its ? its : here;
}

static bool is_captured(const struct way *way)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUstream stream = way->own && !way->stream ? CU_STREAM_PER_THREAD : way->stream;
	return !way->waits && md_swap_gate_captures() &&
	       md_swap_real.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Where the end begins, whose first row and byte may lie behind its address. */
static uint64_t start_of(CUmemorytype type, const void *host, CUdeviceptr device, size_t x, size_t y, size_t z,
			 size_t pitch, size_t height)
{
	uint64_t address = type == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)host : device;
	return address + (z * height + y) * pitch + x;
}

/* Whether the copy must name contexts, which it does then. What is wrong with it, the driver says. */
static bool is_between(CUDA_MEMCPY3D_PEER *copy, const struct way *way)
{
	CUcontext here;
	CUdevice device;
	if (!copy->WidthInBytes || !copy->Height || !copy->Depth ||
	    md_swap_context_of_stream(way->stream, &here, &device) != CUDA_SUCCESS)
		return false;
	struct end to = look_at(copy->dstMemoryType,
				start_of(copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstXInBytes,
					 copy->dstY, copy->dstZ, copy->dstPitch, copy->dstHeight),
				device);
	struct end from = look_at(copy->srcMemoryType,
				  start_of(copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcXInBytes,
					   copy->srcY, copy->srcZ, copy->srcPitch, copy->srcHeight),
				  device);
	if (!to.apart && !from.apart)
		return false;
	complete(&to, here);
	complete(&from, here);
	if (copy->dstMemoryType == CU_MEMORYTYPE_UNIFIED && to.type == CU_MEMORYTYPE_HOST)
		copy->dstHost = (void *)(uintptr_t)copy->dstDevice;
	if (copy->srcMemoryType == CU_MEMORYTYPE_UNIFIED && from.type == CU_MEMORYTYPE_HOST)
		copy->srcHost = (const void *)(uintptr_t)copy->srcDevice;
	copy->dstMemoryType = to.type;
	copy->srcMemoryType = from.type;
	copy->dstContext = to.context;
	copy->srcContext = from.context;
	return true;
}

/* ---- calls that name contexts ---- */

static CUresult copy_flat(const CUDA_MEMCPY3D_PEER *c, const struct way *way)
{
	const struct md_cuda *driver = &md_swap_real;
	if (way->waits)
		return (way->own ? driver->cuMemcpyPeer_ptds : driver->cuMemcpyPeer)(
		    c->dstDevice, c->dstContext, c->srcDevice, c->srcContext, c->WidthInBytes);
	return (way->own ? driver->cuMemcpyPeerAsync_ptsz : driver->cuMemcpyPeerAsync)(
	    c->dstDevice, c->dstContext, c->srcDevice, c->srcContext, c->WidthInBytes, way->stream);
}

static CUresult copy_shape(const CUDA_MEMCPY3D_PEER *c, const struct way *way)
{
	const struct md_cuda *driver = &md_swap_real;
	if (way->waits)
		return (way->own ? driver->cuMemcpy3DPeer_ptds : driver->cuMemcpy3DPeer)(c);
	return (way->own ? driver->cuMemcpy3DPeerAsync_ptsz : driver->cuMemcpy3DPeerAsync)(c, way->stream);
}

static bool can_name(void)
{
	const struct md_cuda *driver = &md_swap_real;
	return driver->cuMemcpyPeer && driver->cuMemcpyPeer_ptds && driver->cuMemcpyPeerAsync &&
	       driver->cuMemcpyPeerAsync_ptsz && driver->cuMemcpy3DPeer && driver->cuMemcpy3DPeer_ptds &&
	       driver->cuMemcpy3DPeerAsync && driver->cuMemcpy3DPeerAsync_ptsz;
}

/* ---- copies in graphs, whose nodes name one context at most ---- */

/* Lets a device reach memory of ours at an end of a copy. *owner: where that memory is, if it is ours. */
static CUresult open_end(CUmemorytype type, uint64_t address, CUdevice device, CUdevice *owner)
{
	const CUmemAccessDesc right = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUresult result = CUDA_SUCCESS;
	int can = 0;
	if (type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
		return result;
	pthread_mutex_lock(&md_swap_memory_lock);
	struct md_swap_mapping *mapping = md_swap_mapping_at(address);
	if (mapping && md_swap_is_piece(mapping->physical)) {
		*owner = mapping->physical->prop.location.id;
		if (!reaches(mapping, device)) {
			md_swap_real.cuThreadExchangeStreamCaptureMode(&mode);
			if (!md_swap_real.cuDeviceCanAccessPeer ||
			    md_swap_real.cuDeviceCanAccessPeer(&can, device, *owner) != CUDA_SUCCESS || !can)
				result = CUDA_ERROR_NOT_SUPPORTED;
			else
				result = md_swap_mapping_allow(mapping, &right, 1);
			md_swap_real.cuThreadExchangeStreamCaptureMode(&mode);
		}
	}
	pthread_mutex_unlock(&md_swap_memory_lock);
	return result;
}

/*
 * A graph may be launched on any device that its node's context is on, so both ends let that one reach them; and each
 * other's, where they can, because the driver is free to choose.
 */
static CUresult open_both(const CUDA_MEMCPY3D_PEER *c, CUdevice device)
{
	uint64_t to = start_of(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, c->dstZ,
			       c->dstPitch, c->dstHeight);
	uint64_t from = start_of(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, c->srcZ,
				 c->srcPitch, c->srcHeight);
	CUdevice to_owner = device, from_owner = device, ignored;
	if (!c->WidthInBytes || !c->Height || !c->Depth)
		return CUDA_SUCCESS;
	CUresult result = open_end(c->dstMemoryType, to, device, &to_owner);
	if (result == CUDA_SUCCESS)
		result = open_end(c->srcMemoryType, from, device, &from_owner);
	if (result == CUDA_SUCCESS) {
		open_end(c->dstMemoryType, to, from_owner, &ignored);
		open_end(c->srcMemoryType, from, to_owner, &ignored);
		return CUDA_SUCCESS;
	}
	md_warn("a graph's copy of %zu bytes from memory of device %d to memory of device %d fails (%s): for copies in "
		"graphs "
		"device %d must reach both, which it does not",
		(size_t)c->WidthInBytes, from_owner, to_owner, md_cuda_error_name(result), device);
	return result;
}

static CUresult open_for_graph(const CUDA_MEMCPY3D_PEER *copy, const struct way *way)
{
	CUcontext here;
	CUdevice device;
	if (md_swap_context_of_stream(way->stream, &here, &device) != CUDA_SUCCESS)
		return CUDA_SUCCESS; /* the driver says what is wrong */
	return open_both(copy, device);
}

/* False: the driver's call makes this copy. */
static bool copy_between(CUDA_MEMCPY3D_PEER *copy, struct way way, CUresult *result)
{
	if (is_captured(&way)) {
		*result = open_for_graph(copy, &way);
		return *result != CUDA_SUCCESS;
	}
	if (!can_name() || !is_between(copy, &way))
		return false;
	bool flat = copy->Height == 1 && copy->Depth == 1 && !copy->dstXInBytes && !copy->dstY && !copy->dstZ &&
		    !copy->srcXInBytes && !copy->srcY && !copy->srcZ;
	bool on_devices = copy->dstMemoryType == CU_MEMORYTYPE_DEVICE && copy->srcMemoryType == CU_MEMORYTYPE_DEVICE;
	*result = flat && on_devices ? copy_flat(copy, &way) : copy_shape(copy, &way);
	return true;
}

/* ---- bytes ---- */

static CUDA_MEMCPY3D_PEER bytes_of(CUmemorytype to_type, uint64_t to, CUmemorytype from_type, uint64_t from,
				   size_t bytes)
{
	CUDA_MEMCPY3D_PEER copy = {.dstMemoryType = to_type,
				   .srcMemoryType = from_type,
				   .dstPitch = bytes,
				   .srcPitch = bytes,
				   .dstHeight = 1,
				   .srcHeight = 1,
				   .WidthInBytes = bytes,
				   .Height = 1,
				   .Depth = 1};
	if (to_type == CU_MEMORYTYPE_HOST)
		copy.dstHost = (void *)(uintptr_t)to;
	else
		copy.dstDevice = to;
	if (from_type == CU_MEMORYTYPE_HOST)
		copy.srcHost = (const void *)(uintptr_t)from;
	else
		copy.srcDevice = from;
	return copy;
}

#define BYTES_NOW(symbol, to_kind, to_type, from_kind, from_type, own)                                                 \
	CUresult md_swap_between_##symbol(to_type to, from_type from, size_t bytes)                                    \
	{                                                                                                              \
		CUresult result;                                                                                       \
		CUDA_MEMCPY3D_PEER copy = bytes_of(CU_MEMORYTYPE_##to_kind, (uint64_t)(uintptr_t)to,                   \
						   CU_MEMORYTYPE_##from_kind, (uint64_t)(uintptr_t)from, bytes);       \
		return copy_between(&copy, (struct way){NULL, true, own}, &result)                                     \
			   ? result                                                                                    \
			   : md_swap_real.symbol(to, from, bytes);                                                     \
	}
#define BYTES_LATER(symbol, to_kind, to_type, from_kind, from_type, own)                                               \
	CUresult md_swap_between_##symbol(to_type to, from_type from, size_t bytes, CUstream stream)                   \
	{                                                                                                              \
		CUresult result;                                                                                       \
		CUDA_MEMCPY3D_PEER copy = bytes_of(CU_MEMORYTYPE_##to_kind, (uint64_t)(uintptr_t)to,                   \
						   CU_MEMORYTYPE_##from_kind, (uint64_t)(uintptr_t)from, bytes);       \
		return copy_between(&copy, (struct way){stream, false, own}, &result)                                  \
			   ? result                                                                                    \
			   : md_swap_real.symbol(to, from, bytes, stream);                                             \
	}
#define BYTES(now, later, to_kind, to_type, from_kind, from_type)                                                      \
	BYTES_NOW(now, to_kind, to_type, from_kind, from_type, false)                                                  \
	BYTES_NOW(now##_ptds, to_kind, to_type, from_kind, from_type, true)                                            \
	BYTES_LATER(later, to_kind, to_type, from_kind, from_type, false)                                              \
	BYTES_LATER(later##_ptsz, to_kind, to_type, from_kind, from_type, true)
BYTES(cuMemcpy, cuMemcpyAsync, UNIFIED, CUdeviceptr, UNIFIED, CUdeviceptr)
BYTES(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, DEVICE, CUdeviceptr, HOST, const void *)
BYTES(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, HOST, void *, DEVICE, CUdeviceptr)
BYTES(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, DEVICE, CUdeviceptr, DEVICE, CUdeviceptr)

/* ---- rows and slices ---- */

#define COMMON(c)                                                                                                      \
	.srcXInBytes = (c)->srcXInBytes, .srcY = (c)->srcY, .srcMemoryType = (c)->srcMemoryType,                       \
	.srcHost = (c)->srcHost, .srcDevice = (c)->srcDevice, .srcArray = (c)->srcArray, .srcPitch = (c)->srcPitch,    \
	.dstXInBytes = (c)->dstXInBytes, .dstY = (c)->dstY, .dstMemoryType = (c)->dstMemoryType,                       \
	.dstHost = (c)->dstHost, .dstDevice = (c)->dstDevice, .dstArray = (c)->dstArray, .dstPitch = (c)->dstPitch,    \
	.WidthInBytes = (c)->WidthInBytes, .Height = (c)->Height

static CUDA_MEMCPY3D_PEER rows_of(const CUDA_MEMCPY2D *c)
{
	return (CUDA_MEMCPY3D_PEER){COMMON(c), .Depth = 1};
}

static CUDA_MEMCPY3D_PEER slices_of(const CUDA_MEMCPY3D *c)
{
	return (CUDA_MEMCPY3D_PEER){
	    COMMON(c),       .srcZ = c->srcZ,     .srcLOD = c->srcLOD,       .srcHeight = c->srcHeight,
	    .dstZ = c->dstZ, .dstLOD = c->dstLOD, .dstHeight = c->dstHeight, .Depth = c->Depth};
}

#define SHAPE_NOW(symbol, type, shape_of, own)                                                                         \
	CUresult md_swap_between_##symbol(const type *shape)                                                           \
	{                                                                                                              \
		CUresult result;                                                                                       \
		CUDA_MEMCPY3D_PEER copy = shape ? shape_of(shape) : (CUDA_MEMCPY3D_PEER){0};                           \
		return copy_between(&copy, (struct way){NULL, true, own}, &result) ? result                            \
										   : md_swap_real.symbol(shape);       \
	}
#define SHAPE_LATER(symbol, type, shape_of, own)                                                                       \
	CUresult md_swap_between_##symbol(const type *shape, CUstream stream)                                          \
	{                                                                                                              \
		CUresult result;                                                                                       \
		CUDA_MEMCPY3D_PEER copy = shape ? shape_of(shape) : (CUDA_MEMCPY3D_PEER){0};                           \
		return copy_between(&copy, (struct way){stream, false, own}, &result)                                  \
			   ? result                                                                                    \
			   : md_swap_real.symbol(shape, stream);                                                       \
	}
SHAPE_NOW(cuMemcpy2D_v2, CUDA_MEMCPY2D, rows_of, false)
SHAPE_NOW(cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D, rows_of, true)
SHAPE_NOW(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, rows_of, false)
SHAPE_NOW(cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D, rows_of, true)
SHAPE_NOW(cuMemcpy3D_v2, CUDA_MEMCPY3D, slices_of, false)
SHAPE_NOW(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, slices_of, true)
SHAPE_LATER(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, rows_of, false)
SHAPE_LATER(cuMemcpy2DAsync_v2_ptsz, CUDA_MEMCPY2D, rows_of, true)
SHAPE_LATER(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, slices_of, false)
SHAPE_LATER(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D, slices_of, true)

/* ---- nodes ---- */

CUresult md_swap_between_node(const CUDA_MEMCPY3D *copy, CUcontext context)
{
	CUdevice device;
	CUcontext current;
	if (!copy || !atomic_load_explicit(&md_swap_several_devices, memory_order_relaxed))
		return CUDA_SUCCESS;
	CUresult found =
	    context ? md_swap_context_device(context, &device) : md_swap_context_current(&current, &device);
	CUDA_MEMCPY3D_PEER peer = slices_of(copy);
	return found == CUDA_SUCCESS ? open_both(&peer, device) : CUDA_SUCCESS;
}

static CUresult open_params(const CUgraphNodeParams *params)
{
	if (!params || params->type != CU_GRAPH_NODE_TYPE_MEMCPY)
		return CUDA_SUCCESS;
	return md_swap_between_node(&params->memcpy.copyParams, params->memcpy.copyCtx);
}

CUresult md_swap_own_cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
					  size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	CUresult result = md_swap_between_node(copyParams, ctx);
	return result ? result
		      : md_swap_real.cuGraphAddMemcpyNode(phGraphNode, hGraph, dependencies, numDependencies,
							  copyParams, ctx);
}

CUresult md_swap_own_cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				    size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	CUresult result = open_params(nodeParams);
	return result ? result
		      : md_swap_real.cuGraphAddNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult md_swap_own_cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				       const CUgraphEdgeData *dependencyData, size_t numDependencies,
				       CUgraphNodeParams *nodeParams)
{
	CUresult result = open_params(nodeParams);
	return result ? result
		      : md_swap_real.cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, dependencyData,
						       numDependencies, nodeParams);
}

CUresult md_swap_own_cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	CUresult result = open_params(nodeParams);
	return result ? result : md_swap_real.cuGraphNodeSetParams(hNode, nodeParams);
}

CUresult md_swap_own_cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
	CUresult result = md_swap_between_node(nodeParams, NULL);
	return result ? result : md_swap_real.cuGraphMemcpyNodeSetParams(hNode, nodeParams);
}
