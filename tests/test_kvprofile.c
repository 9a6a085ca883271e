/* SPDX-License-Identifier: Apache-2.0 */
/* KV capacity on the embedded device: what is measured adds up, and a stored answer is refused when it
 * no longer holds. */
#include "kvprofile/kvprofile.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "driver/cuda_driver.h"
#include "format/artifact/artifact.h"

#define MIB ((uint64_t)1 << 20)

/* What the profiling forward does: leaves kept bytes allocated, and gives temporary ones back. */
struct forward {
	uint64_t kept, temporary;
	int result;
	bool noted; /* as the hooks of a preloaded library would */
	unsigned runs;
};

static CUdeviceptr allocate(uint64_t bytes, bool noted)
{
	CUdeviceptr address = 0;
	cr_assert_eq(md_cuda.cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
	if (noted)
		md_kvprofile_note_alloc(bytes);
	return address;
}

static int run_forward(void *user)
{
	struct forward *forward = user;
	forward->runs++;
	if (forward->kept)
		allocate(forward->kept, forward->noted);
	if (forward->temporary) {
		CUdeviceptr address = allocate(forward->temporary, forward->noted);
		cr_assert_eq(md_cuda.cuMemFree_v2(address), CUDA_SUCCESS);
		if (forward->noted)
			md_kvprofile_note_free(forward->temporary);
	}
	return forward->result;
}

static void open_device(void)
{
	struct md_error err = {0};
	CUcontext context;
	CUdevice device;
	setenv("HOSTCUDA_MEM", "1G", 1);
	cr_assert_eq(md_cuda_load(&err), MD_OK, "%s", err.message);
	cr_assert_eq(md_cuda.cuInit(0), CUDA_SUCCESS);
	cr_assert_eq(md_cuda.cuDeviceGet(&device, 0), CUDA_SUCCESS);
	cr_assert_eq(md_cuda.cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
	cr_assert_eq(md_cuda.cuCtxSetCurrent(context), CUDA_SUCCESS);
}

static struct medusa_kv_request request_for(struct forward *forward)
{
	return (struct medusa_kv_request){
	    sizeof(struct medusa_kv_request), "model-1", 3 * MIB, 0.9, run_forward, forward, NULL};
}

static struct md_kv measured(struct forward *forward)
{
	struct medusa_kv_request request = request_for(forward);
	struct md_error err = {0};
	struct md_kv kv;
	cr_assert_eq(md_kvprofile_measure(&request, &kv, &err), MD_OK, "%s", err.message);
	cr_assert_eq(forward->runs, 1, "the profiling forward runs once");
	return kv;
}

static void assert_adds_up(const struct md_kv *kv, uint64_t total)
{
	uint64_t allowed = total / 1000000 * kv->utilization_ppm + total % 1000000 * kv->utilization_ppm / 1000000;
	uint64_t room = allowed - (total - kv->baseline_free) - kv->peak;
	cr_assert_eq(kv->blocks, room / (3 * MIB));
	cr_assert_eq(kv->kv_bytes, kv->blocks * 3 * MIB, "whole blocks");
}

TestSuite(kvprofile, .init = open_device);

/* As an engine does that measures by itself, too: the number is there once the forward has run. */
struct own {
	struct forward forward;
	uint64_t found, most;
};

static int run_own(void *user)
{
	struct own *own = user;
	own->most = own->found;
	return run_forward(&own->forward);
}

static uint64_t bytes_beside(uint64_t found, size_t request_size)
{
	struct own own = {.found = found, .most = 5};
	struct medusa_kv_request request = request_for(&own.forward);
	struct md_error err = {0};
	struct md_kv kv;
	request.profile = run_own;
	request.most = &own.most;
	request.size = request_size;
	cr_assert_eq(md_kvprofile_measure(&request, &kv, &err), MD_OK, "%s", err.message);
	cr_assert_eq(kv.kv_bytes, kv.blocks * 3 * MIB, "whole blocks");
	cr_assert_eq(md_artifact_check_kv(&kv, 1024 * MIB, &err), MD_OK, "%s", err.message);
	return kv.kv_bytes;
}

Test(kvprofile, no_more_than_the_engine_measures_itself)
{
	struct forward forward = {0};
	uint64_t alone = measured(&forward).kv_bytes;
	cr_assert_eq(bytes_beside(100 * MIB, sizeof(struct medusa_kv_request)), 99 * MIB);
	cr_assert_eq(bytes_beside(UINT64_MAX, sizeof(struct medusa_kv_request)), alone);
	cr_assert_eq(bytes_beside(100 * MIB, offsetof(struct medusa_kv_request, most)), alone, "an earlier version");
}

Test(kvprofile, the_engine_itself_has_no_room)
{
	struct own own = {.found = 3 * MIB - 1};
	struct medusa_kv_request request = request_for(&own.forward);
	struct md_error err = {0};
	struct md_kv kv;
	request.profile = run_own;
	request.most = &own.most;
	cr_assert_eq(md_kvprofile_measure(&request, &kv, &err), MD_ERR_DRIVER_MEMORY);
	cr_assert_not_null(strstr(err.message, "the engine's own limit is 3145727"), "%s", err.message);
}

Test(kvprofile, counts_what_stays)
{
	struct forward forward = {.kept = 64 * MIB};
	size_t free_before, total;
	struct md_kv kv;
	allocate(200 * MIB, false); /* weights */
	cr_assert_eq(md_cuda.cuMemGetInfo_v2(&free_before, &total), CUDA_SUCCESS);
	kv = measured(&forward);
	cr_assert(kv.present);
	cr_assert_eq(kv.baseline_free, free_before);
	cr_assert_eq(kv.peak, 64 * MIB, "peak is %llu", (unsigned long long)kv.peak);
	cr_assert_eq(kv.utilization_ppm, 900000);
	cr_assert_str_eq(kv.key, "model-1");
	assert_adds_up(&kv, total);
}

Test(kvprofile, hooks_see_what_was_given_back)
{
	struct forward forward = {.kept = 10 * MIB, .temporary = 90 * MIB, .noted = true};
	struct md_kv kv;
	md_kvprofile_note_alloc(500 * MIB); /* weights, and a peak before the profile that must not count */
	md_kvprofile_note_alloc(300 * MIB);
	md_kvprofile_note_free(300 * MIB);
	kv = measured(&forward);
	cr_assert_eq(kv.peak, 100 * MIB, "peak is %llu", (unsigned long long)kv.peak);
}

Test(kvprofile, no_room_is_an_error_with_numbers)
{
	struct forward forward = {.kept = 100 * MIB};
	struct medusa_kv_request request = request_for(&forward);
	struct md_kv kv = {.blocks = 7};
	struct md_error err = {0};
	allocate(850 * MIB, false);
	cr_assert_eq(md_kvprofile_measure(&request, &kv, &err), MD_ERR_DRIVER_MEMORY);
	cr_assert_not_null(strstr(err.message, "104857600"), "the peak is named: %s", err.message);
	cr_assert_eq(kv.blocks, 7, "outputs are set on success alone");
}

Test(kvprofile, failing_forward)
{
	struct forward forward = {.result = 13};
	struct medusa_kv_request request = request_for(&forward);
	struct md_error err = {0};
	struct md_kv kv;
	cr_assert_eq(md_kvprofile_measure(&request, &kv, &err), MD_ERR_INVALID);
	cr_assert_not_null(strstr(err.message, "13"), "%s", err.message);
}

/* ---- the stored answer ---- */

static void assert_answer(const struct md_kv *stored, const struct medusa_kv_request *request, enum md_status status,
			  const char *message)
{
	struct md_error err = {0};
	struct md_kv kv = {.blocks = 7};
	cr_assert_eq(md_kvprofile_answer(stored, request, &kv, &err), status, "%s: got \"%s\"", message, err.message);
	cr_assert_eq(kv.blocks, status == MD_OK ? stored->blocks : 7);
	cr_assert_not_null(strstr(err.message, message), "\"%s\" is not in \"%s\"", message, err.message);
	if (status == MD_OK && !*message)
		cr_assert_str_eq(err.message, "", "nothing is short");
}

Test(kvprofile, answers_at_once)
{
	struct forward forward = {0};
	struct md_kv stored = measured(&forward);
	struct medusa_kv_request request = request_for(&forward);
	request.profile = NULL;
	assert_answer(&stored, &request, MD_OK, "");
	cr_assert_eq(forward.runs, 1, "answering runs nothing");
}

Test(kvprofile, refuses_another_question)
{
	struct forward forward = {0};
	struct md_kv stored = measured(&forward), none = {0};
	struct medusa_kv_request request = request_for(&forward);
	assert_answer(&none, &request, MD_ERR_NOT_FOUND, "none is stored");
	request.key = "model-2";
	assert_answer(&stored, &request, MD_ERR_MISMATCH, "\"model-1\", asked for \"model-2\"");
	request = request_for(&forward);
	request.block_bytes = 5;
	assert_answer(&stored, &request, MD_ERR_MISMATCH, "asked for 5");
	request = request_for(&forward);
	request.utilization = 0.95;
	assert_answer(&stored, &request, MD_ERR_MISMATCH, "0.9, asked for 0.95");
}

Test(kvprofile, refuses_when_memory_is_short)
{
	struct forward forward = {0};
	struct md_kv stored = measured(&forward);
	struct medusa_kv_request request = request_for(&forward);
	struct md_kv grown = stored;
	grown.graph_bytes = 200 * MIB;
	assert_answer(&grown, &request, MD_ERR_MISMATCH, "do not fit");
	grown.graph_bytes = UINT64_MAX;
	grown.peak = UINT64_MAX;
	assert_answer(&grown, &request, MD_ERR_MISMATCH, "do not fit");
	allocate(60 * MIB, false);
	assert_answer(&stored, &request, MD_ERR_MISMATCH, "are free now, and only ");
}

/* A profile of a device of 1 GiB on which so many bytes are short now: half of what it left over, and one more. */
Test(kvprofile, a_shortfall_within_half_of_what_was_left_over)
{
	struct forward forward = {.kept = 8 * MIB};
	struct md_kv stored = measured(&forward);
	struct medusa_kv_request request = request_for(&forward);
	size_t free_now, total;
	stored.graph_bytes = 16 * MIB;
	cr_assert_eq(md_cuda.cuMemGetInfo_v2(&free_now, &total), CUDA_SUCCESS);
	uint64_t needed = stored.kv_bytes + stored.peak + stored.graph_bytes;
	uint64_t left = free_now - needed;
	stored.baseline_free = free_now;
	assert_answer(&stored, &request, MD_OK, "");
	/* baseline - now = (baseline - needed) / 2, which is reached when the baseline is left over once more above now */
	stored.baseline_free = free_now + left;
	assert_answer(&stored, &request, MD_OK, "are free now: the stored answer holds");
	stored.baseline_free++; /* rounded down */
	assert_answer(&stored, &request, MD_ERR_MISMATCH, "are free now, and only ");
}

Test(kvprofile, what_must_fit_is_compared_to_the_byte)
{
	struct forward forward = {0};
	struct md_kv stored = measured(&forward);
	struct medusa_kv_request request = request_for(&forward);
	size_t free_now, total;
	cr_assert_eq(md_cuda.cuMemGetInfo_v2(&free_now, &total), CUDA_SUCCESS);
	stored.graph_bytes = free_now - stored.kv_bytes - stored.peak;
	assert_answer(&stored, &request, MD_OK, "");
	stored.baseline_free = free_now + 1; /* one byte was left over, of which nothing may be short */
	assert_answer(&stored, &request, MD_ERR_MISMATCH, "and only 0 fewer may be");
	stored.graph_bytes++;
	stored.baseline_free = free_now;
	assert_answer(&stored, &request, MD_ERR_MISMATCH, "do not fit");
}

/* ---- structs of other versions ---- */

static void assert_struct(const struct medusa_kv_request *request, const struct medusa_kv *out, const char *message)
{
	struct md_error err = {0};
	enum md_status status = md_kvprofile_check(request, out, &err);
	cr_assert_eq(status, *message ? MD_ERR_INVALID : MD_OK, "%s: got \"%s\"", message, err.message);
	cr_assert_not_null(strstr(err.message, message), "\"%s\" is not in \"%s\"", message, err.message);
}

Test(kvprofile_structs, sizes_and_values)
{
	struct forward forward = {0};
	struct medusa_kv_request request = request_for(&forward);
	struct medusa_kv out = {.size = sizeof(out)};
	char key[300];
	memset(key, 'k', sizeof(key) - 1);
	key[sizeof(key) - 1] = '\0';
	assert_struct(&request, &out, "");
	assert_struct(NULL, &out, "NULL");
	assert_struct(&request, NULL, "NULL");
	out.size = 0;
	assert_struct(&request, &out, "size is 0");
	out.size = sizeof(out);
	request.size = 8;
	assert_struct(&request, &out, "size is 8");
	request = request_for(&forward);
	request.block_bytes = 0;
	assert_struct(&request, &out, "block_bytes is 0");
	request = request_for(&forward);
	request.utilization = NAN;
	assert_struct(&request, &out, "utilization is");
	request.utilization = 1.01;
	assert_struct(&request, &out, "utilization is 1.01");
	request = request_for(&forward);
	request.key = key;
	assert_struct(&request, &out, "longer than 255");
}

Test(kvprofile_structs, newer_callers)
{
	struct forward forward = {0};
	struct {
		struct medusa_kv_request known;
		uint64_t later;
	} request = {request_for(&forward), 0};
	struct medusa_kv out = {.size = sizeof(out)};
	request.known.size = sizeof(request);
	assert_struct(&request.known, &out, "");
	request.later = 1;
	assert_struct(&request.known, &out, "is set, but this library knows only");
}
