/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events: work is asynchronous, ordered where CUDA orders it, and only there. */
#include <unistd.h>

#include "base/clock.h"
#include "tests/hostcuda_fixture.h"

static int *flag; /* pinned: what wait_flag waits for */

static void open_with_flag(void)
{
	device_open();
	ok(md_cuda.cuMemHostAlloc((void **)&flag, sizeof(*flag), CU_MEMHOSTALLOC_DEVICEMAP));
	*flag = 0;
}

static void close_with_flag(void)
{
	ok(md_cuda.cuMemFreeHost(flag));
	device_close();
}

TestSuite(hostcuda_stream, .init = open_with_flag, .fini = close_with_flag, .timeout = 600);

static void raise_flag(int value)
{
	__atomic_store_n(flag, value, __ATOMIC_RELEASE);
}

/* *out = *flag once that is not 0: holds the stream up until the test raises the flag. */
static void launch_wait(CUmodule module, CUstream stream, CUdeviceptr out)
{
	CUdeviceptr in;
	ok(md_cuda.cuMemHostGetDevicePointer_v2(&in, flag, 0));
	void *params[] = {&out, &in};
	ok(md_cuda.cuLaunchKernel(function_named(module, "wait_flag"), 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static CUstream stream_with(unsigned flags)
{
	CUstream stream;
	ok(md_cuda.cuStreamCreate(&stream, flags));
	return stream;
}

Test(hostcuda_stream, launches_return_before_they_are_done)
{
	CUmodule module = load_whole_module();
	CUdeviceptr out = device_ints(0, 1);
	CUstream stream = stream_with(CU_STREAM_NON_BLOCKING);
	CUevent event;
	ok(md_cuda.cuEventCreate(&event, 0));
	launch_wait(module, stream, out);
	ok(md_cuda.cuEventRecord(event, stream));
	refused(CUDA_ERROR_NOT_READY, md_cuda.cuStreamQuery(stream));
	refused(CUDA_ERROR_NOT_READY, md_cuda.cuEventQuery(event));
	raise_flag(3);
	ok(md_cuda.cuEventSynchronize(event));
	ok(md_cuda.cuEventQuery(event));
	ok(md_cuda.cuStreamSynchronize(stream));
	ok(md_cuda.cuStreamQuery(stream));
	assert_ints(out, 1, 3);
	ok(md_cuda.cuEventDestroy_v2(event));
	ok(md_cuda.cuStreamDestroy_v2(stream));
	ok(md_cuda.cuMemFree_v2(out));
	ok(md_cuda.cuModuleUnload(module));
}

Test(hostcuda_stream, streams_do_not_wait_for_each_other_unless_told)
{
	CUmodule module = load_whole_module();
	CUdeviceptr out = device_ints(0, 1), x = device_ints(2, 64);
	CUstream held = stream_with(CU_STREAM_NON_BLOCKING), free_one = stream_with(CU_STREAM_NON_BLOCKING);
	CUfunction scale = function_named(module, "scale");
	CUevent event;
	ok(md_cuda.cuFuncLoad(scale)); /* a lazy load would wait for the kernel that waits */
	ok(md_cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	launch_wait(module, held, out);
	ok(md_cuda.cuEventRecord(event, held));
	ok(launch_scale(scale, free_one, x, 2, 64));
	ok(md_cuda.cuStreamSynchronize(free_one));
	ok(md_cuda.cuStreamWaitEvent(free_one, event, 0));
	ok(launch_scale(scale, free_one, x, 2, 64));
	usleep(20000);
	refused(CUDA_ERROR_NOT_READY, md_cuda.cuStreamQuery(free_one));
	raise_flag(1);
	ok(md_cuda.cuStreamSynchronize(free_one));
	assert_ints(x, 64, 8);
	ok(md_cuda.cuEventDestroy_v2(event));
	ok(md_cuda.cuStreamDestroy_v2(held));
	ok(md_cuda.cuStreamDestroy_v2(free_one));
	ok(md_cuda.cuMemFree_v2(out));
	ok(md_cuda.cuMemFree_v2(x));
	ok(md_cuda.cuModuleUnload(module));
}

Test(hostcuda_stream, the_legacy_stream_waits_for_blocking_streams_alone)
{
	CUmodule module = load_whole_module();
	CUdeviceptr out = device_ints(0, 1), x = device_ints(2, 1);
	CUstream blocking = stream_with(CU_STREAM_DEFAULT), apart = stream_with(CU_STREAM_NON_BLOCKING);
	launch_wait(module, blocking, out);
	ok(md_cuda.cuMemsetD32Async(x, 5, 1, NULL));
	ok(md_cuda.cuMemsetD32Async(out, 8, 1, apart));
	ok(md_cuda.cuStreamSynchronize(apart));
	usleep(20000);
	refused(CUDA_ERROR_NOT_READY, md_cuda.cuStreamQuery(NULL));
	raise_flag(1);
	ok(md_cuda.cuStreamSynchronize(NULL));
	assert_ints(x, 1, 5);
	assert_ints(out, 1, 1);
	ok(md_cuda.cuStreamDestroy_v2(blocking));
	ok(md_cuda.cuStreamDestroy_v2(apart));
	ok(md_cuda.cuMemFree_v2(out));
	ok(md_cuda.cuMemFree_v2(x));
	ok(md_cuda.cuModuleUnload(module));
}

Test(hostcuda_stream, a_missing_synchronisation_shows)
{
	CUmodule module = load_whole_module();
	CUdeviceptr out = device_ints(0, 1);
	CUstream stream = stream_with(CU_STREAM_NON_BLOCKING);
	int *back;
	ok(md_cuda.cuMemHostAlloc((void **)&back, sizeof(*back), 0));
	*back = -1;
	launch_wait(module, stream, out);
	ok(md_cuda.cuMemcpyDtoHAsync_v2(back, out, sizeof(*back), stream));
	cr_assert_eq(__atomic_load_n(back, __ATOMIC_ACQUIRE), -1, "the copy ran ahead");
	raise_flag(6);
	ok(md_cuda.cuStreamSynchronize(stream));
	cr_assert_eq(*back, 6);
	ok(md_cuda.cuMemFreeHost(back));
	ok(md_cuda.cuStreamDestroy_v2(stream));
	ok(md_cuda.cuMemFree_v2(out));
	ok(md_cuda.cuModuleUnload(module));
}

Test(hostcuda_stream, a_small_pageable_source_may_change_after_the_call)
{
	CUmodule module = load_whole_module();
	CUdeviceptr out = device_ints(0, 1), x = device_ints(0, 1);
	CUstream stream = stream_with(CU_STREAM_NON_BLOCKING);
	int source = 12;
	launch_wait(module, stream, out);
	ok(md_cuda.cuMemcpyHtoDAsync_v2(x, &source, sizeof(source), stream));
	source = 99;
	raise_flag(1);
	ok(md_cuda.cuStreamSynchronize(stream));
	assert_ints(x, 1, 12);
	ok(md_cuda.cuStreamDestroy_v2(stream));
	ok(md_cuda.cuMemFree_v2(out));
	ok(md_cuda.cuMemFree_v2(x));
	ok(md_cuda.cuModuleUnload(module));
}

static void add_one(void *count)
{
	++*(int *)count;
}

static void note_status(CUstream stream, CUresult status, void *seen)
{
	(void)stream;
	*(CUresult *)seen = status;
}

Test(hostcuda_stream, host_functions_run_in_order)
{
	CUstream stream = stream_with(CU_STREAM_DEFAULT);
	CUresult seen = CUDA_ERROR_UNKNOWN;
	int count = 0;
	for (int i = 0; i < 10; i++)
		ok(md_cuda.cuLaunchHostFunc(stream, add_one, &count));
	ok(md_cuda.cuStreamAddCallback(stream, note_status, &seen, 0));
	ok(md_cuda.cuStreamSynchronize(stream));
	cr_assert_eq(count, 10);
	cr_assert_eq(seen, CUDA_SUCCESS);
	ok(md_cuda.cuStreamDestroy_v2(stream));
}

Test(hostcuda_stream, events_measure_time)
{
	CUmodule module = load_whole_module();
	CUdeviceptr out = device_ints(0, 1);
	CUstream stream = stream_with(CU_STREAM_NON_BLOCKING);
	CUevent start, end, silent;
	float ms;
	ok(md_cuda.cuEventCreate(&start, 0));
	ok(md_cuda.cuEventCreate(&end, 0));
	ok(md_cuda.cuEventCreate(&silent, CU_EVENT_DISABLE_TIMING));
	uint64_t before = md_clock_ns(), started;
	ok(md_cuda.cuEventRecord(start, stream));
	ok(md_cuda.cuEventSynchronize(start)); /* else a busy machine may reach it only after the sleep */
	started = md_clock_ns();
	launch_wait(module, stream, out);
	ok(md_cuda.cuEventRecord(end, stream));
	refused(CUDA_ERROR_NOT_READY, md_cuda.cuEventElapsedTime(&ms, start, end));
	usleep(30000);
	double least = (double)(md_clock_ns() - started) / 1e6;
	raise_flag(1);
	ok(md_cuda.cuEventSynchronize(end));
	double most = (double)(md_clock_ns() - before) / 1e6;
	ok(md_cuda.cuEventElapsedTime(&ms, start, end));
	cr_assert(ms >= least - 1 && ms <= most + 1, "%f ms, not from %f to %f", ms, least, most);
	ok(md_cuda.cuEventRecord(silent, stream));
	ok(md_cuda.cuEventSynchronize(silent));
	refused(CUDA_ERROR_INVALID_HANDLE, md_cuda.cuEventElapsedTime(&ms, start, silent));
	ok(md_cuda.cuEventDestroy_v2(start));
	ok(md_cuda.cuEventDestroy_v2(end));
	ok(md_cuda.cuEventDestroy_v2(silent));
	ok(md_cuda.cuStreamDestroy_v2(stream));
	ok(md_cuda.cuMemFree_v2(out));
	ok(md_cuda.cuModuleUnload(module));
}

Test(hostcuda_stream, per_thread_entries_use_a_stream_of_their_own)
{
	CUmodule module = load_whole_module();
	CUdeviceptr out = device_ints(0, 1), x = device_ints(1, 1);
	CUstream apart = stream_with(CU_STREAM_NON_BLOCKING);
	unsigned flags;
	launch_wait(module, apart, out);
	ok(md_cuda.cuMemsetD32Async_ptsz(x, 4, 1, NULL));
	ok(md_cuda.cuStreamSynchronize_ptsz(NULL));
	ok(md_cuda.cuStreamGetFlags(CU_STREAM_PER_THREAD, &flags));
	cr_assert_eq(flags, CU_STREAM_DEFAULT);
	raise_flag(1);
	ok(md_cuda.cuStreamSynchronize(apart));
	assert_ints(x, 1, 4);
	ok(md_cuda.cuStreamDestroy_v2(apart));
	ok(md_cuda.cuMemFree_v2(out));
	ok(md_cuda.cuMemFree_v2(x));
	ok(md_cuda.cuModuleUnload(module));
}

Test(hostcuda_stream, should_fail_stale_handles)
{
	CUstream stream = stream_with(0);
	only_on_hostcuda("a real driver may crash on stale handles");
	ok(md_cuda.cuStreamDestroy_v2(stream));
	refused(CUDA_ERROR_INVALID_HANDLE, md_cuda.cuStreamSynchronize(stream));
	refused(CUDA_ERROR_INVALID_HANDLE, md_cuda.cuStreamDestroy_v2(stream));
	refused(CUDA_ERROR_INVALID_HANDLE, md_cuda.cuEventSynchronize((CUevent)flag));
}

/* Each waits for all others, so there is a thread for each: when threads start, and when all have slept. */
Test(hostcuda_stream, blocks_of_a_launch_run_at_once)
{
	enum { BLOCKS = 16 };
	setenv("HOSTCUDA_THREADS", "16", 1);
	CUmodule module = load_whole_module();
	CUfunction meet = function_named(module, "meet");
	CUdeviceptr there = device_ints(0, 1), met = device_ints(0, BLOCKS);
	void *params[] = {&there, &met};
	for (unsigned round = 0; round < 3; round++) {
		ok(md_cuda.cuMemsetD32_v2(there, 0, 1));
		ok(md_cuda.cuLaunchKernel(meet, BLOCKS, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
		ok(md_cuda.cuCtxSynchronize());
		assert_ints(met, BLOCKS, BLOCKS);
		usleep(20000);
	}
	ok(md_cuda.cuMemFree_v2(there));
	ok(md_cuda.cuMemFree_v2(met));
	ok(md_cuda.cuModuleUnload(module));
}
