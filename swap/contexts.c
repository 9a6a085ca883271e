/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA contexts of this process, as its calls make and destroy them. */
#include "swap/contexts.h"

#include <pthread.h>
#include <string.h>

#include "base/child.h"
#include "base/environment.h"
#include "base/guarded.h"
#include "swap/arrival.h"
#include "swap/between.h"
#include "swap/control.h"
#include "swap/gate.h"
#include "swap/graph_words.h"
#include "swap/layer.h"
#include "swap/memory_own.h"
#include "swap/module_words.h"

/*
 * Held while the driver makes or destroys a context and we note that: a new context may have the handle of one that was
 * destroyed just now, and must not lose its memory with it.
 */
static pthread_mutex_t change = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; /* the driver may call itself */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct md_swap_context known[MD_SWAP_CONTEXTS_MOST] MD_GUARDED_BY(lock);
static size_t known_count MD_GUARDED_BY(lock);

/* The context that this thread found current last, so that an allocation need not look it up. */
static _Thread_local struct md_swap_context last __attribute__((tls_model("initial-exec")));
static _Thread_local unsigned last_age __attribute__((tls_model("initial-exec")));
static atomic_uint age = 1; /* changes when a context goes */

static struct md_swap_context *find(CUcontext context) MD_REQUIRES(lock)
{
	for (size_t i = 0; i < known_count; i++)
		if (known[i].context == context)
			return &known[i];
	return NULL;
}

static void add_context(CUcontext context, CUdevice device, bool primary)
{
	pthread_mutex_lock(&lock);
	struct md_swap_context *old = find(context);
	if (known_count && known[0].device != device)
		atomic_store(&md_swap_several_devices, true);
	if (old)
		old->primary = old->primary || primary;
	else if (known_count < MD_SWAP_CONTEXTS_MOST)
		known[known_count++] = (struct md_swap_context){context, device, primary};
	pthread_mutex_unlock(&lock);
	if (!old)
		md_swap_control_start();
}

static void forget_context(CUcontext context)
{
	pthread_mutex_lock(&lock);
	struct md_swap_context *old = find(context);
	if (old)
		*old = known[--known_count];
	atomic_fetch_add(&age, 1);
	pthread_mutex_unlock(&lock);
}

static CUcontext primary_of(CUdevice device)
{
	CUcontext found = NULL;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < known_count; i++)
		if (known[i].primary && known[i].device == device)
			found = known[i].context;
	pthread_mutex_unlock(&lock);
	return found;
}

CUcontext md_swap_context_on(CUdevice device)
{
	CUcontext found = primary_of(device);
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < known_count && !found; i++)
		if (known[i].device == device)
			found = known[i].context;
	pthread_mutex_unlock(&lock);
	return found;
}

size_t md_swap_contexts_list(struct md_swap_context *contexts, size_t room)
{
	pthread_mutex_lock(&lock);
	size_t count = known_count < room ? known_count : room;
	memcpy(contexts, known, count * sizeof(*contexts));
	pthread_mutex_unlock(&lock);
	return count;
}

CUresult md_swap_context_current(CUcontext *context, CUdevice *device)
{
	CUcontext current = NULL;
	CUresult result = md_swap_real.cuCtxGetCurrent(&current);
	if (result == CUDA_SUCCESS && !current)
		result = CUDA_ERROR_INVALID_CONTEXT;
	if (result != CUDA_SUCCESS)
		return result;
	unsigned now = atomic_load_explicit(&age, memory_order_relaxed);
	if (last.context != current || last_age != now) {
		CUdevice its;
		result = md_swap_real.cuCtxGetDevice(&its);
		if (result != CUDA_SUCCESS)
			return result;
		add_context(current, its, false);
		last = (struct md_swap_context){current, its, false};
		last_age = now;
	}
	*context = current;
	*device = last.device;
	return CUDA_SUCCESS;
}

CUresult md_swap_context_device(CUcontext context, CUdevice *device)
{
	CUcontext ignored;
	CUresult result = md_swap_real.cuCtxPushCurrent_v2(context);
	if (result != CUDA_SUCCESS)
		return result;
	result = md_swap_real.cuCtxGetDevice(device);
	md_swap_real.cuCtxPopCurrent_v2(&ignored);
	return result;
}

