/* SPDX-License-Identifier: Apache-2.0 */
/* The ways in: symbols, cuGetProcAddress by version and kind, the gate, named faults, contexts, tensor maps. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hostcuda_fixture.h"

static void load(void)
{
	struct md_error err;
	cr_assert_eq(md_cuda_load(&err), MD_OK, "%s", err.message);
}

static void *driver_symbol(const char *name)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	cr_assert_not_null(library, "%s", dlerror());
	return dlsym(library, name);
}

static void *proc(const char *name, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	void *found = NULL;
	md_cuda.cuGetProcAddress_v2(name, &found, version, flags, status);
	return found;
}

Test(hostcuda_entry, lookup_picks_version_and_kind)
{
	static const struct {
		const char *base;
		int version;
		cuuint64_t flags;
		const char *symbol; /* NULL: none */
		CUdriverProcAddressQueryResult status;
	} cases[] = {
	    {"cuMemAlloc", 12000, 0, "cuMemAlloc_v2", CU_GET_PROC_ADDRESS_SUCCESS},
	    {"cuStreamGetCaptureInfo", 12000, 0, "cuStreamGetCaptureInfo_v2", CU_GET_PROC_ADDRESS_SUCCESS},
	    {"cuStreamGetCaptureInfo", 12040, 0, "cuStreamGetCaptureInfo_v3", CU_GET_PROC_ADDRESS_SUCCESS},
	    {"cuStreamGetCaptureInfo", 12040, 2, "cuStreamGetCaptureInfo_v3_ptsz", CU_GET_PROC_ADDRESS_SUCCESS},
	    {"cuLaunchKernel", 12000, 1, "cuLaunchKernel", CU_GET_PROC_ADDRESS_SUCCESS},
	    {"cuLaunchKernel", 12000, 2, "cuLaunchKernel_ptsz", CU_GET_PROC_ADDRESS_SUCCESS},
	    {"cuMemAlloc", 12000, 2, "cuMemAlloc_v2", CU_GET_PROC_ADDRESS_SUCCESS},
	    {"cuGetProcAddress", 11030, 0, "cuGetProcAddress", CU_GET_PROC_ADDRESS_SUCCESS},
	    {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2", CU_GET_PROC_ADDRESS_SUCCESS},
	    {"cuFuncGetParamInfo", 11000, 0, NULL, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT},
	    {"cuNoSuchThing", 12000, 0, NULL, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND},
	};
	load();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;
		void *found = proc(cases[i].base, cases[i].version, cases[i].flags, &status);
		cr_assert_eq(found, cases[i].symbol ? driver_symbol(cases[i].symbol) : NULL, "%s for %d, flags %d",
			     cases[i].base, cases[i].version, (int)cases[i].flags);
		cr_assert_eq(status, cases[i].status, "%s for %d: status %d", cases[i].base, cases[i].version,
			     (int)status);
	}
}

Test(hostcuda_entry, the_gate)
{
	int count, version;
	CUdeviceptr address;
	CUcontext context;
	const char *name;
	load();
	ok(md_cuda.cuDriverGetVersion(&version));
	cr_assert_geq(version, 12040);
	refused(CUDA_ERROR_NOT_INITIALIZED, md_cuda.cuDeviceGetCount(&count));
	refused(CUDA_ERROR_NOT_INITIALIZED, md_cuda.cuMemAlloc_v2(&address, 64));
	ok(md_cuda.cuInit(0));
	ok(md_cuda.cuDeviceGetCount(&count));
	refused(CUDA_ERROR_INVALID_CONTEXT, md_cuda.cuMemAlloc_v2(&address, 64));
	refused(CUDA_ERROR_INVALID_DEVICE, md_cuda.cuDevicePrimaryCtxRetain(&context, count));
	ok(md_cuda.cuGetErrorName(CUDA_ERROR_LOSSY_QUERY, &name));
	cr_assert_str_eq(name, "CUDA_ERROR_LOSSY_QUERY");
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuGetErrorName((CUresult)123456, &name));
}

