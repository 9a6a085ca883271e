/* SPDX-License-Identifier: Apache-2.0 */
/* The gate: each thread notes in a slot of its own that it is inside a call; closing the gate reads all slots. */
#include "swap/gate.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/guarded.h"
#include "swap/drain.h"
#include "swap/layer.h"

enum { OPEN = 0, CLOSED = 1, ABANDONED = 2 };

/*
 * While one thread ends the process, other threads that wait at the gate go on waiting, because an error could make them
 * end the process in another way. In case the ending thread waits for them, they get the error after this time.
 */
#define LINGER_NS 2000000000ull
static _Atomic(uint64_t) abandoned_until;
static _Thread_local bool own_leaves __attribute__((tls_model("initial-exec")));

_Thread_local struct md_swap_slot *md_swap_own_slot __attribute__((tls_model("initial-exec")));
_Atomic(uint32_t) md_swap_gate_state;
static atomic_bool asked_for;

/* Slots are never freed, so that they can be read without a lock. The slot of a thread that has ended is used again. */
static _Atomic(struct md_swap_slot *) slots;
static pthread_key_t slot_key;
static pthread_once_t slot_key_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t close_lock = PTHREAD_MUTEX_INITIALIZER;

static const char *const entry_names[MD_SWAP_INDEX_COUNT] = {
#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args) #symbol,
#include "driver/cuda_api.def"
};

const char *md_swap_gate_call(void)
{
	uint32_t inside = md_swap_own_slot ? atomic_load(&md_swap_own_slot->inside) : 0;
	return inside ? entry_names[inside - 1] : "a call";
}

static void forget_captures(CUstream key, CUcontext context);

/* ---- slots ---- */

static void thread_ends(void *own)
{
	struct md_swap_slot *slot = own;
	forget_captures((CUstream)slot, NULL); /* the thread's default stream ends with it */
	md_swap_own_slot = NULL;
	slot->depth = 0;
	atomic_store(&slot->inside, 0);
	atomic_store(&slot->taken, false);
}

static void make_key(void)
{
	pthread_key_create(&slot_key, thread_ends);
}

static struct md_swap_slot *take_slot(void)
{
	struct md_swap_slot *slot;
	for (slot = atomic_load(&slots); slot; slot = slot->next) {
		bool free_one = false;
		if (atomic_compare_exchange_strong(&slot->taken, &free_one, true))
			return slot;
	}
	slot = calloc(1, sizeof(*slot));
	if (!slot)
		return NULL;
	atomic_store(&slot->taken, true);
	slot->next = atomic_load(&slots);
	while (!atomic_compare_exchange_weak(&slots, &slot->next, slot))
		;
	return slot;
}

CUresult md_swap_gate_enter_first(enum md_swap_index index)
{
	static _Atomic(uint64_t) last_serial;
	struct md_swap_slot *slot = take_slot();
	if (!slot)
		return CUDA_ERROR_OUT_OF_MEMORY;
	slot->serial = atomic_fetch_add(&last_serial, 1) + 1;
	atomic_store(&slot->thread, (int)syscall(SYS_gettid));
	pthread_once(&slot_key_once, make_key);
	pthread_setspecific(slot_key, slot);
	md_swap_own_slot = slot;
	return md_swap_gate_enter(index);
}

/* ---- waiting at the closed gate ---- */

static void wait_while(uint32_t state)
{
	syscall(SYS_futex, &md_swap_gate_state, FUTEX_WAIT_PRIVATE, state, NULL, NULL, 0);
}

