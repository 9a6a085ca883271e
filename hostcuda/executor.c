/* SPDX-License-Identifier: Apache-2.0 */
/* Runs kernels block by block on a shared pool of threads, runs copies and fills, and catches memory faults. */
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/setting.h"
#include "base/thread.h"
#include "hostcuda/bus.h"
#include "hostcuda/device_state.h"
#include "hostcuda/executor.h"
#include "hostcuda/vmm.h"

/* ---- faults ---- */
static _Thread_local sigjmp_buf *fault_jump;     /* set while this thread does device work */
static struct sigaction before_segv, before_bus; /* written under the state lock before any worker runs */

static void on_fault(int number, siginfo_t *info, void *machine)
{
	if (fault_jump)
		siglongjmp(*fault_jump, 1);
	struct sigaction *before = number == SIGBUS ? &before_bus : &before_segv;
	if (before->sa_flags & SA_SIGINFO)
		before->sa_sigaction(number, info, machine);
	else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN)
		before->sa_handler(number);
	else /* the access faults again, as it would without this handler */
		sigaction(number, before, NULL);
}

static void take_signal(int number, struct sigaction *before)
{
	struct sigaction now, ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
	if (sigaction(number, NULL, &now) || ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault))
		return;
	*before = now;
	sigaction(number, &ours, NULL);
}

void hc_executor_start(void)
{
	HC_STATE_GUARD();
	take_signal(SIGSEGV, &before_segv);
	take_signal(SIGBUS, &before_bus);
}

/* Runs call(argument), catching faults; false when there was one. The jump target must be in this stack frame. */
static bool guarded(void (*call)(void *), void *argument)
{
	sigjmp_buf here;
	/* The handler leaves the signal unblocked (SA_NODEFER), so the mask need not be saved. */
	if (sigsetjmp(here, 0)) {
		fault_jump = NULL;
		return false;
	}
	fault_jump = &here;
	call(argument);
	fault_jump = NULL;
	return true;
}

/* ---- blocks ---- */
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;

struct job {
	const struct hc_launch *launch;
	const struct hostcuda_kernel *kernel;
	const struct hc_context *context;
	uint64_t blocks;
	uint64_t next; /* atomic: the next block nobody has taken */
	bool faulted;
	unsigned helpers MD_GUARDED_BY(pool_lock);
	struct job *next_job MD_GUARDED_BY(pool_lock);
};

static pthread_cond_t pool_work = PTHREAD_COND_INITIALIZER, pool_left = PTHREAD_COND_INITIALIZER;
static struct job *jobs MD_GUARDED_BY(pool_lock);
static bool pool_started MD_GUARDED_BY(pool_lock);
static unsigned pool_size MD_GUARDED_BY(pool_lock);

static _Thread_local void *shared_memory;
static _Thread_local size_t shared_capacity;

static void *shared_of(size_t bytes)
{
	if (bytes <= shared_capacity)
		return shared_memory;
	free(shared_memory);
	shared_memory = NULL;
	shared_capacity = 0;
	if (posix_memalign(&shared_memory, 64, bytes))
		return shared_memory = NULL;
	shared_capacity = bytes;
	return shared_memory;
}

void hc_executor_leave(void)
{
	free(shared_memory);
	shared_memory = NULL;
	shared_capacity = 0;
}

static uint64_t lone_ops;

void hc_executor_lone_op(void)
{
	__atomic_fetch_add(&lone_ops, 1, __ATOMIC_RELAXED);
}

static void run_blocks(void *argument)
{
	struct job *job = argument;
	const struct hc_launch *launch = job->launch;
	struct hostcuda_block block = {.shared_bytes = launch->shared,
				       .shared = shared_memory,
				       .limits = job->context->limits,
				       .lone_ops = __atomic_load_n(&lone_ops, __ATOMIC_RELAXED)};
	memcpy(block.grid_dim, launch->grid, sizeof(block.grid_dim));
	memcpy(block.block_dim, launch->block, sizeof(block.block_dim));
	while (!__atomic_load_n(&job->faulted, __ATOMIC_RELAXED)) {
		uint64_t index = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED);
		if (index >= job->blocks)
			return;
		block.block_idx[0] = (uint32_t)(index % launch->grid[0]);
		block.block_idx[1] = (uint32_t)(index / launch->grid[0] % launch->grid[1]);
		block.block_idx[2] = (uint32_t)(index / launch->grid[0] / launch->grid[1]);
		if (launch->shared)
			memset(block.shared, 0, launch->shared);
		job->kernel->run(&block, launch->params);
	}
}

static void take_part(struct job *job)
{
	if ((job->launch->shared && !shared_of(job->launch->shared)) || !guarded(run_blocks, job))
		__atomic_store_n(&job->faulted, true, __ATOMIC_RELAXED);
}

