/* SPDX-License-Identifier: Apache-2.0 */
/* Every family of device memory goes away and comes back at its address, and behaves as the driver's own. */
#include <criterion/criterion.h>

#include "swap/gate.h"
#include "swap/layer.h"
#include "swap/swap_memory.h"
#include "tests/fine.h"
#include "tests/hostcuda_fixture.h"

#define SECOND 1000000000u
#define MB ((size_t)1 << 20)

static void set_up(void)
{
	device_open();
	struct md_cuda table = md_swap_real;
	md_swap_layer(&table); /* the reference brings the layer into this program */
	cr_assert_eq(table.cuMemAlloc_v2, md_cuda.cuMemAlloc_v2, "md_cuda leads past the layer");
}

TestSuite(swap_memory, .init = set_up, .fini = device_close, .timeout = 60);

static struct md_swap_range *ranges;
static size_t range_count;

/* Takes everything away; `kept` has the bytes of each range. */
static unsigned char *kept[4096];

static void go_out(void)
{
	fine(md_swap_gate_close(10ull * SECOND, &err));
	fine(md_swap_memory_list(&ranges, &range_count, &err));
	cr_assert_leq(range_count, 4096, "%zu ranges", range_count);
	for (size_t i = 0; i < range_count; i++) {
		if (ranges[i].flags & MD_SWAP_RESIDENT)
			continue;
		kept[i] = malloc(ranges[i].bytes);
		ok(md_swap_real.cuMemcpyDtoH_v2(kept[i], ranges[i].address, ranges[i].bytes));
		fine(md_swap_memory_unmap(&ranges[i], &err));
	}
}

static void come_in(void)
{
	for (size_t i = 0; i < range_count; i++) {
		if (ranges[i].flags & MD_SWAP_RESIDENT)
			continue;
		fine(md_swap_memory_map(&ranges[i], &err));
		ok(md_swap_real.cuMemcpyHtoD_v2(ranges[i].address, kept[i], ranges[i].bytes));
		free(kept[i]);
	}
	free(ranges);
	md_swap_gate_open();
}

static void fill(CUdeviceptr address, size_t bytes, unsigned char value)
{
	ok(md_cuda.cuMemsetD8_v2(address, value, bytes));
}

static void assert_filled(CUdeviceptr address, size_t bytes, unsigned char value, const char *what)
{
	unsigned char *got = malloc(bytes);
	ok(md_cuda.cuMemcpyDtoH_v2(got, address, bytes));
	for (size_t i = 0; i < bytes; i++)
		cr_assert_eq(got[i], value, "%s: byte %zu is %u, not %u", what, i, got[i], value);
	free(got);
}

static size_t free_bytes(void)
{
	size_t free_now, total;
	ok(md_swap_real.cuMemGetInfo_v2(&free_now, &total));
	return free_now;
}

Test(swap_memory, allocations_come_back_at_their_addresses)
{
	static const size_t sizes[] = {1, 256, 513, 100000, MB, MB + 1, 3 * MB, 20 * MB};
	CUdeviceptr address[8];
	size_t before = free_bytes();
	for (unsigned i = 0; i < 8; i++) {
		ok(md_cuda.cuMemAlloc_v2(&address[i], sizes[i]));
		cr_assert_eq(address[i] % 512, 0, "%zu bytes at 0x%llx", sizes[i], address[i]);
		fill(address[i], sizes[i], (unsigned char)(17 * i + 3));
	}
	go_out();
	cr_assert_eq(free_bytes(), before, "%zu bytes are free while all is away, %zu before", free_bytes(), before);
	come_in();
	for (unsigned i = 0; i < 8; i++) {
		assert_filled(address[i], sizes[i], (unsigned char)(17 * i + 3), "after a swap");
		ok(md_cuda.cuMemFree_v2(address[i]));
	}
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemFree_v2(address[0]));
}

Test(swap_memory, two_hundred_cycles_grow_nothing)
{
	CUdeviceptr small, large;
	ok(md_cuda.cuMemAlloc_v2(&small, 1000));
	ok(md_cuda.cuMemAlloc_v2(&large, 5 * MB));
	fill(small, 1000, 0x5a);
	fill(large, 5 * MB, 0xa5);
	size_t before = free_bytes();
	for (unsigned i = 0; i < 200; i++) {
		go_out();
		come_in();
	}
	cr_assert_eq(free_bytes(), before, "%zu bytes are free after the cycles, %zu before", free_bytes(), before);
	assert_filled(small, 1000, 0x5a, "small");
	assert_filled(large, 5 * MB, 0xa5, "large");
}