CUresult md_swap_context_drain(CUcontext context)
{
	CUcontext ignored;
	CUresult result = md_swap_real.cuCtxPushCurrent_v2(context);
	if (result != CUDA_SUCCESS)
		return result;
	result = md_swap_real.cuCtxSynchronize();
	md_swap_real.cuCtxPopCurrent_v2(&ignored);
	return result;
}

/* ---- contexts come ---- */

static void made(CUresult result, const CUcontext *context, CUdevice device, bool primary)
{
	if (result == CUDA_SUCCESS && context && *context)
		add_context(*context, device, primary);
}

CUresult md_swap_own_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	pthread_mutex_lock(&change);
	CUresult result = md_swap_real.cuDevicePrimaryCtxRetain(pctx, dev);
	made(result, pctx, dev, true);
	pthread_mutex_unlock(&change);
	return result;
}

CUresult md_swap_own_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	pthread_mutex_lock(&change);
	CUresult result = md_swap_real.cuCtxCreate_v2(pctx, flags, dev);
	made(result, pctx, dev, false);
	pthread_mutex_unlock(&change);
	return result;
}

CUresult md_swap_own_cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
				    unsigned int flags, CUdevice dev)
{
	pthread_mutex_lock(&change);
	CUresult result = md_swap_real.cuCtxCreate_v3(pctx, paramsArray, numParams, flags, dev);
	made(result, pctx, dev, false);
	pthread_mutex_unlock(&change);
	return result;
}

CUresult md_swap_own_cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
				    CUdevice dev)
{
	pthread_mutex_lock(&change);
	CUresult result = md_swap_real.cuCtxCreate_v4(pctx, ctxCreateParams, flags, dev);
	made(result, pctx, dev, false);
	pthread_mutex_unlock(&change);
	return result;
}

CUresult md_swap_own_cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
	CUdevice device;
	CUresult result = md_swap_real.cuCtxFromGreenCtx(pContext, hCtx);
	if (result == CUDA_SUCCESS && md_swap_context_device(*pContext, &device) == CUDA_SUCCESS)
		add_context(*pContext, device, false);
	return result;
}

/* ---- contexts go, and the driver frees what was allocated in them ---- */

static void gone(CUcontext context)
{
	forget_context(context);
	md_swap_gate_captures_gone(context);
	md_swap_own_context_gone(context);
	md_swap_variables_context_gone(context);
	md_swap_graphs_forget();
}

CUresult md_swap_own_cuCtxDestroy_v2(CUcontext ctx)
{
	md_swap_arrival_finish();
	pthread_mutex_lock(&change);
	CUresult result = md_swap_real.cuCtxDestroy_v2(ctx);
	if (result == CUDA_SUCCESS)
		gone(ctx);
	pthread_mutex_unlock(&change);
	return result;
}

static void primary_released(CUdevice device)
{
	unsigned flags;
	int active = 1;
	CUcontext context = primary_of(device);
	if (context && md_swap_real.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && !active)
		gone(context);
}

CUresult md_swap_own_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	md_swap_arrival_finish();
	pthread_mutex_lock(&change);
	CUresult result = md_swap_real.cuDevicePrimaryCtxRelease_v2(dev);
	primary_released(dev);
	pthread_mutex_unlock(&change);
	return result;
}

CUresult md_swap_own_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	md_swap_arrival_finish();
	pthread_mutex_lock(&change);
	CUresult result = md_swap_real.cuDevicePrimaryCtxReset_v2(dev);
	primary_released(dev);
	pthread_mutex_unlock(&change);
	return result;
}

/* In a child, which has one thread. */
static void renew(void) MD_LOCKS_UNCHECKED
{
	change = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	pthread_mutex_init(&lock, NULL);
	known_count = 0;
}

__attribute__((constructor(MD_LOADED_SETTINGS))) static void watch_children(void)
{
	static struct md_child_renewal own = {.renew = renew};
	md_child_register(&own);
}
