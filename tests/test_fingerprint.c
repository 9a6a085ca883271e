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

/* ---- facts ---- */

static struct md_fingerprint with_facts(const char *const *names_and_values)
{
	struct md_fingerprint fingerprint = sample;
	for (; *names_and_values; names_and_values += 2)
		cr_assert(md_fingerprint_set_fact(&fingerprint, names_and_values[0], names_and_values[1], NULL) ==
			      MD_OK,
			  "fact %s", names_and_values[0]);
	return fingerprint;
}

Test(fingerprint, facts_are_kept_by_name_and_replaced)
{
	struct md_fingerprint said = with_facts(
	    (const char *const[]){"torch", "2.10", "cudnn", "9", "transformers", "5", "torch", "2.11", "a", "", NULL});
	const char *const want[][2] = {{"a", ""}, {"cudnn", "9"}, {"torch", "2.11"}, {"transformers", "5"}};
	cr_assert_eq(said.fact_count, 4, "count %u", said.fact_count);
	for (uint32_t i = 0; i < 4; i++) {
		cr_assert_str_eq(said.facts[i].name, want[i][0], "name %u", i);
		cr_assert_str_eq(said.facts[i].value, want[i][1], "value %u", i);
	}
	md_fingerprint_finish(&said);
	cr_assert(!said.facts && !said.fact_count, "finished");
}

static void assert_facts_mismatch(const char *const *stored, const char *const *now, const char *message)
{
	struct md_fingerprint was = with_facts(stored), is = with_facts(now);
	struct md_error err = {0};
	cr_assert_eq(md_fingerprint_compare_facts(&was, &is, &err), MD_ERR_MISMATCH, "%s passes", message);
	cr_assert_str_eq(err.message, message, "message");
	cr_assert(md_fingerprint_compare(&was, &is, &err) == MD_OK, "device and driver are equal");
	md_fingerprint_finish(&was);
	md_fingerprint_finish(&is);
}

Test(fingerprint, the_first_differing_fact_is_named)
{
	const char *const none[] = {NULL}, *const torch[] = {"torch", "2.11", NULL};
	const char *const other[] = {"torch", "2.12", NULL}, *const more[] = {"torch", "2.11", "cudnn", "9", NULL};
	const char *const late[] = {"torch", "2.11", "z", "1", NULL}, *const turned[] = {"z", "1", "torch", "2.11",
											 NULL};
	assert_facts_mismatch(torch, other, "fact \"torch\": artifact has 2.11, this engine 2.12");
	assert_facts_mismatch(torch, none, "fact \"torch\": artifact has 2.11, this engine does not state it");
	assert_facts_mismatch(none, torch, "fact \"torch\": the artifact does not have it, this engine states 2.11");
	assert_facts_mismatch(torch, more, "fact \"cudnn\": the artifact does not have it, this engine states 9");
	assert_facts_mismatch(late, torch, "fact \"z\": artifact has 1, this engine does not state it");
	struct md_fingerprint was = with_facts(late), is = with_facts(turned);
	cr_assert(md_fingerprint_compare_facts(&was, &is, NULL) == MD_OK, "the order of saying is no difference");
	md_fingerprint_finish(&was);
	md_fingerprint_finish(&is);
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