Test(swap_memory, pitched_memory_comes_back)
{
	CUdeviceptr address;
	size_t pitch;
	ok(md_cuda.cuMemAllocPitch_v2(&address, &pitch, 1001, 10, 4));
	cr_assert_eq(pitch, 1024, "the pitch is %zu", pitch);
	fill(address, pitch * 10, 9);
	go_out();
	come_in();
	assert_filled(address, pitch * 10, 9, "pitched");
}

Test(swap_memory, pointers_answer_as_the_drivers_do)
{
	CUdeviceptr small, large, base, at;
	CUcontext context, current;
	size_t size;
	unsigned type;
	int device;
	ok(md_cuda.cuMemAlloc_v2(&small, 1000));
	ok(md_cuda.cuMemAlloc_v2(&large, 3 * MB));
	ok(md_cuda.cuMemGetAddressRange_v2(&base, &size, small + 999));
	cr_assert(base == small && size == 1000, "a small range is 0x%llx, %zu", base, size);
	ok(md_cuda.cuMemGetAddressRange_v2(&base, &size, large + 2 * MB));
	cr_assert(base == large && size == 3 * MB, "a large range is 0x%llx, %zu", base, size);
	cr_assert_neq(md_cuda.cuMemGetAddressRange_v2(&base, &size, small + 1024), CUDA_SUCCESS,
		      "what was not allocated has a range");
	ok(md_cuda.cuCtxGetCurrent(&current));
	ok(md_cuda.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, small + 8));
	cr_assert_eq(context, current, "another context");
	ok(md_cuda.cuPointerGetAttribute(&at, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, large + 8));
	cr_assert_eq(at, large, "another start");
	CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	void *answers[] = {&context, &type, &device, &size};
	context = NULL;
	ok(md_cuda.cuPointerGetAttributes(4, asked, answers, small + 1));
	cr_assert(context == current && type == CU_MEMORYTYPE_DEVICE && device == 0 && size == 1000, "%u %d %zu", type,
		  device, size);
}

Test(swap_memory, the_engines_own_mappings_come_back)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle[3], again;
	CUdeviceptr address;
	ok(md_cuda.cuMemAddressReserve(&address, 16 * MB, 0, 0, 0));
	for (unsigned i = 0; i < 3; i++) {
		ok(md_cuda.cuMemCreate(&handle[i], 2 * MB, &prop, 0));
		ok(md_cuda.cuMemMap(address + 2 * MB * i, 2 * MB, 0, handle[i], 0));
	}
	ok(md_cuda.cuMemSetAccess(address, 6 * MB, &access, 1));
	fill(address, 6 * MB, 0x77);
	ok(md_cuda.cuMemRelease(handle[1])); /* mapped, it lives on */
	go_out();
	cr_assert_eq(range_count, 3, "%zu ranges", range_count);
	come_in();
	assert_filled(address, 6 * MB, 0x77, "mapped");
	ok(md_cuda.cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(address + 1)));
	cr_assert_eq(again, handle[0], "the engine's handle changed");
	ok(md_cuda.cuMemGetAllocationPropertiesFromHandle(&prop, again));
	ok(md_cuda.cuMemRelease(again));
	ok(md_cuda.cuMemUnmap(address, 4 * MB));
	ok(md_cuda.cuMemRelease(handle[0]));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemRelease(handle[0]));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemMap(address, 2 * MB, 0, handle[1], 0));
	ok(md_cuda.cuMemMap(address, 2 * MB, 0, handle[2], 0)); /* the same memory at two addresses */
	ok(md_cuda.cuMemSetAccess(address, 2 * MB, &access, 1));
	fill(address + 4 * MB, 2 * MB, 0x11);
	go_out();
	cr_assert_eq(range_count, 1, "%zu ranges for memory that is mapped twice", range_count);
	come_in();
	assert_filled(address, 2 * MB, 0x11, "the other mapping");
	ok(md_cuda.cuMemUnmap(address, 2 * MB));
	ok(md_cuda.cuMemUnmap(address + 4 * MB, 2 * MB));
	ok(md_cuda.cuMemRelease(handle[2]));
	ok(md_cuda.cuMemAddressFree(address, 16 * MB));
}

static void set_up_two_devices(void)
{
	setenv("HOSTCUDA_DEVICES", "2", 1);
	set_up();
}

TestSuite(swap_memory_devices, .init = set_up_two_devices, .fini = device_close, .timeout = 60);

