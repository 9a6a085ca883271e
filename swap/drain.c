/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for the work of all contexts with a deadline: a thread of Medusa waits in the driver, and we wait for it. */
#include "swap/drain.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/guarded.h"
#include "base/thread.h"
#include "swap/contexts.h"
#include "swap/layer.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static bool started MD_GUARDED_BY(lock), wanted MD_GUARDED_BY(lock), busy MD_GUARDED_BY(lock);
static CUresult outcome MD_GUARDED_BY(lock);

static CUresult drain_all(void)
{
	struct md_swap_context contexts[MD_SWAP_CONTEXTS_MOST];
	size_t count = md_swap_contexts_list(contexts, MD_SWAP_CONTEXTS_MOST);
	CUresult result = CUDA_SUCCESS;
	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = md_swap_context_drain(contexts[i].context);
	return result;
}

static void *drain_when_asked(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&lock);
	for (;;) {
		while (!wanted)
			pthread_cond_wait(&changed, &lock);
		wanted = false;
		pthread_mutex_unlock(&lock);
		CUresult result = drain_all();
		pthread_mutex_lock(&lock);
		outcome = result;
		busy = false;
		pthread_cond_broadcast(&changed);
	}
	return NULL;
}

static bool start(void) MD_REQUIRES(lock)
{
	pthread_condattr_t attributes;
	pthread_t thread;
	if (started)
		return true;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&changed, &attributes);
	pthread_condattr_destroy(&attributes);
	if (md_thread_start(&thread, drain_when_asked, NULL))
		return false;
	pthread_detach(thread);
	started = true;
	return true;
}

static bool await_idle(uint64_t until) MD_REQUIRES(lock)
{
	struct timespec end = {.tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u)};
	while (busy)
		if (pthread_cond_timedwait(&changed, &lock, &end))
			return !busy;
	return true;
}

static enum md_status drain_locked(uint64_t begun, uint64_t deadline_ns, struct md_error *err) MD_REQUIRES(lock)
{
	uint64_t until = deadline_ns > UINT64_MAX - begun ? UINT64_MAX : begun + deadline_ns;
	if (!start())
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a thread that waits for the device");
	if (await_idle(until)) {
		wanted = busy = true;
		pthread_cond_broadcast(&changed);
	}
	if (!await_idle(until))
		return md_error_set(err, MD_ERR_TIMEOUT,
				    "cuCtxSynchronize: the work on the device did not end within %llu ms: the memory "
				    "stays with the engine",
				    (unsigned long long)((md_clock_ns() - begun) / 1000000));
	return md_cuda_status(outcome, "cuCtxSynchronize", err);
}

enum md_status md_swap_drain(uint64_t begun, uint64_t deadline_ns, struct md_error *err)
{
	pthread_mutex_lock(&lock);
	enum md_status status = drain_locked(begun, deadline_ns, err);
	pthread_mutex_unlock(&lock);
	return status;
}

/* In a child, which has one thread. */
static void renew(void) MD_LOCKS_UNCHECKED
{
	pthread_mutex_init(&lock, NULL);
	started = wanted = busy = false;
}

__attribute__((constructor(MD_LOADED_SETTINGS))) static void watch_children(void)
{
	static struct md_child_renewal own = {.renew = renew};
	md_child_register(&own);
}
