/* SPDX-License-Identifier: Apache-2.0 */
/* The gate lets no call touch the device while it is closed, refuses by name, and never keeps anybody for ever. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "swap/gate.h"
#include "swap/layer.h"
#include "swap/swap_memory.h"
#include "tests/hostcuda_fixture.h"

#define MS 1000000ull

static CUcontext context;

static void set_up(void)
{
	device_open();
	struct md_cuda table = md_swap_real;
	md_swap_layer(&table); /* the reference brings the layer into this program */
	ok(md_cuda.cuCtxGetCurrent(&context));
}

TestSuite(swap_gate, .init = set_up, .timeout = 60);

static void fine(enum md_status status, const struct md_error *err)
{
	cr_assert_eq(status, MD_OK, "%s", err->message);
}

static void close_gate(void)
{
	struct md_error err = {0};
	fine(md_swap_gate_close(10000 * MS, &err), &err);
}

static void assert_not_closed(uint64_t deadline_ms, const char *name)
{
	struct md_error err = {0};
	cr_assert_eq(md_swap_gate_close(deadline_ms * MS, &err), MD_ERR_TIMEOUT, "the gate was closed");
	cr_assert(strstr(err.message, name), "\"%s\" does not name %s", err.message, name);
	cr_assert(!md_swap_gate_is_closed(), "the gate stays closed after a refusal");
}

