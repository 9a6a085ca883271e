/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory: accounting, refusals, copies and sets of every shape, host memory, pointer queries, faults. */
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hostcuda_fixture.h"

TestSuite(hostcuda_memory, .init = device_open, .fini = device_close);

Test(hostcuda_memory, capacity_is_real)
{
	size_t before, during, after, total;
	CUdeviceptr address, more;
	ok(md_cuda.cuMemGetInfo_v2(&before, &total));
	ok(md_cuda.cuMemAlloc_v2(&address, 64 << 20));
	ok(md_cuda.cuMemGetInfo_v2(&during, &total));
	cr_assert_geq(before - during, 64u << 20, "free memory fell by %zu only", before - during);
	refused(CUDA_ERROR_OUT_OF_MEMORY, md_cuda.cuMemAlloc_v2(&more, total));
	ok(md_cuda.cuMemFree_v2(address));
	ok(md_cuda.cuMemGetInfo_v2(&after, &total));
	cr_assert_eq(after, before, "%zu bytes did not come back", before - after);
}

Test(hostcuda_memory, zero_bytes_and_foreign_frees_are_refused)
{
	CUdeviceptr address;
	ok(md_cuda.cuMemFree_v2(0));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemAlloc_v2(&address, 0));
	ok(md_cuda.cuMemAlloc_v2(&address, 4096));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemFree_v2(address + 512));
	ok(md_cuda.cuMemFree_v2(address));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemFree_v2(address));
}

Test(hostcuda_memory, addresses_are_aligned_and_reused)
{
	CUdeviceptr small, large, again;
	ok(md_cuda.cuMemAlloc_v2(&small, 1));
	ok(md_cuda.cuMemAlloc_v2(&large, 4 << 20));
	cr_assert_eq(small % 512, 0);
	cr_assert_eq(large % (2 << 20), 0);
	ok(md_cuda.cuMemFree_v2(large));
	ok(md_cuda.cuMemAlloc_v2(&again, 4 << 20));
	cr_assert_eq(again, large, "a freed range should be the next to be handed out");
	ok(md_cuda.cuMemFree_v2(again));
	ok(md_cuda.cuMemFree_v2(small));
}

Test(hostcuda_memory, copies_past_the_end_are_refused)
{
	CUdeviceptr address;
	char host[128] = {0};
	only_on_hostcuda("a real allocator rounds sizes up");
	ok(md_cuda.cuMemAlloc_v2(&address, 100));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemcpyHtoD_v2(address, host, 101));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemcpyDtoH_v2(host, address + 99, 2));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemsetD8_v2(address, 1, 101));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemcpyDtoD_v2(address, (CUdeviceptr)(uintptr_t)host, 8));
	ok(md_cuda.cuMemFree_v2(address));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemcpyDtoH_v2(host, address, 1));
}

Test(hostcuda_memory, flat_copies_and_sets)
{
	unsigned char host[256], back[256];
	CUdeviceptr a, b;
	for (int i = 0; i < 256; i++)
		host[i] = (unsigned char)i;
	ok(md_cuda.cuMemAlloc_v2(&a, 256));
	ok(md_cuda.cuMemAlloc_v2(&b, 256));
	ok(md_cuda.cuMemcpyHtoD_v2(a, host, 256));
	ok(md_cuda.cuMemsetD8_v2(b, 0xee, 256));
	ok(md_cuda.cuMemcpyDtoD_v2(b + 16, a + 32, 64));
	ok(md_cuda.cuMemsetD16_v2(b + 100, 0x1234, 2));
	ok(md_cuda.cuMemsetD32_v2(b + 128, 0xdeadbeef, 1));
	ok(md_cuda.cuMemcpy((CUdeviceptr)(uintptr_t)back, b, 256));
	cr_assert_eq(back[15], 0xee);
	cr_assert_eq(back[16], 32);
	cr_assert_eq(back[79], 95);
	cr_assert_eq(back[80], 0xee);
	cr_assert(back[100] == 0x34 && back[101] == 0x12 && back[102] == 0x34 && back[104] == 0xee, "16-bit set");
	cr_assert(back[128] == 0xef && back[131] == 0xde && back[132] == 0xee, "32-bit set");
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemsetD32_v2(b + 2, 0, 1));
	ok(md_cuda.cuMemFree_v2(a));
	ok(md_cuda.cuMemFree_v2(b));
}