static struct job *job_with_work(void) MD_REQUIRES(pool_lock)
{
	for (struct job *job = jobs; job; job = job->next_job)
		if (__atomic_load_n(&job->next, __ATOMIC_RELAXED) < job->blocks &&
		    !__atomic_load_n(&job->faulted, __ATOMIC_RELAXED))
			return job;
	return NULL;
}

static void *help(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&pool_lock);
	for (;;) {
		struct job *job = job_with_work();
		if (!job) {
			pthread_cond_wait(&pool_work, &pool_lock);
			continue;
		}
		job->helpers++;
		pthread_mutex_unlock(&pool_lock);
		if (__atomic_load_n(&job->next, __ATOMIC_RELAXED) + 1 < job->blocks)
			pthread_cond_signal(&pool_work); /* it calls the next one, if there is still work then */
		take_part(job);
		pthread_mutex_lock(&pool_lock);
		if (!--job->helpers) {
			pthread_mutex_unlock(&pool_lock);
			pthread_cond_broadcast(&pool_left);
			pthread_mutex_lock(&pool_lock);
		}
	}
	return NULL;
}

/* HOSTCUDA_THREADS, or one for each processor. */
static long threads_wanted(void)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	return (long)md_setting_number("HOSTCUDA_THREADS", 1, 100000, processors > 0 ? (uint64_t)processors : 1);
}

/* The stream's own thread works, too, so the pool has one thread less than wanted. */
static void start_pool(void) MD_REQUIRES(pool_lock)
{
	long wanted = threads_wanted();
	pthread_t thread;
	pool_started = true;
	while ((long)pool_size < wanted - 1 && pool_size < 63 && !md_thread_start(&thread, help, NULL)) {
		pthread_detach(thread);
		pool_size++;
	}
}

static void share(struct job *job)
{
	pthread_mutex_lock(&pool_lock);
	if (!pool_started)
		start_pool();
	job->next_job = jobs;
	jobs = job;
	pthread_mutex_unlock(&pool_lock);
	pthread_cond_signal(&pool_work); /* one: small kernels are done before all are awake */
}

static void take_back(struct job *job)
{
	pthread_mutex_lock(&pool_lock);
	struct job **link = &jobs;
	while (*link != job)
		link = &(*link)->next_job;
	*link = job->next_job;
	while (job->helpers)
		pthread_cond_wait(&pool_left, &pool_lock);
	pthread_mutex_unlock(&pool_lock);
}

CUresult hc_execute_launch(const struct hc_launch *launch, const struct hc_context *context)
{
	struct job job = {.launch = launch,
			  .context = context,
			  .kernel = (const struct hostcuda_kernel *)(launch->image->base + launch->symbol->value),
			  .blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2]};
	bool alone = job.blocks == 1;
	if (!alone)
		share(&job);
	take_part(&job);
	if (!alone)
		take_back(&job);
	return job.faulted ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

/* ---- copies and fills ---- */
static void run_copy(void *argument)
{
	const struct hc_copy *copy = argument;
	for (size_t z = 0; z < copy->depth; z++)
		for (size_t y = 0; y < copy->height; y++)
			memmove((void *)(copy->to + z * copy->to_slice + y * copy->to_pitch),
				(const void *)(copy->from + z * copy->from_slice + y * copy->from_pitch), copy->width);
}

CUresult hc_execute_copy(const struct hc_copy *copy)
{
	struct hc_copy plain = *copy;
	if (copy->depth == 1 && copy->height > 1 && copy->to_pitch == copy->width && copy->from_pitch == copy->width) {
		plain.width *= copy->height;
		plain.height = 1;
	}
	hc_bus_take(copy);
	if (copy->height == 1 && copy->depth == 1)
		hc_vmm_fill(copy->to, copy->width);
	return guarded(run_copy, &plain) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static void run_fill(void *argument)
{
	const struct hc_fill *fill = argument;
	for (size_t y = 0; y < fill->height; y++) {
		char *row = (char *)(fill->to + y * fill->pitch);
		if (fill->element == 1)
			memset(row, (int)fill->value, fill->width);
		for (size_t x = 0; fill->element == 2 && x < fill->width; x++)
			((uint16_t *)row)[x] = (uint16_t)fill->value;
		for (size_t x = 0; fill->element == 4 && x < fill->width; x++)
			((uint32_t *)row)[x] = fill->value;
	}
}

CUresult hc_execute_fill(const struct hc_fill *fill)
{
	struct hc_fill copy = *fill;
	if (fill->height == 1)
		hc_vmm_fill(fill->to, fill->width * fill->element);
	return guarded(run_fill, &copy) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}
