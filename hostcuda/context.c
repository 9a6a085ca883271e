/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: primary and created ones, each thread's stack of current ones, and the sticky error of a failed one. */
#include <stdlib.h>

#include "hostcuda/context.h"
#include "hostcuda/device.h"
#include "hostcuda/device_state.h"
#include "hostcuda/memory.h"
#include "hostcuda/module.h"
#include "hostcuda/queue.h"

_Thread_local struct hc_thread hc_thread;
static uint64_t next_context_id HC_STATE_GUARDED;
static struct hc_context *living HC_STATE_GUARDED;
static struct hc_context *graveyard
    HC_STATE_GUARDED; /* a dead context is never freed, because other threads' stacks may still name it */

struct hc_context *hc_context_current(void)
{
	return hc_thread.depth ? hc_thread.stack[hc_thread.depth - 1] : NULL;
}

struct hc_context *hc_context_home(void)
{
	struct hc_context *context = hc_context_current();
	return context ? context->home : NULL;
}

void hc_context_fail(struct hc_context *context, CUresult result)
{
	CUresult none = CUDA_SUCCESS;
	__atomic_compare_exchange_n(&context->home->sticky, &none, result, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

CUresult hc_context_sticky(const struct hc_context *context)
{
	return __atomic_load_n(&context->home->sticky, __ATOMIC_ACQUIRE);
}

/* With a primary context, its green ones. */
static bool is_within(const struct hc_context *at, const struct hc_context *context)
{
	return at == context || at->home == context;
}

static size_t last_of(const struct hc_context *context, struct hc_op **last, size_t room) HC_STATE_HELD
{
	size_t count = 0;
	for (struct hc_context *at = living; at; at = at->next)
		for (struct hc_stream *stream = is_within(at, context) ? at->streams : NULL; stream;
		     stream = stream->next) {
			if (!room) {
				count++;
				continue;
			}
			if (count < room && !stream->capture && (last[count] = hc_stream_last(stream)))
				count++;
		}
	return count;
}

/* Waits for what is queued at the time of the call, not for what other threads queue later. */
CUresult hc_context_drain(struct hc_context *context)
{
	hc_state_lock();
	size_t room = last_of(context, NULL, 0), count = 0;
	struct hc_op **last = calloc(room + 1, sizeof(struct hc_op *));
	if (last && room)
		count = last_of(context, last, room);
	hc_state_unlock();
	for (size_t i = 0; i < count; i++)
		hc_op_join(last[i]);
	free(last);
	return last ? hc_context_sticky(context) : CUDA_ERROR_OUT_OF_MEMORY;
}

static struct hc_context *living_at(size_t index)
{
	HC_STATE_GUARD();
	struct hc_context *at = living;
	while (at && index--)
		at = at->next;
	return at;
}

/* While no call is inside: none comes or goes. */
void hc_context_drain_all(void)
{
	struct hc_context *context;
	for (size_t i = 0; (context = living_at(i)); i++)
		hc_context_drain(context);
}

CUresult hc_context_make(struct hc_device *device, unsigned flags, struct hc_context *home, struct hc_context **made)
{
	struct hc_context *context = calloc(1, sizeof(*context));
	if (!context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	context->device = device;
	context->charged = home ? 0 : hc_device_context_bytes();
	context->home = home ? home : context;
	context->id = ++next_context_id;
	context->flags = flags;
	context->api_version = 3020;
	context->limits[CU_LIMIT_STACK_SIZE] = 1024;
	context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 7 << 20;
	context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
	if (hc_device_charge(device, context->charged) != CUDA_SUCCESS) {
		free(context);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (hc_stream_make(context, CU_STREAM_DEFAULT, 0, &context->legacy) != CUDA_SUCCESS ||
	    !hc_handle_add(context, HC_CONTEXT)) {
		if (context->legacy)
			hc_stream_finish(context->legacy);
		hc_device_credit(device, context->charged);
		free(context);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	context->next = living;
	living = context;
	*made = context;
	return CUDA_SUCCESS;
}

static struct hc_stream *some_stream(const struct hc_context *context)
{
	HC_STATE_GUARD();
	return context->streams;
}

void hc_context_free(struct hc_context *context)
{
	hc_context_drain(context);
	hc_handle_remove(context);
	for (struct hc_stream *stream; (stream = some_stream(context));)
		hc_stream_finish(stream);
	HC_STATE_GUARD();
	hc_library_drop_context(context);
	while (context->modules)
		hc_module_destroy(context->modules);
	hc_memory_drop_context(context);
	hc_device_credit(context->device, context->charged);
	for (struct hc_context **link = &living; *link; link = &(*link)->next)
		if (*link == context) {
			*link = context->next;
			break;
		}
	context->dead = true;
	context->next_dead = graveyard;
	graveyard = context;
}

static bool is_context(CUcontext handle)
{
	return hc_handle_kind(handle) == HC_CONTEXT;
}

CUresult hc_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	HC_STATE_GUARD();
	struct hc_device *device = hc_device_at(dev);
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!device->primary)
		HC_TRY(hc_context_make(device, device->primary_flags, NULL, &device->primary));
	device->primary->primary = true;
	device->primary_refs++;
	*pctx = (CUcontext)device->primary;
	return CUDA_SUCCESS;
}

/* Detaches the primary context when nobody holds it any more (or always, for a reset). */
static CUresult primary_drop(CUdevice dev, bool reset)
{
	struct hc_context *gone = NULL;
	hc_state_lock();
	struct hc_device *device = hc_device_at(dev);
	CUresult result = !device                           ? CUDA_ERROR_INVALID_DEVICE
			  : !reset && !device->primary_refs ? CUDA_ERROR_INVALID_CONTEXT
							    : CUDA_SUCCESS;
	if (result == CUDA_SUCCESS && (reset || !--device->primary_refs)) {
		gone = device->primary;
		device->primary = NULL;
		device->primary_refs = 0;
	}
	hc_state_unlock();
	if (gone)
		hc_context_free(gone);
	return result;
}

CUresult hc_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	return primary_drop(dev, false);
}

CUresult hc_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	return primary_drop(dev, true);
}

CUresult hc_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	HC_STATE_GUARD();
	if (!hc_device_at(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (flags)
		*flags = hc_devices[dev].primary_flags;
	if (active)
		*active = hc_devices[dev].primary != NULL;
	return CUDA_SUCCESS;
}

CUresult hc_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	HC_STATE_GUARD();
	if (!hc_device_at(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	hc_devices[dev].primary_flags = flags;
	return CUDA_SUCCESS;
}

CUresult hc_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	HC_STATE_GUARD();
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	if (!hc_device_at(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	struct hc_context *context;
	HC_TRY(hc_context_make(&hc_devices[dev], flags, NULL, &context));
	CUresult result = hc_cuCtxPushCurrent_v2((CUcontext)context);
	if (result != CUDA_SUCCESS) {
		hc_context_free(context);
		return result;
	}
	*pctx = (CUcontext)context;
	return CUDA_SUCCESS;
}

CUresult hc_cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
			   CUdevice dev)
{
	(void)paramsArray;
	return numParams ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : hc_cuCtxCreate_v2(pctx, flags, dev);
}

CUresult hc_cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev)
{
	if (ctxCreateParams && (ctxCreateParams->execAffinityParams || ctxCreateParams->cigParams))
		return CUDA_ERROR_NOT_SUPPORTED;
	return hc_cuCtxCreate_v2(pctx, flags, dev);
}

CUresult hc_cuCtxDestroy_v2(CUcontext ctx)
{
	struct hc_context *context = (struct hc_context *)ctx;
	hc_state_lock();
	bool good = is_context(ctx) && !context->primary && !context->green;
	if (good)
		hc_handle_remove(context);
	hc_state_unlock();
	if (!good)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (hc_context_current() == context)
		hc_thread.depth--;
	hc_context_free(context);
	return CUDA_SUCCESS;
}

CUresult hc_cuCtxGetCurrent(CUcontext *pctx)
{
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	*pctx = (CUcontext)hc_context_current();
	return CUDA_SUCCESS;
}

CUresult hc_cuCtxSetCurrent(CUcontext ctx)
{
	if (!ctx) {
		if (hc_thread.depth)
			hc_thread.depth--;
		return CUDA_SUCCESS;
	}
	if (!is_context(ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!hc_thread.depth)
		hc_thread.depth = 1;
	hc_thread.stack[hc_thread.depth - 1] = (struct hc_context *)ctx;
	return CUDA_SUCCESS;
}

CUresult hc_cuCtxPushCurrent_v2(CUcontext ctx)
{
	if (!is_context(ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (hc_thread.depth == sizeof(hc_thread.stack) / sizeof(hc_thread.stack[0]))
		return CUDA_ERROR_OUT_OF_MEMORY;
	hc_thread.stack[hc_thread.depth++] = (struct hc_context *)ctx;
	return CUDA_SUCCESS;
}

CUresult hc_cuCtxPopCurrent_v2(CUcontext *pctx)
{
	if (!hc_thread.depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	hc_thread.depth--;
	if (pctx)
		*pctx = (CUcontext)hc_thread.stack[hc_thread.depth];
	return CUDA_SUCCESS;
}

CUresult hc_cuCtxGetDevice(CUdevice *device)
{
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = hc_context_current()->device->ordinal;
	return CUDA_SUCCESS;
}

CUresult hc_cuCtxGetFlags(unsigned int *flags)
{
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = hc_context_current()->flags;
	return CUDA_SUCCESS;
}

/* NULL stands for the current one; NULL: there is none, or ctx is no context. */
static const struct hc_context *context_or_current(CUcontext ctx) HC_STATE_HELD
{
	if (!ctx)
		return hc_context_current();
	return is_context(ctx) ? (const struct hc_context *)ctx : NULL;
}

CUresult hc_cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
	HC_STATE_GUARD();
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	const struct hc_context *context = context_or_current(ctx);
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	*version = context->api_version;
	return CUDA_SUCCESS;
}

CUresult hc_cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
	HC_STATE_GUARD();
	if (!ctxId)
		return CUDA_ERROR_INVALID_VALUE;
	const struct hc_context *context = context_or_current(ctx);
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	*ctxId = context->id;
	return CUDA_SUCCESS;
}

CUresult hc_cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
	if (!pvalue)
		return CUDA_ERROR_INVALID_VALUE;
	if (limit >= sizeof(hc_context_current()->limits) / sizeof(size_t))
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	HC_STATE_GUARD();
	*pvalue = hc_context_current()->limits[limit];
	return CUDA_SUCCESS;
}

CUresult hc_cuCtxSetLimit(CUlimit limit, size_t value)
{
	if (limit >= sizeof(hc_context_current()->limits) / sizeof(size_t))
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	HC_STATE_GUARD();
	if (limit == CU_LIMIT_MALLOC_HEAP_SIZE && hc_context_current()->heap_fixed)
		return CUDA_ERROR_INVALID_VALUE;
	hc_context_current()->limits[limit] = value;
	return CUDA_SUCCESS;
}

CUresult hc_cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
	if (leastPriority)
		*leastPriority = 0;
	if (greatestPriority)
		*greatestPriority = -5;
	return CUDA_SUCCESS;
}

CUresult hc_cuCtxSynchronize(void)
{
	return hc_context_drain(hc_context_current());
}