Test(hostcuda_memory, pitched_copy_and_set)
{
	unsigned char host[3 * 8], back[3 * 8];
	CUdeviceptr pitched;
	size_t pitch;
	for (int i = 0; i < 24; i++)
		host[i] = (unsigned char)(i + 1);
	ok(md_cuda.cuMemAllocPitch_v2(&pitched, &pitch, 10, 3, 4));
	cr_assert_geq(pitch, 10);
	ok(md_cuda.cuMemsetD2D8Async(pitched, pitch, 7, 10, 3, NULL));
	CUDA_MEMCPY2D up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
			    .srcHost = host,
			    .srcPitch = 8,
			    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			    .dstDevice = pitched,
			    .dstPitch = pitch,
			    .dstXInBytes = 1,
			    .WidthInBytes = 8,
			    .Height = 3};
	ok(md_cuda.cuMemcpy2DAsync_v2(&up, NULL));
	CUDA_MEMCPY2D down = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			      .srcDevice = pitched,
			      .srcPitch = pitch,
			      .dstMemoryType = CU_MEMORYTYPE_HOST,
			      .dstHost = back,
			      .dstPitch = 8,
			      .WidthInBytes = 8,
			      .Height = 3};
	ok(md_cuda.cuMemcpy2DAsync_v2(&down, NULL));
	ok(md_cuda.cuStreamSynchronize(NULL));
	for (int row = 0; row < 3; row++) {
		cr_assert_eq(back[row * 8], 7, "row %d keeps its first byte", row);
		cr_assert_eq(back[row * 8 + 1], row * 8 + 1, "row %d is shifted by one", row);
	}
	down.WidthInBytes = pitch + 1;
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemcpy2DAsync_v2(&down, NULL));
	ok(md_cuda.cuMemFree_v2(pitched));
}

Test(hostcuda_memory, box_copy)
{
	int host[2 * 3 * 4], back[2 * 3 * 4] = {0};
	for (int i = 0; i < 24; i++)
		host[i] = i;
	CUdeviceptr box = device_ints(-1, 24);
	CUDA_MEMCPY3D up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
			    .srcHost = host,
			    .srcPitch = 16,
			    .srcHeight = 3,
			    .srcZ = 1,
			    .srcY = 1,
			    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			    .dstDevice = box,
			    .dstPitch = 16,
			    .dstHeight = 3,
			    .WidthInBytes = 8,
			    .Height = 2,
			    .Depth = 1};
	ok(md_cuda.cuMemcpy3DAsync_v2(&up, NULL));
	ok(md_cuda.cuMemcpyDtoH_v2(back, box, sizeof(back)));
	cr_assert(back[0] == 16 && back[1] == 17 && back[2] == -1 && back[4] == 20 && back[8] == -1,
		  "rows 1 and 2 of plane 1");
	ok(md_cuda.cuMemFree_v2(box));
}

Test(hostcuda_memory, pointers_tell_what_they_are)
{
	CUdeviceptr address, base, managed;
	CUcontext context, current;
	size_t size;
	unsigned type, is_managed;
	void *host, *as_host;
	ok(md_cuda.cuCtxGetCurrent(&current));
	ok(md_cuda.cuMemAlloc_v2(&address, 1000));
	ok(md_cuda.cuMemGetAddressRange_v2(&base, &size, address + 500));
	cr_assert(base == address && size == 1000);
	ok(md_cuda.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address + 10));
	cr_assert_eq(context, current);
	ok(md_cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
	cr_assert_eq(type, CU_MEMORYTYPE_DEVICE);
	ok(md_cuda.cuMemHostAlloc(&host, 100, CU_MEMHOSTALLOC_DEVICEMAP));
	ok(md_cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)host));
	cr_assert_eq(type, CU_MEMORYTYPE_HOST);
	ok(md_cuda.cuPointerGetAttribute(&as_host, CU_POINTER_ATTRIBUTE_HOST_POINTER, (CUdeviceptr)(uintptr_t)host));
	cr_assert_eq(as_host, host);
	ok(md_cuda.cuMemAllocManaged(&managed, 100, CU_MEM_ATTACH_GLOBAL));
	ok(md_cuda.cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed));
	cr_assert_eq(is_managed, 1);
	refused(CUDA_ERROR_INVALID_VALUE,
		md_cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&type));
	ok(md_cuda.cuMemFree_v2(managed));
	ok(md_cuda.cuMemFreeHost(host));
	ok(md_cuda.cuMemFree_v2(address));
}

