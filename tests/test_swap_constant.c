/* SPDX-License-Identifier: Apache-2.0 */
/* What is declared constant: all of an allocation, at each address that it has. */
#include <criterion/criterion.h>

#include "swap/constant.h"
#include "swap/layer.h"
#include "tests/hostcuda_fixture.h"

#define MB ((size_t)1 << 20)

static void set_up(void)
{
	device_open();
	struct md_cuda table = md_swap_real;
	md_swap_layer(&table); /* the reference brings the layer into this program */
}

TestSuite(swap_constant, .init = set_up, .timeout = 60);

static bool is_constant(CUdeviceptr address)
{
	pthread_mutex_lock(&md_swap_memory_lock);
	struct md_swap_mapping *mapping = md_swap_mapping_at(address);
	bool constant = mapping && md_swap_constant_is(mapping->physical);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return constant;
}

/* 4 MiB, mapped at its address, and its first half behind that once more. */
static CUdeviceptr make_aliased(CUmemAllocationHandleType type)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = type,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	ok(md_cuda.cuMemAddressReserve(&address, 6 * MB, 0, 0, 0));
	ok(md_cuda.cuMemCreate(&handle, 4 * MB, &prop, 0));
	ok(md_cuda.cuMemMap(address, 4 * MB, 0, handle, 0));
	ok(md_cuda.cuMemMap(address + 4 * MB, 2 * MB, 0, handle, 0));
	ok(md_cuda.cuMemSetAccess(address, 6 * MB, &access, 1));
	ok(md_cuda.cuMemRelease(handle));
	return address;
}

Test(swap_constant, each_address_counts)
{
	CUdeviceptr address = make_aliased(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	md_swap_constant_bind("first", address, 4 * MB, true);
	cr_assert_not(is_constant(address), "nobody has said anything of the other address");
	md_swap_constant_bind("second", address + 4 * MB, 2 * MB, true);
	cr_assert(is_constant(address) && is_constant(address + 5 * MB), "both were declared");
	md_swap_constant_bind("word", address + 5 * MB, 4, false);
	cr_assert_not(is_constant(address), "a word is written by the other address");
}

Test(swap_constant, what_was_unmapped_is_not_known_any_more)
{
	CUdeviceptr address = make_aliased(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	md_swap_constant_bind("all", address, 6 * MB, true);
	cr_assert(is_constant(address), "it was declared");
	ok(md_cuda.cuMemUnmap(address, 6 * MB));
	cr_assert_not(is_constant(address), "nothing is there");
}

Test(swap_constant, memory_that_nobody_else_can_be_given)
{
	CUdeviceptr address = make_aliased(CU_MEM_HANDLE_TYPE_NONE);
	md_swap_constant_bind("all", address, 6 * MB, true);
	cr_assert_not(is_constant(address), "there is no descriptor of it");
}

Test(swap_constant, allocations)
{
	CUdeviceptr large, small;
	ok(md_cuda.cuMemAlloc_v2(&large, 3 * MB));
	ok(md_cuda.cuMemAlloc_v2(&small, MB));
	md_swap_constant_bind("large", large, 3 * MB, true);
	md_swap_constant_bind("small", small, MB, true);
	cr_assert(is_constant(large), "all that can be used of it was declared");
	cr_assert_not(is_constant(small), "it shares its memory with others");
	ok(md_cuda.cuMemFree_v2(large));
	cr_assert_not(is_constant(large), "it was freed");
	ok(md_cuda.cuMemAllocAsync(&large, 3 * MB, NULL));
	cr_assert_not(is_constant(large), "it is another allocation");
	md_swap_constant_bind("large", large, 3 * MB, true);
	cr_assert(is_constant(large), "it was declared");
	ok(md_cuda.cuMemFreeAsync(large, NULL));
	cr_assert_not(is_constant(large), "it was freed");
}
