/* SPDX-License-Identifier: Apache-2.0 */
/* A driver call that fails while memory goes away or comes back changes nothing, and the next try succeeds. */
#include <criterion/criterion.h>

#include "swap/gate.h"
#include "swap/layer.h"
#include "swap/swap_memory.h"
#include "tests/hostcuda_fixture.h"

#define MB ((size_t)1 << 20)

static struct md_cuda real;

static void set_up(void)
{
	device_open();
	struct md_cuda table = md_swap_real;
	md_swap_layer(&table); /* the reference brings the layer into this program */
	real = md_swap_real;
}

TestSuite(swap_physical, .init = set_up, .timeout = 60);

/* ---- the driver, with one call that fails ---- */

static int calls_left; /* until the failing one */

static bool fails_now(void)
{
	return calls_left > 0 && --calls_left == 0;
}

static CUresult CUDAAPI unmap(CUdeviceptr ptr, size_t size)
{
	return fails_now() ? CUDA_ERROR_UNKNOWN : real.cuMemUnmap(ptr, size);
}

static CUresult CUDAAPI release(CUmemGenericAllocationHandle handle)
{
	return fails_now() ? CUDA_ERROR_UNKNOWN : real.cuMemRelease(handle);
}

static CUresult CUDAAPI create(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
			       unsigned long long flags)
{
	return fails_now() ? CUDA_ERROR_OUT_OF_MEMORY : real.cuMemCreate(handle, size, prop, flags);
}

static CUresult CUDAAPI map(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
			    unsigned long long flags)
{
	return fails_now() ? CUDA_ERROR_UNKNOWN : real.cuMemMap(ptr, size, offset, handle, flags);
}

static CUresult CUDAAPI set_access(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	return fails_now() ? CUDA_ERROR_UNKNOWN : real.cuMemSetAccess(ptr, size, desc, count);
}

static void break_driver(void)
{
	md_swap_real.cuMemUnmap = unmap;
	md_swap_real.cuMemRelease = release;
	md_swap_real.cuMemCreate = create;
	md_swap_real.cuMemMap = map;
	md_swap_real.cuMemSetAccess = set_access;
}

/* ---- memory that is mapped twice, so that a failure can come between ---- */

struct twice {
	CUdeviceptr address;
	struct md_swap_range *ranges;
	size_t count, free_before;
};

static size_t free_bytes(void)
{
	size_t now, total;
	ok(real.cuMemGetInfo_v2(&now, &total));
	return now;
}

static struct twice make_twice(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	struct twice twice;
	struct md_error err = {0};
	ok(md_cuda.cuMemAddressReserve(&twice.address, 4 * MB, 0, 0, 0));
	ok(md_cuda.cuMemCreate(&handle, 2 * MB, &prop, 0));
	ok(md_cuda.cuMemMap(twice.address, 2 * MB, 0, handle, 0));
	ok(md_cuda.cuMemMap(twice.address + 2 * MB, 2 * MB, 0, handle, 0));
	ok(md_cuda.cuMemSetAccess(twice.address, 4 * MB, &access, 1));
	ok(md_cuda.cuMemsetD8_v2(twice.address, 0x3c, 2 * MB));
	cr_assert_eq(md_swap_gate_close(10000000000u, &err), MD_OK, "%s", err.message);
	cr_assert_eq(md_swap_memory_list(&twice.ranges, &twice.count, &err), MD_OK, "%s", err.message);
	cr_assert_eq(twice.count, 1, "%zu ranges", twice.count);
	twice.free_before = free_bytes();
	return twice;
}

static void assert_whole(const struct twice *twice, int call)
{
	unsigned char got[256];
	for (size_t at = 0; at < 4 * MB; at += MB) {
		ok(real.cuMemcpyDtoH_v2(got, twice->address + at, sizeof(got)));
		for (size_t i = 0; i < sizeof(got); i++)
			cr_assert_eq(got[i], 0x3c, "call %d: byte %zu is %u", call, at + i, got[i]);
	}
}

Test(swap_physical, a_failure_on_the_way_out_changes_nothing)
{
	struct twice twice = make_twice();
	struct md_error err = {0};
	int call = 1;
	for (;; call++) {
		break_driver();
		calls_left = call;
		enum md_status status = md_swap_memory_unmap(&twice.ranges[0], &err);
		md_swap_real = real;
		if (status == MD_OK)
			break;
		cr_assert(strstr(err.message, "2097152 bytes at 0x"), "\"%s\" does not say where", err.message);
		assert_whole(&twice, call);
		cr_assert_eq(free_bytes(), twice.free_before, "call %d: memory was lost", call);
	}
	free(twice.ranges);
	cr_assert_eq(call, 4, "%d calls of the driver were tried", call - 1);
	cr_assert_eq(free_bytes(), twice.free_before + 2 * MB, "the memory did not go");
}

Test(swap_physical, a_failure_on_the_way_in_leaves_it_out)
{
	struct twice twice = make_twice();
	struct md_error err = {0};
	int call = 1;
	cr_assert_eq(md_swap_memory_unmap(&twice.ranges[0], &err), MD_OK, "%s", err.message);
	for (;; call++) {
		break_driver();
		calls_left = call;
		enum md_status status = md_swap_memory_map(&twice.ranges[0], &err);
		md_swap_real = real;
		if (status == MD_OK)
			break;
		cr_assert_eq(status, call == 1 ? MD_ERR_DRIVER_MEMORY : MD_ERR_DRIVER, "call %d: %s", call,
			     err.message);
		cr_assert_eq(free_bytes(), twice.free_before + 2 * MB, "call %d: memory was left there", call);
	}
	cr_assert_eq(call, 6, "%d calls of the driver were tried", call - 1);
	ok(real.cuMemsetD8_v2(twice.address, 0x3c, 2 * MB));
	ok(real.cuCtxSynchronize());
	assert_whole(&twice, call);
	free(twice.ranges);
}

/* Allocating fails cleanly, too. */
Test(swap_physical, a_failing_allocation_leaves_nothing)
{
	CUdeviceptr address = 0;
	size_t before = free_bytes();
	int call = 1;
	for (;; call++) {
		break_driver();
		calls_left = call;
		CUresult result = md_cuda.cuMemAlloc_v2(&address, 5 * MB);
		md_swap_real = real;
		if (result == CUDA_SUCCESS && call > 1)
			break;
		if (result == CUDA_SUCCESS)
			ok(md_cuda.cuMemFree_v2(address));
		struct md_swap_totals totals;
		md_swap_memory_totals(&totals);
		cr_assert_eq(free_bytes() + totals.kept, before, "call %d: memory was lost", call);
		cr_assert_lt(call, 10, "the driver fails for ever");
	}
}
