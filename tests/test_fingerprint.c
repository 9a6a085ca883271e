/* SPDX-License-Identifier: Apache-2.0 */
/* Fingerprints: read through the driver table, and the first difference is named with both values. */
#include "format/fingerprint.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/cuda_driver.h"

static const struct md_fingerprint sample = {.device_name = "Device A",
					     .compute_major = 9,
					     .compute_minor = 1,
					     .multiprocessors = 132,
					     .device_memory = 1ull << 37,
					     .driver_version = 13000};

static void assert_mismatch(struct md_fingerprint now, const char *message)
{
	struct md_error err = {0};
	cr_assert_eq(md_fingerprint_compare(&sample, &now, &err), MD_ERR_MISMATCH, "%s passes", message);
	cr_assert_str_eq(err.message, message, "message");
}

Test(fingerprint, the_first_difference_is_named)
{
	struct md_fingerprint now = sample;
	struct md_error err;
	cr_assert(md_fingerprint_compare(&sample, &now, &err) == MD_OK, "equal");
	strcpy(now.device_name, "Device B");
	assert_mismatch(now, "device name: artifact has Device A, this machine Device B");
	now = sample;
	now.compute_major = 8;
	assert_mismatch(now, "compute capability (major): artifact has 9, this machine 8");
	now = sample;
	now.compute_minor = 0;
	assert_mismatch(now, "compute capability (minor): artifact has 1, this machine 0");
	now = sample;
	now.multiprocessors = 114;
	assert_mismatch(now, "multiprocessors: artifact has 132, this machine 114");
	now = sample;
	now.device_memory = 1ull << 36;
	assert_mismatch(now, "device memory in bytes: artifact has 137438953472, this machine 68719476736");
	now = sample;
	now.driver_version = 12040;
	assert_mismatch(now, "driver version: artifact has 13000, this machine 12040");
}

Test(fingerprint, libraries_do_not_take_part_here)
{
	struct md_fingerprint now = sample;
	struct md_fingerprint_library library = {.path = (char *)"/lib/x.so", .build_id = (char *)"00"};
	now.libraries = &library;
	now.library_count = 1;
	cr_assert(md_fingerprint_compare(&sample, &now, NULL) == MD_OK, "device and driver are equal");
}

Test(fingerprint, finish_frees_and_clears)
{
	struct md_fingerprint fingerprint = sample;
	fingerprint.libraries = calloc(1, sizeof(*fingerprint.libraries));
	fingerprint.library_count = 1;
	fingerprint.libraries[0] = (struct md_fingerprint_library){strdup("/lib/x.so"), strdup("ab")};
	md_fingerprint_finish(&fingerprint);
	cr_assert(!fingerprint.libraries && !fingerprint.library_count, "cleared");
}

/* ---- reading, through a driver that these functions stand in for ---- */

static CUresult context_result;

static CUresult CUDAAPI fake_device(CUdevice *device)
{
	*device = 3;
	return context_result;
}

static CUresult CUDAAPI fake_name(char *name, int length, CUdevice device)
{
	memset(name, 'x', (size_t)length); /* rubbish behind the NUL */
	snprintf(name, (size_t)length, "Device %d", device);
	return CUDA_SUCCESS;
}

static CUresult CUDAAPI fake_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	(void)device;
	*value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? 9
		 : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 1
									     : 132;
	return CUDA_SUCCESS;
}

static CUresult CUDAAPI fake_memory(size_t *bytes, CUdevice device)
{
	(void)device;
	*bytes = (size_t)1 << 37;
	return CUDA_SUCCESS;
}

static CUresult CUDAAPI fake_version(int *version)
{
	*version = 13000;
	return CUDA_SUCCESS;
}

Test(fingerprint, reads_the_current_contexts_device)
{
	struct md_fingerprint now = {.driver_version = -1};
	struct md_error err = {0};
	/* whatever is loaded: afterwards the table is ours */
	if (access("build/lib/hostcuda/libcuda.so.1", R_OK) == 0)
		setenv("MEDUSA_LIBCUDA", "build/lib/hostcuda/libcuda.so.1", 0);
	if (md_cuda_load(&err) != MD_OK)
		cr_skip_test("no driver library to load: %s", err.message);
	md_cuda.cuCtxGetDevice = fake_device;
	md_cuda.cuDeviceGetName = fake_name;
	md_cuda.cuDeviceGetAttribute = fake_attribute;
	md_cuda.cuDeviceTotalMem_v2 = fake_memory;
	md_cuda.cuDriverGetVersion = fake_version;
	cr_assert(md_fingerprint_read(&now, &err) == MD_OK, "%s", err.message);
	cr_assert_str_eq(now.device_name, "Device 3", "name");
	for (size_t i = strlen(now.device_name); i < sizeof(now.device_name); i++)
		cr_assert_eq(now.device_name[i], 0, "rubbish at %zu", i);
	cr_assert(now.compute_major == 9 && now.compute_minor == 1 && now.multiprocessors == 132, "attributes");
	cr_assert(now.device_memory == 1ull << 37 && now.driver_version == 13000, "memory and version");
	cr_assert(!now.libraries && !now.library_count, "no libraries");
	context_result = CUDA_ERROR_INVALID_CONTEXT;
	struct md_fingerprint untouched = {.driver_version = -1};
	cr_assert_neq(md_fingerprint_read(&untouched, &err), MD_OK, "without a context");
	cr_assert(strstr(err.message, "cuCtxGetDevice"), "%s", err.message);
	cr_assert_eq(untouched.driver_version, -1, "outputs are set on success alone");
}
