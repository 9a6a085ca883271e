/* SPDX-License-Identifier: Apache-2.0 */
/* What the device tests share: a context on device 0, the arith image, and assertions that name the driver's error. */
#ifndef TESTS_HOSTCUDA_FIXTURE_H
#define TESTS_HOSTCUDA_FIXTURE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/cuda_driver.h"

#define ok(call) assert_result(CUDA_SUCCESS, (call), #call, __LINE__)
#define refused(error, call) assert_result((error), (call), #call, __LINE__)
/* For refusals whose very error nobody documents: hostcuda's is known, any other driver must only refuse. */
#define refused_somehow(error, call) assert_refused((error), (call), #call, __LINE__)

/* Ends a test or its set-up; Criterion itself says no word about skipped tests. */
#define skip(...)                                                                                                      \
	do {                                                                                                           \
		fprintf(stderr, "skipped %s::%s: ", criterion_current_suite->name, criterion_current_test->name);      \
		fprintf(stderr, __VA_ARGS__);                                                                          \
		fputc('\n', stderr);                                                                                   \
		cr_skip();                                                                                             \
	} while (0)

static inline void assert_result(CUresult wanted, CUresult got, const char *call, int line)
{
	cr_assert_eq(got, wanted, "line %d: %s gave %s, not %s", line, call, md_cuda_error_name(got),
		     md_cuda_error_name(wanted));
}

static inline void device_open(void)
{
	struct md_error err;
	CUcontext context;
	cr_assert_eq(md_cuda_load(&err), MD_OK, "%s", err.message);
	ok(md_cuda.cuInit(0));
	ok(md_cuda.cuDevicePrimaryCtxRetain(&context, 0));
	ok(md_cuda.cuCtxSetCurrent(context));
}

/* On a part of the device. */
static inline CUgreenCtx make_green(CUdevice device)
{
	CUdevResource all, part, rest;
	CUdevResourceDesc description;
	CUgreenCtx green;
	unsigned count = 1;
	ok(md_cuda.cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
	ok(md_cuda.cuDevSmResourceSplitByCount(&part, &count, &all, &rest, 0, all.sm.minSmPartitionSize));
	ok(md_cuda.cuDevResourceGenerateDesc(&description, &part, 1));
	ok(md_cuda.cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
	return green;
}

static inline bool on_hostcuda(void)
{
	char name[64];
	ok(md_cuda.cuDeviceGetName(name, sizeof(name), 0));
	return !strcmp(name, "hostcuda");
}

static inline void assert_refused(CUresult wanted, CUresult got, const char *call, int line)
{
	if (on_hostcuda())
		assert_result(wanted, got, call, line);
	cr_assert_neq(got, CUDA_SUCCESS, "line %d: %s was not refused", line, call);
}

/* A test that provoked a fault ends here too; on other drivers the context may still answer with that fault. */
static inline void device_close(void)
{
	CUresult result = md_cuda.cuDevicePrimaryCtxRelease_v2(0);
	if (result != CUDA_ERROR_ILLEGAL_ADDRESS || on_hostcuda())
		ok(result);
}

/* For what only the embedded device promises. */
#define only_on_hostcuda(reason)                                                                                       \
	do {                                                                                                           \
		if (!on_hostcuda())                                                                                    \
			skip("%s", reason);                                                                            \
	} while (0)

static inline const char *image_path(void)
{
	static char path[4096];
	const char *build = getenv("MEDUSA_BUILD");
	snprintf(path, sizeof(path), "%s/tests/images/arith.%s", build ? build : "build",
		 on_hostcuda() ? "host.so" : "fatbin");
	return path;
}

/* The bytes of the arith image, freed by the caller. */
static inline char *image_read(size_t *size)
{
	FILE *file = fopen(image_path(), "rb");
	if (!file && !on_hostcuda())
		skip("no image for this device: %s", image_path());
	cr_assert(file, "%s is not there", image_path());
	fseek(file, 0, SEEK_END);
	*size = (size_t)ftell(file);
	rewind(file);
	char *data = malloc(*size);
	cr_assert_eq(fread(data, 1, *size, file), *size, "%s is short", image_path());
	fclose(file);
	return data;
}

static inline CUmodule load_module(void)
{
	CUmodule module;
	size_t size;
	char *data = image_read(&size);
	ok(md_cuda.cuModuleLoadData(&module, data));
	free(data);
	return module;
}

/*
 * With all its code on the device. Code that is loaded lazily may wait for the whole device, and so for a kernel that
 * waits for the test.
 */
static inline CUmodule load_whole_module(void)
{
	CUmodule module = load_module();
	CUfunction functions[16];
	unsigned count;
	ok(md_cuda.cuModuleGetFunctionCount(&count, module));
	ok(md_cuda.cuModuleEnumerateFunctions(functions, count < 16 ? count : 16, module));
	for (unsigned i = 0; i < count && i < 16; i++)
		ok(md_cuda.cuFuncLoad(functions[i]));
	return module;
}

static inline CUfunction function_named(CUmodule module, const char *name)
{
	CUfunction function;
	ok(md_cuda.cuModuleGetFunction(&function, module, name));
	return function;
}

/* A kernel that only enumeration lists; in a GPU's image its name is mangled. */
static inline CUfunction hidden_function(CUmodule module, const char *wanted)
{
	CUfunction functions[16];
	unsigned count;
	ok(md_cuda.cuModuleGetFunctionCount(&count, module));
	ok(md_cuda.cuModuleEnumerateFunctions(functions, count < 16 ? count : 16, module));
	for (unsigned i = 0; i < count && i < 16; i++) {
		const char *name;
		ok(md_cuda.cuFuncGetName(&name, functions[i]));
		if (on_hostcuda() ? !strcmp(name, wanted) : strstr(name, wanted) != NULL)
			return functions[i];
	}
	cr_assert_fail("the module lists no kernel %s", wanted);
	return NULL;
}

static inline CUdeviceptr device_ints(int value, int count)
{
	CUdeviceptr address;
	ok(md_cuda.cuMemAlloc_v2(&address, (size_t)count * 4));
	ok(md_cuda.cuMemsetD32_v2(address, (unsigned)value, (size_t)count));
	ok(md_cuda.cuCtxSynchronize());
	return address;
}

static inline void assert_ints(CUdeviceptr address, int count, int wanted)
{
	int *host = malloc((size_t)count * 4);
	ok(md_cuda.cuMemcpyDtoH_v2(host, address, (size_t)count * 4));
	for (int i = 0; i < count; i++)
		cr_assert_eq(host[i], wanted, "element %d is %d, not %d", i, host[i], wanted);
	free(host);
}

/* x[i] *= factor */
static inline CUresult launch_scale(CUfunction function, CUstream stream, CUdeviceptr x, int factor, int count)
{
	void *params[] = {&x, &factor, &count};
	return md_cuda.cuLaunchKernel(function, (unsigned)(count + 63) / 64, 1, 1, 64, 1, 1, 0, stream, params, NULL);
}

#endif