static void nap(unsigned ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* ---- a thread of the engine ---- */

static _Atomic(int) calls, last_result;

static void *set_once(void *address)
{
	cr_assert_eq(md_cuda.cuCtxSetCurrent(context), CUDA_SUCCESS);
	atomic_store(&last_result, (int)md_cuda.cuMemsetD8_v2((CUdeviceptr)(uintptr_t)address, 1, 64));
	atomic_fetch_add(&calls, 1);
	return NULL;
}

Test(swap_gate, a_call_waits_while_the_gate_is_closed)
{
	CUdeviceptr x = device_ints(0, 64);
	pthread_t thread;
	close_gate();
	struct md_error err;
	cr_assert_eq(md_swap_gate_close(MS, &err), MD_ERR_BUSY, "the gate was closed twice");
	pthread_create(&thread, NULL, set_once, (void *)(uintptr_t)x);
	nap(100);
	cr_assert_eq(atomic_load(&calls), 0, "the call passed the closed gate");
	md_swap_gate_open();
	pthread_join(thread, NULL);
	cr_assert_eq(atomic_load(&last_result), CUDA_SUCCESS, "the call failed: %d", atomic_load(&last_result));
}

static void ask_for_the_end_of_work(CUstream stream, CUevent event)
{
	float ms;
	ok(md_cuda.cuCtxSynchronize());
	ok(md_cuda.cuStreamSynchronize(stream));
	ok(md_cuda.cuStreamQuery(stream));
	ok(md_cuda.cuStreamSynchronize_ptsz(stream));
	ok(md_cuda.cuStreamQuery_ptsz(stream));
	ok(md_cuda.cuEventSynchronize(event));
	ok(md_cuda.cuEventQuery(event));
	ok(md_cuda.cuEventElapsedTime(&ms, event, event));
}

Test(swap_gate, calls_that_ask_for_the_end_of_work_do_not_wait)
{
	CUstream stream;
	CUevent event;
	ok(md_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(md_cuda.cuEventCreate(&event, 0));
	ok(md_cuda.cuEventRecord(event, stream));
	close_gate();
	alarm(60);
	ask_for_the_end_of_work(stream, event);
	alarm(0);
	md_swap_gate_open();
	ask_for_the_end_of_work(stream, event);
	close_gate(); /* calls that have passed are not taken for calls inside */
	md_swap_gate_open();
}

static atomic_bool polled_enough;
static atomic_uint polls;

static void *poll_always(void *event)
{
	ok(md_cuda.cuCtxSetCurrent(context));
	while (!atomic_load(&polled_enough)) {
		ok(md_cuda.cuEventQuery(event));
		atomic_fetch_add(&polls, 1);
	}
	return NULL;
}

Test(swap_gate, a_thread_that_polls_neither_waits_nor_keeps_the_gate_open)
{
	pthread_t thread;
	CUevent event;
	ok(md_cuda.cuEventCreate(&event, 0));
	ok(md_cuda.cuEventRecord(event, NULL));
	ok(md_cuda.cuEventSynchronize(event));
	pthread_create(&thread, NULL, poll_always, event);
	for (int i = 0; i < 20; i++) {
		close_gate();
		unsigned before = atomic_load(&polls);
		for (int wait = 0; wait < 500 && atomic_load(&polls) == before; wait++)
			nap(10);
		cr_assert_neq(atomic_load(&polls), before, "the thread waits at the closed gate");
		md_swap_gate_open();
	}
	atomic_store(&polled_enough, true);
	pthread_join(thread, NULL);
}

static void *ask_what_is_free(void *unused)
{
	size_t free_bytes, total;
	(void)unused;
	md_cuda.cuCtxSetCurrent(context);
	atomic_store(&last_result, md_cuda.cuMemGetInfo_v2(&free_bytes, &total));
	atomic_fetch_add(&calls, 1);
	return NULL;
}

Test(swap_gate, what_is_free_is_said_if_the_engine_has_asked_to_go_out)
{
	pthread_t thread;
	for (int round = 0; round < 2; round++) {
		unsigned before = atomic_load(&calls);
		close_gate();
		pthread_create(&thread, NULL, ask_what_is_free, NULL);
		nap(100);
		cr_assert_eq(atomic_load(&calls), before, "the call passed the closed gate");
		md_swap_gate_asked_for(true); /* a call that waits already goes on, too */
		pthread_join(thread, NULL);
		cr_assert_eq(atomic_load(&last_result), CUDA_SUCCESS, "%d", atomic_load(&last_result));
		md_swap_gate_open();
	}
}

Test(swap_gate, an_abandoned_gate_sends_everybody_away)
{
	CUdeviceptr x = device_ints(0, 64);
	pthread_t thread;
	close_gate();
	pthread_create(&thread, NULL, set_once, (void *)(uintptr_t)x);
	nap(50);
	md_swap_gate_abandon();
	pthread_join(thread, NULL);
	cr_assert_eq(atomic_load(&last_result), CUDA_ERROR_DEINITIALIZED, "%d", atomic_load(&last_result));
	refused(CUDA_ERROR_DEINITIALIZED, md_cuda.cuMemFree_v2(x));
}

/* ---- work that does not end ---- */

struct stuck {
	CUstream stream, other;
	CUdeviceptr flag;
};

static struct stuck start_stuck(void)
{
	struct stuck stuck;
	CUdeviceptr out = device_ints(0, 64);
	stuck.flag = device_ints(0, 64);
	CUfunction wait_flag = function_named(load_whole_module(), "wait_flag");
	ok(md_cuda.cuStreamCreate(&stuck.stream, CU_STREAM_NON_BLOCKING));
	ok(md_cuda.cuStreamCreate(&stuck.other, CU_STREAM_NON_BLOCKING));
	void *params[] = {&out, &stuck.flag};
	ok(md_cuda.cuLaunchKernel(wait_flag, 1, 1, 1, 1, 1, 1, 0, stuck.stream, params, NULL));
	return stuck;
}

static void end_stuck(const struct stuck *stuck)
{
	ok(md_cuda.cuMemsetD32Async(stuck->flag, 1, 1, stuck->other));
	ok(md_cuda.cuStreamSynchronize(stuck->stream));
}

Test(swap_gate, work_that_does_not_end_is_named)
{
	struct stuck stuck = start_stuck();
	assert_not_closed(50, "cuCtxSynchronize");
	assert_not_closed(50, "cuCtxSynchronize"); /* while the first wait is not over */
	end_stuck(&stuck);
	close_gate();
	md_swap_gate_open();
}

static void *synchronize(void *stream)
{
	md_cuda.cuCtxSetCurrent(context);
	md_cuda.cuStreamSynchronize(stream);
	return NULL;
}

Test(swap_gate, a_call_that_does_not_end_is_named)
{
	struct stuck stuck = start_stuck();
	pthread_t thread;
	pthread_create(&thread, NULL, synchronize, stuck.stream);
	nap(50);
	assert_not_closed(50, "cuStreamSynchronize");
	end_stuck(&stuck);
	pthread_join(thread, NULL);
	close_gate();
	md_swap_gate_open();
}

Test(swap_gate, a_capture_goes_on_and_is_named)
{
	CUdeviceptr x = device_ints(3, 64);
	CUfunction scale = function_named(load_whole_module(), "scale");
	CUgraphExec exec;
	CUgraph graph;
	CUstream stream;
	ok(md_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(md_cuda.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ok(launch_scale(scale, stream, x, 2, 64));
	assert_not_closed(50, "cuStreamEndCapture");
	ok(launch_scale(scale, stream, x, 5, 64));
	ok(md_cuda.cuStreamEndCapture(stream, &graph));
	ok(md_cuda.cuGraphInstantiateWithFlags(&exec, graph, 0));
	close_gate();
	md_swap_gate_open();
	ok(md_cuda.cuGraphLaunch(exec, stream));
	ok(md_cuda.cuStreamSynchronize(stream));
	assert_ints(x, 64, 30);
	ok(md_cuda.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(md_cuda.cuStreamDestroy_v2(stream)); /* ends its capture, too */
	close_gate();
	md_swap_gate_open();
}

static void begin_capture(CUstream *stream)
{
	ok(md_cuda.cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
	ok(md_cuda.cuStreamBeginCapture_v2(*stream, CU_STREAM_CAPTURE_MODE_RELAXED));
}

Test(swap_gate, a_capture_ends_with_its_context)
{
	CUcontext other, again;
	CUstream stream;
	ok(md_cuda.cuCtxCreate_v2(&other, 0, 0));
	begin_capture(&stream);
	assert_not_closed(50, "1 stream");
	ok(md_cuda.cuCtxDestroy_v2(other));
	close_gate();
	md_swap_gate_open();
	ok(md_cuda.cuCtxSetCurrent(context));
	begin_capture(&stream);
	ok(md_cuda.cuDevicePrimaryCtxReset_v2(0));
	ok(md_cuda.cuDevicePrimaryCtxRetain(&again, 0));
	close_gate();
	md_swap_gate_open();
	cr_assert_eq(md_swap_gate_captures(), 0, "%u captures", md_swap_gate_captures());
}

/* A stream in it is captured meanwhile; the context, the memory and the other work of the process live on. */
Test(swap_gate, a_capture_ends_with_its_green_context)
{
	CUgreenCtx green = make_green(0);
	CUdeviceptr x;
	CUcontext as_context;
	CUstream stream;
	ok(md_cuda.cuCtxFromGreenCtx(&as_context, green));
	for (int by_current = 0; by_current < 2; by_current++) {
		if (by_current)
			ok(md_cuda.cuCtxSetCurrent(as_context));
		x = device_ints(3, 64);
		if (by_current)
			ok(md_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		else
			ok(md_cuda.cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
		close_gate();
		md_swap_gate_open();
		ok(md_cuda.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
		assert_not_closed(50, "1 stream");
		ok(md_cuda.cuCtxSetCurrent(context));
		ok(md_cuda.cuGreenCtxDestroy(green));
		cr_assert_eq(md_swap_gate_captures(), 0, "%u captures", md_swap_gate_captures());
		close_gate();
		md_swap_gate_open();
		assert_ints(x, 64, 3);
		green = make_green(0);
		ok(md_cuda.cuCtxFromGreenCtx(&as_context, green));
	}
	ok(md_cuda.cuGreenCtxDestroy(green));
	close_gate();
	md_swap_gate_open();
}

static void *capture_for_ever(void *unused)
{
	cr_assert_eq(md_cuda.cuCtxSetCurrent(context), CUDA_SUCCESS);
	cr_assert_eq(md_cuda.cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED),
		     CUDA_SUCCESS);
	return unused;
}

Test(swap_gate, a_capture_of_a_threads_default_stream_ends_with_the_thread)
{
	pthread_t thread;
	cr_assert_not(pthread_create(&thread, NULL, capture_for_ever, NULL));
	pthread_join(thread, NULL);
	cr_assert_eq(md_swap_gate_captures(), 0, "%u captures", md_swap_gate_captures());
}

Test(swap_gate, captures_are_counted_however_many_there_are)
{
	enum { MANY = 300 };
	static CUstream streams[MANY];
	CUgraph graph;
	for (int i = 0; i < MANY; i++)
		begin_capture(&streams[i]);
	assert_not_closed(50, "300 streams");
	for (int i = 1; i < MANY; i++)
		ok(md_cuda.cuStreamEndCapture(streams[i], &graph));
	assert_not_closed(50, "1 stream");
	ok(md_cuda.cuStreamEndCapture(streams[0], &graph));
	close_gate();
	md_swap_gate_open();
}

/* ---- threads that launch all the time ---- */

#define THREADS 4
#define ROUNDS 3000

static CUfunction add_bias;
static atomic_bool stop;

static void *launch_always(void *unused)
{
	CUdeviceptr x;
	CUstream stream;
	int n = 1 << 16, rounds = 0, *back = malloc((size_t)n * 4);
	(void)unused;
	ok(md_cuda.cuCtxSetCurrent(context));
	ok(md_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(md_cuda.cuMemAlloc_v2(&x, (size_t)n * 4));
	ok(md_cuda.cuMemsetD32Async(x, 1, (size_t)n, stream));
	while (!atomic_load(&stop) && rounds < ROUNDS) {
		void *params[] = {&x, &n};
		ok(md_cuda.cuLaunchKernel(add_bias, (unsigned)n / 64, 1, 1, 64, 1, 1, 0, stream, params, NULL));
		if (++rounds % 16 == 0) {
			CUdeviceptr more;
			ok(md_cuda.cuMemAlloc_v2(&more, 3000000));
			ok(md_cuda.cuMemFree_v2(more));
		}
	}
	ok(md_cuda.cuMemcpyDtoHAsync_v2(back, x, (size_t)n * 4, stream));
	ok(md_cuda.cuStreamSynchronize(stream));
	for (int i = 0; i < n; i++)
		cr_assert_eq(back[i], 1 + 5 * rounds, "element %d is %d after %d rounds", i, back[i], rounds);
	free(back);
	return NULL;
}

static void swap_once(void)
{
	struct md_swap_range *ranges;
	struct md_error err = {0};
	size_t count;
	void *kept[256] = {NULL};
	close_gate();
	fine(md_swap_memory_list(&ranges, &count, &err), &err);
	cr_assert_leq(count, 256);
	for (size_t i = 0; i < count; i++) {
		kept[i] = malloc(ranges[i].bytes);
		ok(md_swap_real.cuMemcpyDtoH_v2(kept[i], ranges[i].address, ranges[i].bytes));
		fine(md_swap_memory_unmap(&ranges[i], &err), &err);
	}
	for (size_t i = 0; i < count; i++) {
		fine(md_swap_memory_map(&ranges[i], &err), &err);
		ok(md_swap_real.cuMemcpyHtoD_v2(ranges[i].address, kept[i], ranges[i].bytes));
		free(kept[i]);
	}
	free(ranges);
	md_swap_gate_open();
}

Test(swap_gate, threads_that_launch_always_lose_nothing)
{
	pthread_t threads[THREADS];
	add_bias = hidden_function(load_whole_module(), "bias");
	for (unsigned i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, launch_always, NULL);
	for (unsigned i = 0; i < 30; i++)
		swap_once();
	atomic_store(&stop, true);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

/* ---- what the gate keeps apart, with no driver in between ---- */

#define CLOSINGS 4000
#define STEPS 512 /* a power of two: what is counted begins anew behind 2^32, on a machine where closing takes long */

/* A plain word: the thread sanitizer says it if two threads touch it and the gate has not put one behind the other. */
static volatile unsigned touched;
static atomic_uint came; /* relaxed, as the word below, so that the gate alone puts them in order */
static atomic_bool touched_enough;

static CUresult touch(void)
{
	atomic_fetch_add_explicit(&came, 1, memory_order_relaxed);
	for (unsigned i = 0; i < STEPS; i++)
		touched++;
	return CUDA_SUCCESS;
}

static void *touch_always(void *unused)
{
	(void)unused;
	while (!atomic_load_explicit(&touched_enough, memory_order_relaxed))
		ok(MD_SWAP_GATED(cuMemFree_v2, touch()));
	return NULL;
}

static void touch_while_closed(void)
{
	unsigned last = atomic_load_explicit(&came, memory_order_relaxed);
	while (atomic_load_explicit(&came, memory_order_relaxed) - last < 2)
		sched_yield();
	close_gate();
	unsigned before = touched++;
	cr_assert_eq(touched, before + 1, "a thread was inside the closed gate");
	cr_assert_eq(before % STEPS, 0, "a call was half done when the gate had closed");
	touched--;
	md_swap_gate_open();
}

/* With one thread: a call that slips in ends while the gate waits for others. A gate without its fence fails in some runs only. */
Test(swap_gate_alone, nobody_is_inside_while_it_is_closed, .timeout = 600)
{
	pthread_t thread;
	pthread_create(&thread, NULL, touch_always, NULL);
	for (unsigned i = 0; i < CLOSINGS; i++)
		touch_while_closed();
	atomic_store(&touched_enough, true);
	pthread_join(thread, NULL);
}