Test(hostcuda_entry, contexts_stack_in_each_thread)
{
	CUcontext one, two, now;
	CUdevice device;
	int active;
	unsigned flags;
	load();
	ok(md_cuda.cuInit(0));
	ok(md_cuda.cuCtxCreate_v2(&one, 0, 0));
	ok(md_cuda.cuCtxCreate_v2(&two, 0, 0));
	ok(md_cuda.cuCtxGetCurrent(&now));
	cr_assert_eq(now, two);
	ok(md_cuda.cuCtxPopCurrent_v2(&now));
	cr_assert_eq(now, two);
	ok(md_cuda.cuCtxGetCurrent(&now));
	cr_assert_eq(now, one);
	ok(md_cuda.cuCtxGetDevice(&device));
	cr_assert_eq(device, 0);
	ok(md_cuda.cuCtxDestroy_v2(two));
	ok(md_cuda.cuCtxDestroy_v2(one));
	ok(md_cuda.cuCtxGetCurrent(&now));
	cr_assert_null(now);
	ok(md_cuda.cuDevicePrimaryCtxGetState(0, &flags, &active));
	cr_assert_eq(active, 0);
	ok(md_cuda.cuDevicePrimaryCtxRetain(&one, 0));
	ok(md_cuda.cuDevicePrimaryCtxGetState(0, &flags, &active));
	cr_assert_eq(active, 1);
	ok(md_cuda.cuDevicePrimaryCtxRelease_v2(0));
}

Test(hostcuda_entry, named_faults_come_when_due)
{
	CUdeviceptr address[4];
	CUstream stream;
	setenv("HOSTCUDA_FAULT", "cuMemAlloc:3:OUT_OF_MEMORY,cuStreamCreate:*:CUDA_ERROR_UNKNOWN", 1);
	device_open();
	only_on_hostcuda("faults are hostcuda's");
	ok(md_cuda.cuMemAlloc_v2(&address[0], 64));
	ok(md_cuda.cuMemAlloc_v2(&address[1], 64));
	refused(CUDA_ERROR_OUT_OF_MEMORY, md_cuda.cuMemAlloc_v2(&address[2], 64));
	ok(md_cuda.cuMemAlloc_v2(&address[2], 64));
	refused(CUDA_ERROR_UNKNOWN, md_cuda.cuStreamCreate(&stream, 0));
	refused(CUDA_ERROR_UNKNOWN, md_cuda.cuStreamCreate(&stream, 0));
	for (int i = 0; i < 3; i++)
		ok(md_cuda.cuMemFree_v2(address[i]));
	device_close();
}

static unsigned failures_of(const char *fault)
{
	unsigned failed = 0;
	int version;
	setenv("HOSTCUDA_FAULT", fault, 1);
	device_open();
	only_on_hostcuda("faults are hostcuda's");
	for (int i = 0; i < 100; i++)
		failed += md_cuda.cuDriverGetVersion(&version) == CUDA_ERROR_OUT_OF_MEMORY;
	device_close();
	return failed;
}

Test(hostcuda_entry, faults_by_caller_come_to_that_one_alone)
{
	cr_assert_eq(failures_of("@test_hostcuda_entry:60:OUT_OF_MEMORY"), 1, "one call of this program");
}

Test(hostcuda_entry, faults_of_another_caller_are_not_ours)
{
	cr_assert_eq(failures_of("@libmedusa-restore.so:*:OUT_OF_MEMORY"), 0, "none of another object");
}

