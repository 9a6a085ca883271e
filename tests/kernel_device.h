/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of kernels: whichever device the driver offers, its image of an engine library, buffers with guards. */
#ifndef TESTS_KERNEL_DEVICE_H
#define TESTS_KERNEL_DEVICE_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/cuda_driver.h"
#include "models/llama/random.h"

#define UNUSED_TOO __attribute__((unused))
#define CU_OK(entry, ...)                                                                                              \
	do {                                                                                                           \
		struct md_error error_ = {0};                                                                          \
		cr_assert_eq(md_cuda_call(&error_, entry, __VA_ARGS__), MD_OK, "%s", error_.message);                  \
	} while (0)

/*
 * 0xff in every byte is a NaN: an element that a kernel leaves out, or reads by mistake, shows. The guard behind a
 * buffer is none, because a NaN that is computed with stays the same NaN.
 */
enum { GUARD_BYTES = 1024, POISON = 0xff, GUARD = 0x5a };

static bool on_hostcuda;

static UNUSED_TOO void open_device(void)
{
	struct md_error error = {0};
	char name[256];
	CUdevice device;
	CUcontext context;
	cr_assert_eq(md_cuda_load(&error), MD_OK, "%s", error.message);
	CU_OK(cuInit, 0);
	CU_OK(cuDeviceGet, &device, 0);
	CU_OK(cuDeviceGetName, name, sizeof(name), device);
	CU_OK(cuDevicePrimaryCtxRetain, &context, device);
	CU_OK(cuCtxSetCurrent, context);
	on_hostcuda = strncmp(name, "hostcuda", strlen("hostcuda")) == 0;
}

static UNUSED_TOO void build_path(char *path, size_t size, const char *file)
{
	const char *build = getenv("MEDUSA_BUILD");
	snprintf(path, size, "%s/models/llama/%s", build ? build : "build", file);
}

/* A whole file, aligned as images must be; kept for the process, because the bytes must outlive the library. */
static UNUSED_TOO void *image_bytes(const char *path)
{
	static void *image;
	FILE *stream;
	long size;
	if (image)
		return image;
	stream = fopen(path, "rb");
	cr_assert(stream, "cannot open %s", path);
	fseek(stream, 0, SEEK_END);
	size = ftell(stream);
	rewind(stream);
	cr_assert_eq(posix_memalign(&image, 64, (size_t)size), 0);
	cr_assert_eq(fread(image, 1, (size_t)size, stream), (size_t)size, "cannot read %s", path);
	fclose(stream);
	return image;
}

/* The image NAME.host.so or NAME.fatbin, as the device asks for; one NAME for each test process. */
static UNUSED_TOO CUlibrary load_image(const char *name)
{
	char file[128], path[4096];
	CUlibrary library;
	snprintf(file, sizeof(file), "%s.%s", name, on_hostcuda ? "host.so" : "fatbin");
	build_path(path, sizeof(path), file);
	CU_OK(cuLibraryLoadData, &library, image_bytes(path), NULL, NULL, 0, NULL, NULL, 0);
	return library;
}

/* By enumeration, which finds hidden kernels too. `part`: the name may be mangled around it. */
static UNUSED_TOO CUfunction find_kernel(CUlibrary library, const char *name, bool part)
{
	CUkernel kernels[64];
	unsigned int count;
	CUfunction function = NULL;
	CU_OK(cuLibraryGetKernelCount, &count, library);
	cr_assert_leq(count, 64);
	CU_OK(cuLibraryEnumerateKernels, kernels, count, library);
	for (unsigned int i = 0; i < count; i++) {
		const char *found;
		CU_OK(cuKernelGetName, &found, kernels[i]);
		if (part ? strstr(found, name) != NULL : strcmp(found, name) == 0)
			CU_OK(cuKernelGetFunction, &function, kernels[i]);
	}
	cr_assert(function, "no kernel %s among the %u of the image", name, count);
	return function;
}

/* ---- buffers -------------------- */

static UNUSED_TOO void *poisoned(size_t bytes)
{
	CUdeviceptr address;
	CU_OK(cuMemAlloc_v2, &address, bytes + GUARD_BYTES);
	CU_OK(cuMemsetD8_v2, address, POISON, bytes);
	CU_OK(cuMemsetD8_v2, address + bytes, GUARD, GUARD_BYTES);
	return (void *)(uintptr_t)address;
}

static UNUSED_TOO void *uploaded(const void *data, size_t bytes)
{
	void *buffer = poisoned(bytes);
	CU_OK(cuMemcpyHtoD_v2, (CUdeviceptr)(uintptr_t)buffer, data, bytes);
	return buffer;
}

/* On the heap; fails the test when something was written behind the buffer. */
static UNUSED_TOO void *downloaded(const void *buffer, size_t bytes)
{
	unsigned char *data = malloc(bytes + GUARD_BYTES);
	CU_OK(cuCtxSynchronize, );
	CU_OK(cuMemcpyDtoH_v2, data, (CUdeviceptr)(uintptr_t)buffer, bytes + GUARD_BYTES);
	for (size_t i = 0; i < GUARD_BYTES; i++)
		cr_assert_eq(data[bytes + i], GUARD, "byte %zu behind a buffer of %zu was written", i, bytes);
	return data;
}

static UNUSED_TOO void release(const void *buffer)
{
	CU_OK(cuMemFree_v2, (CUdeviceptr)(uintptr_t)buffer);
}

/* ---- data -------------------- */

static UNUSED_TOO float *random_floats(size_t n, uint64_t seed, float scale)
{
	float *values = malloc(n * sizeof(*values));
	for (size_t i = 0; i < n; i++)
		values[i] = scale * random_signed(random_word(seed, 77, i));
	return values;
}

static UNUSED_TOO uint16_t *random_halves(size_t n, uint64_t seed, float scale)
{
	uint16_t *values = malloc(n * sizeof(*values));
	for (size_t i = 0; i < n; i++)
		values[i] = bf16_round(scale * random_signed(random_word(seed, 78, i)));
	return values;
}

/* Relative to the value, or to the array's root mean square where sums cancel. */
static UNUSED_TOO void assert_near(const float *got, const double *want, size_t n, double bound, const char *what)
{
	double squares = 0, size;
	for (size_t i = 0; i < n; i++)
		squares += want[i] * want[i];
	size = sqrt(squares / (double)n);
	for (size_t i = 0; i < n; i++) {
		const double limit = bound * fmax(fabs(want[i]), size);
		cr_assert(fabs(got[i] - want[i]) <= limit, "%s: element %zu of %zu is %.9g, should be %.9g +- %.2g",
			  what, i, n, (double)got[i], want[i], limit);
	}
}

#endif
