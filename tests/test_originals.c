/* SPDX-License-Identifier: Apache-2.0 */
/* What a verification fills of the engine's own memory is put back, whichever copy fails. */
#include <criterion/criterion.h>
#include <string.h>

#include "restore/verify/originals.h"
#include "tests/open_guard.h"

#define PARTS 3u
#define BYTES 16u
#define FILLING 0xa5

static uint8_t memory[PARTS][BYTES], slabs[PARTS][BYTES], host[PARTS][BYTES];
static struct md_verify_original parts[PARTS];
static struct md_verify_originals originals;
static struct md_device_session device;
static unsigned calls, broken_from, broken_to; /* copies and waits: these, counted from 1, fail */

static CUresult answer(void)
{
	calls++;
	return calls >= broken_from && calls < broken_to ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult copy(void *to, const void *from, size_t bytes)
{
	CUresult result = answer();
	if (result == CUDA_SUCCESS)
		memcpy(to, from, bytes);
	return result;
}

static CUresult CUDAAPI between(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	(void)stream;
	return copy((void *)to, (void *)from, bytes);
}

static CUresult CUDAAPI to_device(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	(void)stream;
	return copy((void *)to, from, bytes);
}

static CUresult CUDAAPI to_host(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	(void)stream;
	return copy(to, (void *)from, bytes);
}

static CUresult CUDAAPI set(CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream)
{
	(void)stream;
	memset((void *)at, value, bytes);
	return CUDA_SUCCESS;
}

static CUresult CUDAAPI synchronize(CUstream stream)
{
	(void)stream;
	return answer();
}

/* Does what the kernel for pieces does, with copies. */
static CUresult CUDAAPI launch(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads_x,
			       unsigned threads_y, unsigned threads_z, unsigned shared, CUstream stream, void **params,
			       void **extra)
{
	const uint64_t *piece = *(const uint64_t **)params[0], *count = params[1];
	CUresult result = answer();
	(void)function, (void)x, (void)y, (void)z, (void)threads_x, (void)threads_y, (void)threads_z;
	(void)shared, (void)stream, (void)extra;
	for (uint64_t i = 0; result == CUDA_SUCCESS && i < *count; i++, piece += 4)
		memcpy((void *)piece[0], (const void *)piece[1], piece[2]);
	return result;
}

/* The first part is saved on the host, the others on the device. All are filled. */
static void set_up(void)
{
	struct md_error err = {0};
	md_cuda.cuMemcpyDtoDAsync_v2 = between;
	md_cuda.cuMemcpyHtoDAsync_v2 = to_device;
	md_cuda.cuMemcpyDtoHAsync_v2 = to_host;
	md_cuda.cuMemsetD8Async = set;
	md_cuda.cuStreamSynchronize = synchronize;
	md_cuda.cuLaunchKernel = launch;
	broken_from = broken_to = 0;
	for (unsigned i = 0; i < PARTS; i++) {
		memset(memory[i], (int)i + 1, BYTES);
		parts[i] = (struct md_verify_original){.address = (uint64_t)(uintptr_t)memory[i], .size = BYTES};
		if (i)
			parts[i].copy = (CUdeviceptr)slabs[i];
		else
			parts[i].bytes = host[i];
	}
	originals = (struct md_verify_originals){.parts = parts, .count = PARTS, .end = PARTS, .device = &device};
	cr_assert_eq(md_verify_originals_fill(&originals, FILLING, &err), MD_OK, "%s", err.message);
	for (unsigned i = 0; i < PARTS; i++)
		cr_assert_eq(memory[i][0], FILLING, "part %u is filled", i);
	calls = 0;
}

TestSuite(originals, .init = set_up);

static enum md_status put_back_with(unsigned from, unsigned to)
{
	struct md_error err = {0};
	broken_from = from;
	broken_to = to;
	enum md_status status = md_verify_originals_put_back(&originals, &err);
	cr_assert_eq(status, err.status);
	return status;
}

static void assert_back(unsigned but)
{
	for (unsigned i = 0; i < PARTS; i++)
		cr_assert_eq(memory[i][BYTES - 1], i == but ? FILLING : i + 1, "part %u holds %u", i, memory[i][0]);
}

Test(originals, are_put_back_once)
{
	cr_assert_eq(put_back_with(0, 0), MD_OK);
	assert_back(PARTS);
	memset(memory, 9, sizeof(memory)); /* the engine goes on */
	cr_assert_eq(put_back_with(0, 0), MD_OK);
	cr_assert_eq(memory[0][0], 9, "nothing is filled, so nothing is put back");
}

Test(originals, are_all_put_back_although_one_call_fails)
{
	for (unsigned broken = 1; broken <= PARTS + 1; broken++) {
		set_up();
		cr_assert_eq(put_back_with(broken, broken + 1), MD_OK, "call %u was tried again", broken);
		assert_back(PARTS);
	}
}

Test(originals, should_fail_where_a_copy_fails_twice_and_put_the_others_back)
{
	for (unsigned part = 0; part < PARTS; part++) {
		set_up();
		cr_assert_neq(put_back_with(part + 1, part + 3), MD_OK, "part %u", part);
		assert_back(part);
	}
	set_up();
	cr_assert_neq(put_back_with(PARTS + 1, PARTS + 3), MD_OK, "waiting for the copies");
}

/* ---- the parts on the device in one launch ---- */

static void set_up_kernel(void)
{
	static uint64_t table[64], device_table[64];
	device = (struct md_device_session){.pieces = (CUfunction)table,
					    .table_bytes = (struct md_device_piece *)table,
					    .table = (CUdeviceptr)device_table};
	set_up();
}

TestSuite(originals_together, .init = set_up_kernel);

/* Of two parts on the device: a table, a launch; one part on the host; a wait. */
Test(originals_together, are_put_back_by_one_launch)
{
	cr_assert_eq(put_back_with(0, 0), MD_OK);
	assert_back(PARTS);
	cr_assert_eq(calls, 4);
}

Test(originals_together, are_all_put_back_although_one_call_fails)
{
	for (unsigned broken = 1; broken <= 4; broken++) {
		set_up();
		cr_assert_eq(put_back_with(broken, broken + 1), MD_OK, "call %u was tried again", broken);
		assert_back(PARTS);
	}
}

Test(originals_together, should_fail_where_a_copy_fails_twice_after_the_launch)
{
	cr_assert_neq(put_back_with(2, 5), MD_OK, "the launch, and the first part twice");
	assert_back(0);
}