Test(hostcuda_memory, registered_host_memory)
{
	static int host[4096];
	CUdeviceptr device;
	ok(md_cuda.cuMemHostRegister_v2(host, sizeof(host), CU_MEMHOSTREGISTER_DEVICEMAP));
	refused(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, md_cuda.cuMemHostRegister_v2(host, sizeof(host), 0));
	ok(md_cuda.cuMemHostGetDevicePointer_v2(&device, host, 0));
	ok(md_cuda.cuMemsetD32_v2(device, 9, 4096));
	ok(md_cuda.cuCtxSynchronize());
	cr_assert_eq(host[4095], 9);
	ok(md_cuda.cuMemHostUnregister(host));
	refused(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, md_cuda.cuMemHostUnregister(host));
}

Test(hostcuda_memory, stream_ordered_memory)
{
	CUstream stream;
	CUdeviceptr address;
	CUmemoryPool pool, of_pointer;
	int back[64];
	ok(md_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(md_cuda.cuDeviceGetDefaultMemPool(&pool, 0));
	ok(md_cuda.cuMemAllocFromPoolAsync(&address, 256, pool, stream));
	ok(md_cuda.cuPointerGetAttribute(&of_pointer, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
	cr_assert_eq(of_pointer, pool);
	ok(md_cuda.cuMemsetD32Async(address, 4, 64, stream));
	ok(md_cuda.cuMemcpyDtoHAsync_v2(back, address, 256, stream));
	ok(md_cuda.cuMemFreeAsync(address, stream));
	ok(md_cuda.cuStreamSynchronize(stream));
	cr_assert_eq(back[63], 4);
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemFreeAsync(address, stream));
	ok(md_cuda.cuStreamDestroy_v2(stream));
}

Test(hostcuda_memory, a_kernel_on_freed_memory_fails_the_context)
{
	only_on_hostcuda("a real device may leave freed pages mapped");
	CUmodule module = load_module();
	CUdeviceptr address = device_ints(1, 64), other;
	ok(md_cuda.cuMemFree_v2(address));
	ok(launch_scale(function_named(module, "scale"), NULL, address, 2, 64));
	refused(CUDA_ERROR_ILLEGAL_ADDRESS, md_cuda.cuCtxSynchronize());
	refused(CUDA_ERROR_ILLEGAL_ADDRESS, md_cuda.cuMemAlloc_v2(&other, 64));
	refused(CUDA_ERROR_ILLEGAL_ADDRESS, md_cuda.cuStreamSynchronize(NULL));
	ok(md_cuda.cuDevicePrimaryCtxReset_v2(0));
	device_open();
	ok(md_cuda.cuMemAlloc_v2(&other, 64));
	ok(md_cuda.cuMemFree_v2(other));
}

Test(hostcuda_memory, a_kernel_past_the_end_fails_the_context)
{
	only_on_hostcuda("a real device faults only where no memory is mapped");
	CUmodule module = load_module();
	CUdeviceptr address = device_ints(1, 64);
	ok(launch_scale(function_named(module, "scale"), NULL, address, 2, 4096));
	refused(CUDA_ERROR_ILLEGAL_ADDRESS, md_cuda.cuCtxSynchronize());
}

Test(hostcuda_memory, the_context_takes_its_memory_along)
{
	size_t before, after, total;
	CUdeviceptr address;
	CUcontext context;
	ok(md_cuda.cuMemGetInfo_v2(&before, &total));
	ok(md_cuda.cuCtxCreate_v2(&context, 0, 0));
	ok(md_cuda.cuMemAlloc_v2(&address, 32 << 20));
	ok(md_cuda.cuCtxDestroy_v2(context));
	ok(md_cuda.cuMemGetInfo_v2(&after, &total));
	cr_assert_geq(after + (8 << 20), before, "%zu bytes stayed behind", before - after);
}

#define NOT_HOSTCUDA 1

/* Where a fresh process finds its first allocation. */
static unsigned long long address_in_child(void)
{
	int ends[2];
	unsigned long long address = 0;
	cr_assert_eq(pipe(ends), 0);
	if (!fork()) {
		CUdeviceptr first;
		CUcontext context;
		struct md_error err;
		bool made = md_cuda_load(&err) == MD_OK && !md_cuda.cuInit(0) &&
			    !md_cuda.cuCtxCreate_v2(&context, 0, 0) && !md_cuda.cuMemAlloc_v2(&first, 4096);
		address = !made ? 0 : on_hostcuda() ? first : NOT_HOSTCUDA;
		_exit(write(ends[1], &address, sizeof(address)) != sizeof(address));
	}
	cr_assert_eq(read(ends[0], &address, sizeof(address)), sizeof(address));
	wait(NULL);
	return address;
}

Test(hostcuda_addresses, differ_in_every_process)
{
	unsigned long long one = address_in_child(), two = address_in_child();
	if (one == NOT_HOSTCUDA)
		skip("a real driver moves its addresses only now and then");
	cr_assert(one && two, "a child could not allocate");
	cr_assert_neq(one, two, "both at %llx", one);
}

Test(hostcuda_settings, capacity_and_devices_come_from_the_environment)
{
	struct md_error err;
	int count;
	size_t total;
	setenv("HOSTCUDA_MEM", "48M", 1);
	setenv("HOSTCUDA_DEVICES", "3", 1);
	cr_assert_eq(md_cuda_load(&err), MD_OK, "%s", err.message);
	ok(md_cuda.cuInit(0));
	only_on_hostcuda("its settings");
	ok(md_cuda.cuDeviceGetCount(&count));
	cr_assert_eq(count, 3);
	ok(md_cuda.cuDeviceTotalMem_v2(&total, 2));
	cr_assert_eq(total, 48u << 20);
	refused(CUDA_ERROR_INVALID_DEVICE, md_cuda.cuDeviceTotalMem_v2(&total, 3));
}

/* Of three devices in the machine, the process has so many; `first` is the place of its device 0. */
static void assert_visible(const char *names, int devices, int first)
{
	struct md_error err;
	CUuuid uuid;
	int count;
	setenv("HOSTCUDA_DEVICES", "3", 1);
	setenv("CUDA_VISIBLE_DEVICES", names, 1);
	const char *device = getenv("MEDUSA_DEVICE");
	if (device && !strcmp(device, "gpu"))
		skip("it is about hostcuda's devices");
	cr_assert_eq(md_cuda_load(&err), MD_OK, "%s", err.message);
	if (!devices) {
		refused(CUDA_ERROR_NO_DEVICE, md_cuda.cuInit(0));
		return;
	}
	ok(md_cuda.cuInit(0));
	ok(md_cuda.cuDeviceGetCount(&count));
	cr_assert_eq(count, devices, "%s: %d devices", names, count);
	ok(md_cuda.cuDeviceGetUuid_v2(&uuid, 0));
	cr_assert_eq(uuid.bytes[15], first, "%s: the first is %d", names, uuid.bytes[15]);
}

Test(hostcuda_settings, visible_devices_are_named_by_numbers)
{
	assert_visible("2, 0", 2, 2);
}

Test(hostcuda_settings, visible_devices_are_named_by_uuids)
{
	assert_visible("gpu-686F7374-6375-6461-0000-000000000001,0", 2, 1);
}

Test(hostcuda_settings, what_is_no_device_ends_the_list)
{
	assert_visible("1,7,0", 1, 1);
}

Test(hostcuda_settings, a_uuid_of_several_devices_names_none)
{
	assert_visible("GPU-686f", 0, 0);
}

Test(hostcuda_settings, a_device_that_is_named_twice_leaves_none)
{
	assert_visible("1,1", 0, 0);
}

Test(hostcuda_settings, an_empty_list_has_no_device)
{
	assert_visible("", 0, 0);
}

Test(hostcuda_settings, a_slow_link_takes_its_time)
{
	CUevent start, end;
	CUdeviceptr address;
	void *host;
	float ms;
	setenv("HOSTCUDA_H2D_GBPS", "0.1", 1);
	device_open();
	only_on_hostcuda("its settings");
	ok(md_cuda.cuMemAlloc_v2(&address, 4 << 20));
	ok(md_cuda.cuMemHostAlloc(&host, 4 << 20, 0));
	ok(md_cuda.cuEventCreate(&start, 0));
	ok(md_cuda.cuEventCreate(&end, 0));
	ok(md_cuda.cuEventRecord(start, NULL));
	ok(md_cuda.cuMemcpyHtoDAsync_v2(address, host, 4 << 20, NULL));
	ok(md_cuda.cuEventRecord(end, NULL));
	ok(md_cuda.cuEventSynchronize(end));
	ok(md_cuda.cuEventElapsedTime(&ms, start, end));
	cr_assert_geq(ms, 40, "4 MiB at 0.1 GB/s in %.1f ms", ms);
	ok(md_cuda.cuEventDestroy_v2(start));
	ok(md_cuda.cuEventDestroy_v2(end));
	ok(md_cuda.cuMemFreeHost(host));
	ok(md_cuda.cuMemFree_v2(address));
	device_close();
}