/* Nothing could hash or copy it. */
Test(swap_memory_devices, memory_on_a_device_without_a_context_stays)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
	CUmemAccessDesc access[2] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
				     {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	CUcontext other;
	only_on_hostcuda("its settings");
	ok(md_cuda.cuMemAddressReserve(&address, 2 * MB, 0, 0, 0));
	ok(md_cuda.cuMemCreate(&handle, 2 * MB, &prop, 0));
	ok(md_cuda.cuMemMap(address, 2 * MB, 0, handle, 0));
	ok(md_cuda.cuMemSetAccess(address, 2 * MB, access, 2));
	fill(address, 2 * MB, 0x33);
	go_out();
	cr_assert_eq(range_count, 1, "%zu ranges", range_count);
	cr_assert(ranges[0].flags & MD_SWAP_RESIDENT, "it may go");
	cr_assert_str_eq(ranges[0].why, "on a device on which the process has no context");
	come_in();
	assert_filled(address, 2 * MB, 0x33, "memory that stays");
	ok(md_cuda.cuDevicePrimaryCtxRetain(&other, 1));
	go_out();
	cr_assert(!(ranges[0].flags & MD_SWAP_RESIDENT), "it stays: %s", ranges[0].why);
	come_in();
	assert_filled(address, 2 * MB, 0x33, "memory that has come back");
	ok(md_cuda.cuDevicePrimaryCtxRelease_v2(1));
}

Test(swap_memory, exported_memory_stays)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;
	int fd;
	ok(md_cuda.cuMemCreate(&handle, 2 * MB, &prop, 0));
	ok(md_cuda.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	go_out();
	cr_assert_eq(range_count, 1, "%zu ranges", range_count);
	cr_assert(ranges[0].flags & MD_SWAP_RESIDENT, "exported memory may go");
	cr_assert_str_eq(ranges[0].why, "exported to other processes");
	struct md_error err;
	cr_assert_eq(md_swap_memory_unmap(&ranges[0], &err), MD_ERR_UNSUPPORTED, "it went");
	come_in();
}

Test(swap_memory, stream_ordered_memory_comes_back_and_is_taken_again)
{
	CUdeviceptr first, second, third;
	CUstream stream;
	ok(md_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(md_cuda.cuMemAllocAsync(&first, 3 * MB, stream));
	ok(md_cuda.cuMemsetD8Async(first, 0x42, 3 * MB, stream));
	go_out();
	cr_assert_eq(range_count, 1, "%zu ranges", range_count);
	come_in();
	assert_filled(first, 3 * MB, 0x42, "ordered");
	ok(md_cuda.cuMemFreeAsync(first, stream));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemFreeAsync(first, stream));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemFree_v2(first));
	ok(md_cuda.cuMemAllocAsync(&second, 3 * MB, stream));
	cr_assert_eq(first, second, "the stream's own memory was not taken again");
	ok(md_cuda.cuMemFree_v2(second));
	ok(md_cuda.cuMemAllocAsync(&third, 1000, stream));
	ok(md_cuda.cuMemFreeAsync(third, stream));
	go_out();
	cr_assert_eq(range_count, 0, "what was freed is in the list: %zu ranges", range_count);
	come_in();
}

