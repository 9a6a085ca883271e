/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA contexts of this process, as its calls make and destroy them. */
#include "swap/contexts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/array.h"
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
static struct green {
	CUgreenCtx handle;
	CUdevice device;
} * greens MD_GUARDED_BY(lock); /* grows, and is never freed */
static size_t green_count MD_GUARDED_BY(lock);
static atomic_bool has_green; /* one was made at some time */

/* The context that this thread found current last (last_seen), so that an allocation need not look it up. */
static _Thread_local CUcontext last_seen __attribute__((tls_model("initial-exec")));
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

/* Of a device that a green context is on: that holds the primary one, too. */
static CUresult get_primary(CUdevice device, CUcontext *primary)
{
	CUresult result = md_swap_real.cuDevicePrimaryCtxRetain(primary, device);
	if (result != CUDA_SUCCESS)
		return result;
	md_swap_real.cuDevicePrimaryCtxRelease_v2(device);
	add_context(*primary, device, true);
	return CUDA_SUCCESS;
}

/*
 * A green context has the memory of its device's primary one, and may be current to one thread alone: for us it is the
 * primary one. stream: one in it, or NULL while it is current.
 */
static CUresult at_home(CUstream stream, CUdevice device, CUcontext *context)
{
	CUgreenCtx green = NULL;
	if (!atomic_load(&has_green) || !md_swap_real.cuStreamGetGreenCtx ||
	    md_swap_real.cuStreamGetGreenCtx(stream, &green) != CUDA_SUCCESS || !green)
		return CUDA_SUCCESS;
	return get_primary(device, context);
}

/* seen: the context that is current, which may be a green one. */
static CUresult look_at_current(CUcontext seen)
{
	CUdevice device;
	CUcontext home = seen;
	CUresult result = md_swap_real.cuCtxGetDevice(&device);
	if (result == CUDA_SUCCESS)
		result = at_home(NULL, device, &home);
	if (result != CUDA_SUCCESS)
		return result;
	if (home == seen)
		add_context(seen, device, false);
	last = (struct md_swap_context){home, device, false};
	last_seen = seen;
	return CUDA_SUCCESS;
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
	if (last_seen != current || last_age != now) {
		result = look_at_current(current);
		if (result != CUDA_SUCCESS)
			return result;
		last_age = now;
	}
	*context = last.context;
	*device = last.device;
	return CUDA_SUCCESS;
}

CUresult md_swap_context_of_stream(CUstream stream, CUcontext *context, CUdevice *device)
{
	bool handle = stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
	CUcontext its = NULL;
	CUresult result = md_swap_context_current(context, device);
	if (result != CUDA_SUCCESS || !handle || !md_swap_real.cuStreamGetCtx)
		return result;
	result = md_swap_real.cuStreamGetCtx(stream, &its);
	if (result != CUDA_SUCCESS || its == *context)
		return result;
	*context = its;
	result = md_swap_context_device(its, device);
	return result == CUDA_SUCCESS ? at_home(stream, *device, context) : result;
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

static void add_green(CUgreenCtx green, CUdevice device)
{
	pthread_mutex_lock(&lock);
	if (MD_ARRAY_EXTEND(greens, green_count))
		greens[green_count++] = (struct green){green, device};
	atomic_store(&has_green, true);
	pthread_mutex_unlock(&lock);
}

/* A green context holds the primary one, which may be new. */
CUresult md_swap_own_cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags)
{
	CUcontext primary;
	pthread_mutex_lock(&change);
	CUresult result = md_swap_real.cuGreenCtxCreate(phCtx, desc, dev, flags);
	if (result == CUDA_SUCCESS) {
		add_green(*phCtx, dev);
		get_primary(dev, &primary);
	}
	pthread_mutex_unlock(&change);
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

static bool forget_green(CUgreenCtx green, CUdevice *device)
{
	bool found = false;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < green_count && !found; i++) {
		if (greens[i].handle != green)
			continue;
		found = true;
		*device = greens[i].device;
		greens[i] = greens[--green_count];
	}
	pthread_mutex_unlock(&lock);
	return found;
}

/* Memory that was taken in it stays, unless it was the last one that held the primary context. */
CUresult md_swap_own_cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	CUcontext context = NULL;
	CUdevice device;
	md_swap_arrival_finish();
	pthread_mutex_lock(&change);
	if (md_swap_real.cuCtxFromGreenCtx(&context, hCtx) != CUDA_SUCCESS)
		context = NULL;
	CUresult result = md_swap_real.cuGreenCtxDestroy(hCtx);
	if (result == CUDA_SUCCESS) {
		atomic_fetch_add(&age, 1);
		if (context)
			md_swap_gate_captures_gone(context);
		if (forget_green(hCtx, &device))
			primary_released(device);
	}
	pthread_mutex_unlock(&change);
	return result;
}

/* In a child, which has one thread. */
static void renew(void) MD_LOCKS_UNCHECKED
{
	change = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	pthread_mutex_init(&lock, NULL);
	known_count = green_count = 0;
}

__attribute__((constructor(MD_LOADED_SETTINGS))) static void watch_children(void)
{
	static struct md_child_renewal own = {.renew = renew};
	md_child_register(&own);
}