Test(hostcuda_entry, tensor_maps_can_be_moved)
{
	CUtensorMap map __attribute__((aligned(64))), moved __attribute__((aligned(64)));
	const cuuint64_t dims[2] = {64, 32}, strides[1] = {128};
	const cuuint32_t box[2] = {32, 8}, steps[2] = {1, 1};
	CUdeviceptr a, b;
	uint64_t address;
	device_open();
	ok(md_cuda.cuMemAlloc_v2(&a, 8192));
	ok(md_cuda.cuMemAlloc_v2(&b, 8192));
	CUresult encoded = md_cuda.cuTensorMapEncodeTiled(
	    &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void *)(uintptr_t)a, dims, strides, box, steps,
	    CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
	    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
	if (encoded == CUDA_ERROR_NOT_SUPPORTED)
		skip("this device has no tensor maps");
	ok(encoded);
	memcpy(&address, &map, 8);
	cr_assert_eq(address, a);
	ok(md_cuda.cuTensorMapEncodeTiled(&moved, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void *)(uintptr_t)b, dims,
					  strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
					  CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
					  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
	ok(md_cuda.cuTensorMapReplaceAddress(&map, (void *)(uintptr_t)b));
	cr_assert_eq(memcmp(&map, &moved, sizeof(map)), 0, "moved and encoded afresh differ");
	ok(md_cuda.cuMemFree_v2(a));
	ok(md_cuda.cuMemFree_v2(b));
	device_close();
}

/* ---- a child that was forked after cuInit ---- */

static atomic_bool over;

/* Returns NULL, or the name of what failed. */
static void *keep_locks_taken(void *context)
{
	CUdeviceptr memory;
	if (md_cuda.cuCtxSetCurrent(context))
		return "cuCtxSetCurrent";
	while (!atomic_load(&over)) {
		if (md_cuda.cuMemAlloc_v2(&memory, 4096))
			return "cuMemAlloc";
		if (md_cuda.cuMemsetD8_v2(memory, 1, 4096) || md_cuda.cuMemFree_v2(memory))
			return "cuMemsetD8, or cuMemFree";
	}
	return NULL;
}

/* Returns the number of the first call that worked, or 0. A call that waits is ended by the alarm. */
static int try_all(CUdeviceptr memory)
{
	CUdeviceptr own;
	int count;
	alarm(20);
	return md_cuda.cuInit(0) != CUDA_ERROR_NOT_INITIALIZED                               ? 1
	       : md_cuda.cuMemAlloc_v2(&own, 16) != CUDA_ERROR_NOT_INITIALIZED               ? 2
	       : md_cuda.cuMemsetD8_v2(memory, 2, 16) != CUDA_ERROR_NOT_INITIALIZED          ? 3
	       : md_cuda.cuDeviceGetCount(&count) != CUDA_ERROR_NOT_INITIALIZED              ? 4
	       : md_cuda.cuStreamSynchronize(CU_STREAM_LEGACY) != CUDA_ERROR_NOT_INITIALIZED ? 5
											     : 0;
}

Test(hostcuda_entry, no_call_works_in_a_child_and_none_waits, .timeout = 600)
{
	enum { CHILDREN = 100 };
	CUcontext context;
	CUdeviceptr memory;
	pthread_t thread;
	void *failed;
	device_open();
	only_on_hostcuda("what a real driver does in a child is not documented for each call");
	ok(md_cuda.cuCtxGetCurrent(&context));
	ok(md_cuda.cuMemAlloc_v2(&memory, 16));
	cr_assert_eq(pthread_create(&thread, NULL, keep_locks_taken, context), 0);
	for (int i = 0; i < CHILDREN; i++) {
		int status;
		pid_t child = i % 2 ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
		if (!child)
			_exit(try_all(memory));
		cr_assert_eq(waitpid(child, &status, 0), child);
		cr_assert_eq(status, 0, "child %d of %d ended with %#x", i, CHILDREN, (unsigned)status);
	}
	atomic_store(&over, true);
	pthread_join(thread, &failed);
	cr_assert_null(failed, "%s failed in the parent", (char *)failed);
	ok(md_cuda.cuMemFree_v2(memory));
	device_close();
}