Test(swap_memory, pools_count_and_trim)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemoryPool pool, asked;
	CUdeviceptr address;
	cuuint64_t threshold = UINT64_MAX, value;
	size_t before = free_bytes();
	ok(md_cuda.cuMemPoolCreate(&pool, &props));
	ok(md_cuda.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	ok(md_cuda.cuMemAllocFromPoolAsync(&address, 100 * MB, pool, NULL));
	ok(md_cuda.cuPointerGetAttribute(&asked, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
	cr_assert_eq(asked, pool, "another pool");
	ok(md_cuda.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
	cr_assert_eq(value, 100 * MB, "%llu bytes are used", (unsigned long long)value);
	ok(md_cuda.cuMemFreeAsync(address, NULL));
	ok(md_cuda.cuCtxSynchronize());
	ok(md_cuda.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
	cr_assert_eq(value, 0, "%llu bytes are used", (unsigned long long)value);
	ok(md_cuda.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value));
	cr_assert_eq(value, 100 * MB, "%llu bytes are reserved", (unsigned long long)value);
	ok(md_cuda.cuMemPoolTrimTo(pool, 0));
	cr_assert_eq(free_bytes(), before, "the pool was not trimmed");
	ok(md_cuda.cuMemPoolDestroy(pool));
}

Test(swap_memory, memory_goes_with_its_context)
{
	CUcontext context;
	CUdeviceptr address;
	size_t before = free_bytes();
	ok(md_cuda.cuCtxCreate_v2(&context, 0, 0));
	ok(md_cuda.cuMemAlloc_v2(&address, 100));
	ok(md_cuda.cuMemAlloc_v2(&address, 10 * MB));
	ok(md_cuda.cuCtxDestroy_v2(context));
	cr_assert_eq(free_bytes(), before, "%zu bytes are free, %zu before", free_bytes(), before);
}

/* What is taken in a green context or by its stream belongs to the primary one. */
Test(swap_memory, memory_of_a_green_context_stays)
{
	CUcontext primary, as_context;
	CUdeviceptr small, large, ordered;
	CUgreenCtx green = make_green(0);
	CUstream stream;
	ok(md_cuda.cuCtxGetCurrent(&primary));
	ok(md_cuda.cuCtxFromGreenCtx(&as_context, green));
	ok(md_cuda.cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
	ok(md_cuda.cuMemAllocAsync(&ordered, 5 * MB, stream));
	ok(md_cuda.cuCtxSetCurrent(as_context));
	ok(md_cuda.cuMemAlloc_v2(&small, 100));
	ok(md_cuda.cuMemAlloc_v2(&large, 10 * MB));
	fill(small, 100, 0x11);
	fill(large, 10 * MB, 0x22);
	ok(md_cuda.cuStreamSynchronize(stream));
	fill(ordered, 5 * MB, 0x33);
	go_out();
	for (size_t i = 0; i < range_count; i++)
		cr_assert_eq(ranges[i].context, primary, "range %zu is of another context", i);
	come_in();
	ok(md_cuda.cuStreamDestroy_v2(stream));
	ok(md_cuda.cuCtxSetCurrent(primary));
	ok(md_cuda.cuGreenCtxDestroy(green));
	go_out();
	come_in();
	assert_filled(small, 100, 0x11, "small memory");
	assert_filled(large, 10 * MB, 0x22, "large memory");
	assert_filled(ordered, 5 * MB, 0x33, "memory of a stream");
	ok(md_cuda.cuMemFree_v2(small));
	ok(md_cuda.cuMemFree_v2(large));
	ok(md_cuda.cuMemFree_v2(ordered));
}

/* Freed during a capture, memory waits; its context may go first, and its address to another allocation. */
Test(swap_memory, what_waits_for_a_capture_goes_with_its_context)
{
	CUcontext current, other;
	CUdeviceptr freed, mine, next;
	CUstream stream;
	CUgraph graph;
	ok(md_cuda.cuCtxGetCurrent(&current));
	ok(md_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(md_cuda.cuCtxCreate_v2(&other, 0, 0));
	ok(md_cuda.cuMemAlloc_v2(&freed, 3 * MB));
	ok(md_cuda.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(md_cuda.cuMemFree_v2(freed));
	ok(md_cuda.cuStreamEndCapture(stream, &graph));
	ok(md_cuda.cuCtxDestroy_v2(other));
	ok(md_cuda.cuCtxSetCurrent(current));
	ok(md_cuda.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(md_cuda.cuMemAlloc_v2(&mine, 3 * MB));
	ok(md_cuda.cuStreamEndCapture(stream, &graph));
	if (on_hostcuda())
		cr_assert_eq(mine, freed, "the address is another one, and the test of no use");
	fill(mine, 3 * MB, 0x2a);
	ok(md_cuda.cuMemAlloc_v2(&next, 3 * MB)); /* gives back what has waited */
	fill(next, 3 * MB, 0x11);
	cr_assert_neq(mine, next, "memory in use is given away");
	assert_filled(mine, 3 * MB, 0x2a, "memory in use");
	ok(md_cuda.cuMemFree_v2(mine));
	ok(md_cuda.cuMemFree_v2(next));
	ok(md_cuda.cuStreamDestroy_v2(stream));
}

Test(swap_memory, what_is_kept_goes_when_memory_is_short)
{
	CUdeviceptr address[64];
	size_t before = free_bytes(), said, total;
	unsigned count = 0;
	ok(md_cuda.cuMemAlloc_v2(&address[0], 40 * MB));
	ok(md_cuda.cuMemFree_v2(address[0]));
	ok(md_cuda.cuMemGetInfo_v2(&said, &total));
	cr_assert_eq(said, before, "%zu bytes are said to be free, %zu are", said, before);
	while (count < 64 && md_cuda.cuMemAlloc_v2(&address[count], before / 32 - 2 * MB) == CUDA_SUCCESS)
		count++;
	cr_assert_geq(count, 31, "only %u thirty-seconds of the device could be allocated", count);
	while (count)
		ok(md_cuda.cuMemFree_v2(address[--count]));
}