static void publish(uint32_t state)
{
	atomic_store(&md_swap_gate_state, state);
	syscall(SYS_futex, &md_swap_gate_state, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void linger(void)
{
	const struct timespec pause = {0, 10000000};
	while (!own_leaves && md_clock_ns() < atomic_load(&abandoned_until))
		nanosleep(&pause, NULL);
}

/*
 * Calls that ask for the end of work, or wait for it, need not wait for the memory: all work has ended by then. Threads
 * that watch others (NCCL's watchdog) would take a call that does not return for a device that hangs.
 */
static bool passes(enum md_swap_index index)
{
	switch (index) {
	case MD_SWAP_INDEX_cuCtxSynchronize:
	case MD_SWAP_INDEX_cuStreamSynchronize:
	case MD_SWAP_INDEX_cuStreamSynchronize_ptsz:
	case MD_SWAP_INDEX_cuStreamQuery:
	case MD_SWAP_INDEX_cuStreamQuery_ptsz:
	case MD_SWAP_INDEX_cuEventSynchronize:
	case MD_SWAP_INDEX_cuEventQuery:
	case MD_SWAP_INDEX_cuEventElapsedTime:
	case MD_SWAP_INDEX_cuEventElapsedTime_v2:
		return true;
	case MD_SWAP_INDEX_cuMemGetInfo_v2:
		return atomic_load(&asked_for);
	default:
		return false;
	}
}

/* A call that passes is made outside of the gate, so that closing does not wait for it. */
CUresult md_swap_gate_wait(struct md_swap_slot *slot, enum md_swap_index index)
{
	int error = errno;
	uint32_t state;
	do {
		atomic_store_explicit(&slot->inside, 0, memory_order_release);
		while ((state = atomic_load(&md_swap_gate_state)) == CLOSED) {
			if (passes(index))
				return CUDA_SUCCESS;
			wait_while(CLOSED);
		}
		if (state == ABANDONED) {
			linger();
			slot->depth = 0;
			errno = error;
			return CUDA_ERROR_DEINITIALIZED;
		}
		atomic_store(&slot->inside, (uint32_t)index + 1);
		atomic_thread_fence(memory_order_seq_cst);
	} while (atomic_load(&md_swap_gate_state) != OPEN);
	errno = error;
	return CUDA_SUCCESS;
}

/* ---- stream captures ---- */

struct capture {
	CUstream stream; /* as stream_key has it */
	CUcontext context;
};

static pthread_mutex_t captures_lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture *captures MD_GUARDED_BY(captures_lock);
static size_t captures_count MD_GUARDED_BY(captures_lock), captures_room MD_GUARDED_BY(captures_lock);
static atomic_uint capture_count; /* the same, for readers without the lock */

/* The default stream of each thread has one and the same handle. */
static CUstream stream_key(CUstream stream)
{
	return stream == CU_STREAM_PER_THREAD ? (CUstream)md_swap_own_slot : stream;
}

void md_swap_gate_capture_begins(CUstream stream, CUcontext context)
{
	pthread_mutex_lock(&captures_lock);
	if (MD_ARRAY_GROW(captures, captures_count, captures_room)) {
		captures[captures_count++] = (struct capture){stream_key(stream), context};
		atomic_store(&capture_count, (unsigned)captures_count);
	}
	pthread_mutex_unlock(&captures_lock);
}

static void forget_captures(CUstream key, CUcontext context)
{
	if (!atomic_load(&capture_count))
		return;
	pthread_mutex_lock(&captures_lock);
	for (size_t i = captures_count; i--;)
		if (key ? captures[i].stream == key : captures[i].context == context)
			captures[i] = captures[--captures_count];
	atomic_store(&capture_count, (unsigned)captures_count);
	pthread_mutex_unlock(&captures_lock);
}

void md_swap_gate_capture_ends(CUstream stream)
{
	if (stream)
		forget_captures(stream_key(stream), NULL);
}

void md_swap_gate_captures_gone(CUcontext context)
{
	forget_captures(NULL, context);
}

unsigned md_swap_gate_captures(void)
{
	return atomic_load(&capture_count);
}

/* ---- closing ---- */

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static unsigned long long milliseconds(uint64_t ns)
{
	return (unsigned long long)(ns / 1000000);
}

static enum md_status say_inside(const struct md_swap_slot *slot, uint32_t inside, uint64_t begun, struct md_error *err)
{
	return md_error_set(err, MD_ERR_TIMEOUT,
			    "%s, called by thread %d, did not end within %llu ms: the memory stays with the engine",
			    entry_names[inside - 1], atomic_load(&slot->thread), milliseconds(md_clock_ns() - begun));
}

static enum md_status await_calls(uint64_t begun, uint64_t deadline_ns, struct md_error *err)
{
	for (const struct md_swap_slot *slot = atomic_load(&slots); slot; slot = slot->next) {
		uint32_t inside;
		while ((inside = atomic_load(&slot->inside)) != 0) {
			if (md_clock_ns() - begun >= deadline_ns)
				return say_inside(slot, inside, begun, err);
			nap();
		}
	}
	return MD_OK;
}

static enum md_status await_captures(uint64_t begun, uint64_t deadline_ns, struct md_error *err)
{
	while (md_swap_gate_captures()) {
		if (md_clock_ns() - begun >= deadline_ns)
			return md_error_set(err, MD_ERR_TIMEOUT,
					    "cuStreamEndCapture did not come for %u streams that are being captured, "
					    "within %llu ms: the memory stays with the engine",
					    md_swap_gate_captures(), milliseconds(deadline_ns));
		nap();
	}
	return MD_OK;
}

/* A capture that began before the gate closed goes on, and the gate is closed after it. */
static enum md_status shut(uint64_t begun, uint64_t deadline_ns, struct md_error *err)
{
	for (;;) {
		MD_FORWARD(await_captures(begun, deadline_ns, err));
		atomic_store(&md_swap_gate_state, CLOSED);
		atomic_thread_fence(memory_order_seq_cst);
		enum md_status status = await_calls(begun, deadline_ns, err);
		if (status == MD_OK && !md_swap_gate_captures())
			return MD_OK;
		md_swap_gate_open();
		MD_FORWARD(status);
	}
}

static enum md_status close_locked(uint64_t deadline_ns, struct md_error *err)
{
	uint64_t begun = md_clock_ns();
	if (md_swap_gate_is_closed())
		return md_error_set(err, MD_ERR_BUSY, "the gate is closed already: the memory is out, or on its way");
	MD_FORWARD(shut(begun, deadline_ns, err));
	enum md_status status = md_swap_drain(begun, deadline_ns, err);
	if (status != MD_OK)
		md_swap_gate_open();
	return status;
}

enum md_status md_swap_gate_close(uint64_t deadline_ns, struct md_error *err)
{
	md_child_check();
	pthread_mutex_lock(&close_lock);
	enum md_status status = close_locked(deadline_ns, err);
	pthread_mutex_unlock(&close_lock);
	return status;
}

/* ---- for a moment, by a thread of the engine ---- */

static _Thread_local uint32_t own_call __attribute__((tls_model("initial-exec"))); /* which it is inside; 0: none */

static void step_out(void)
{
	struct md_swap_slot *slot = md_swap_own_slot;
	own_call = slot ? atomic_load(&slot->inside) : 0;
	if (own_call)
		atomic_store_explicit(&slot->inside, 0, memory_order_release);
}

/* A process that ends meanwhile has its calls fail in the driver. */
static void step_in(void)
{
	struct md_swap_slot *slot = md_swap_own_slot;
	if (own_call && md_swap_gate_wait(slot, (enum md_swap_index)(own_call - 1)) != CUDA_SUCCESS)
		slot->depth = 1;
	own_call = 0;
}

enum md_status md_swap_gate_close_briefly(uint64_t deadline_ns, struct md_error *err) MD_LOCKS_UNCHECKED
{
	md_child_check();
	if (md_swap_own_slot && md_swap_own_slot->depth > 1)
		return md_error_set(err, MD_ERR_BUSY, "%s was called by another call", md_swap_gate_call());
	if (md_swap_gate_captures())
		return md_error_set(err, MD_ERR_BUSY, "%u streams are being captured", md_swap_gate_captures());
	step_out();
	pthread_mutex_lock(&close_lock);
	enum md_status status = close_locked(deadline_ns, err);
	if (status == MD_OK)
		return MD_OK;
	pthread_mutex_unlock(&close_lock);
	step_in();
	return status;
}

void md_swap_gate_open_again(void) MD_LOCKS_UNCHECKED
{
	md_swap_gate_open();
	pthread_mutex_unlock(&close_lock);
	step_in();
}

void md_swap_gate_asked_for(bool by_engine)
{
	atomic_store(&asked_for, by_engine);
	if (by_engine)
		syscall(SYS_futex, &md_swap_gate_state, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void md_swap_gate_open(void)
{
	atomic_store(&asked_for, false);
	if (atomic_load(&md_swap_gate_state) == CLOSED)
		publish(OPEN);
}

bool md_swap_gate_is_closed(void)
{
	return atomic_load(&md_swap_gate_state) != OPEN;
}

void md_swap_gate_abandon(void)
{
	own_leaves = true;
	atomic_store(&abandoned_until, md_clock_ns() + LINGER_NS);
	publish(ABANDONED);
}

/* A child has neither the device nor the other threads: its calls fail in the driver, and none of them waits. */
static void renew(void) MD_LOCKS_UNCHECKED
{
	pthread_mutex_init(&close_lock, NULL);
	pthread_mutex_init(&captures_lock, NULL);
	captures_count = 0;
	atomic_store(&capture_count, 0);
	atomic_store(&md_swap_gate_state, OPEN);
	for (struct md_swap_slot *slot = atomic_load(&slots); slot; slot = slot->next)
		if (slot != md_swap_own_slot) {
			slot->depth = 0;
			atomic_store(&slot->inside, 0);
			atomic_store(&slot->taken, false);
		}
}

__attribute__((constructor(MD_LOADED_SETTINGS))) static void watch_children(void)
{
	static struct md_child_renewal own = {.renew = renew};
	md_child_register(&own);
}
