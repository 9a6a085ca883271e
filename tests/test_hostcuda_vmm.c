/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management: reserve, create, map, access rights, sharing by file descriptor, accounting. */
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hostcuda_fixture.h"

static const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
static size_t unit;

static void open_with_unit(void)
{
	device_open();
	ok(md_cuda.cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
}

TestSuite(hostcuda_vmm, .init = open_with_unit, .fini = device_close);

static CUresult set_access(CUdeviceptr address, size_t size, CUmemAccess_flags flags)
{
	CUmemAccessDesc access = {.location = prop.location, .flags = flags};
	return md_cuda.cuMemSetAccess(address, size, &access, 1);
}

static CUdeviceptr mapped(CUmemGenericAllocationHandle handle, size_t size, CUmemAccess_flags flags)
{
	CUdeviceptr address;
	ok(md_cuda.cuMemAddressReserve(&address, size, 0, 0, 0));
	ok(md_cuda.cuMemMap(address, size, 0, handle, 0));
	ok(set_access(address, size, flags));
	return address;
}

static void unmapped(CUdeviceptr address, size_t size)
{
	ok(md_cuda.cuMemUnmap(address, size));
	ok(md_cuda.cuMemAddressFree(address, size));
}

Test(hostcuda_vmm, contents_survive_another_mapping)
{
	CUmemGenericAllocationHandle handle;
	ok(md_cuda.cuMemCreate(&handle, unit, &prop, 0));
	CUdeviceptr first = mapped(handle, unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(md_cuda.cuMemsetD32_v2(first, 77, unit / 4));
	ok(md_cuda.cuCtxSynchronize());
	ok(md_cuda.cuMemUnmap(first, unit));
	ok(md_cuda.cuMemMap(first, unit, 0, handle, 0));
	ok(set_access(first, unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	assert_ints(first, (int)(unit / 4), 77);
	unmapped(first, unit);
	ok(md_cuda.cuMemRelease(handle));
}

Test(hostcuda_vmm, a_multicast_object_of_one_device)
{
	CUmemGenericAllocationHandle memory, object, other;
	CUmulticastObjectProp team = {.numDevices = 1, .size = unit};
	ok(md_cuda.cuMemCreate(&memory, unit, &prop, 0));
	ok(md_cuda.cuMulticastCreate(&object, &team));
	CUdeviceptr own = mapped(memory, unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), nothing;
	ok(md_cuda.cuMemAddressReserve(&nothing, unit, 0, 0, 0));
	cr_assert_neq(md_cuda.cuMemMap(nothing, unit, 0, object, 0), CUDA_SUCCESS, "nothing is bound to it");
	ok(md_cuda.cuMulticastBindMem(object, 0, memory, 0, unit, 0));
	cr_assert_neq(md_cuda.cuMulticastBindMem(object, 0, memory, 0, unit, 0), CUDA_SUCCESS, "twice");
	CUdeviceptr all = mapped(object, unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(md_cuda.cuMemsetD32_v2(all, 78, unit / 4));
	ok(md_cuda.cuCtxSynchronize());
	assert_ints(own, (int)(unit / 4), 78);
	team.numDevices = 2;
	cr_assert_eq(md_cuda.cuMulticastCreate(&other, &team), CUDA_ERROR_NOT_SUPPORTED);
	unmapped(all, unit);
	unmapped(own, unit);
	ok(md_cuda.cuMemAddressFree(nothing, unit));
	ok(md_cuda.cuMemRelease(object));
	ok(md_cuda.cuMemRelease(memory));
}

Test(hostcuda_vmm, one_range_over_two_mappings)
{
	CUmemGenericAllocationHandle one, two;
	CUdeviceptr address;
	unsigned long long flags;
	ok(md_cuda.cuMemCreate(&one, unit, &prop, 0));
	ok(md_cuda.cuMemCreate(&two, unit, &prop, 0));
	ok(md_cuda.cuMemAddressReserve(&address, 2 * unit, 0, 0, 0));
	ok(md_cuda.cuMemMap(address, unit, 0, one, 0));
	ok(md_cuda.cuMemMap(address + unit, unit, 0, two, 0));
	ok(set_access(address, 2 * unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	ok(md_cuda.cuMemGetAccess(&flags, &prop.location, address + unit));
	cr_assert_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(md_cuda.cuMemsetD32_v2(address + unit - 64, 5, 32));
	assert_ints(address + unit - 64, 32, 5);
	ok(md_cuda.cuMemRelease(one));
	ok(md_cuda.cuMemRelease(two));
	unmapped(address, 2 * unit);
}

Test(hostcuda_vmm, should_fail_bad_ranges)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address, other;
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemCreate(&handle, unit + 1, &prop, 0));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemAddressReserve(&address, unit - 1, 0, 0, 0));
	ok(md_cuda.cuMemCreate(&handle, unit, &prop, 0));
	ok(md_cuda.cuMemAddressReserve(&address, 2 * unit, 0, 0, 0));
	/* more than the handle has */
	refused(CUDA_ERROR_NOT_SUPPORTED, md_cuda.cuMemMap(address, 2 * unit, 0, handle, 0));
	refused_somehow(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemMap(address + 4 * unit, unit, 0, handle, 0));
	ok(md_cuda.cuMemMap(address, unit, 0, handle, 0));
	refused_somehow(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemMap(address, unit, 0, handle, 0));
	refused_somehow(CUDA_ERROR_INVALID_VALUE, set_access(address, 2 * unit, CU_MEM_ACCESS_FLAGS_PROT_READ));
	refused_somehow(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemAddressFree(address, 2 * unit));
	ok(md_cuda.cuMemUnmap(address, unit));
	ok(md_cuda.cuMemAddressFree(address, 2 * unit));
	ok(md_cuda.cuMemRelease(handle));
	if (on_hostcuda()) /* a real driver may crash on stale handles */
		refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemRelease(handle));
	ok(md_cuda.cuMemAlloc_v2(&other, unit));
	refused_somehow(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemUnmap(other, unit));
	ok(md_cuda.cuMemFree_v2(other));
}

Test(hostcuda_vmm, a_wanted_address_is_given_when_free)
{
	only_on_hostcuda("to a real driver a wanted address is a hint");
	CUdeviceptr wanted, first, second;
	ok(md_cuda.cuMemAddressReserve(&wanted, unit, 0, 0, 0));
	ok(md_cuda.cuMemAddressFree(wanted, unit));
	ok(md_cuda.cuMemAddressReserve(&first, unit, 0, wanted, 0));
	cr_assert_eq(first, wanted, "got %llx", first);
	ok(md_cuda.cuMemAddressReserve(&second, unit, 0, wanted, 0));
	cr_assert_neq(second, wanted, "handed out twice");
	ok(md_cuda.cuMemAddressFree(first, unit));
	ok(md_cuda.cuMemAddressFree(second, unit));
}

Test(hostcuda_vmm, physical_memory_counts_until_the_last_holder_goes)
{
	CUmemGenericAllocationHandle handle, again;
	size_t before, during, after, total;
	ok(md_cuda.cuMemGetInfo_v2(&before, &total));
	refused(CUDA_ERROR_OUT_OF_MEMORY, md_cuda.cuMemCreate(&handle, total / unit * unit + unit, &prop, 0));
	ok(md_cuda.cuMemCreate(&handle, 8 * unit, &prop, 0));
	CUdeviceptr address = mapped(handle, 8 * unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(md_cuda.cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)address));
	cr_assert_eq(again, handle);
	ok(md_cuda.cuMemRelease(handle));
	ok(md_cuda.cuMemRelease(again));
	ok(md_cuda.cuMemGetInfo_v2(&during, &total));
	cr_assert_leq(during + 8 * unit, before, "released too early");
	unmapped(address, 8 * unit);
	ok(md_cuda.cuMemGetInfo_v2(&after, &total));
	cr_assert_eq(after, before);
}

Test(hostcuda_vmm, a_shared_descriptor_is_the_same_memory)
{
	CUmemGenericAllocationHandle handle, imported;
	CUmemAllocationProp seen;
	int fd;
	ok(md_cuda.cuMemCreate(&handle, unit, &prop, 0));
	ok(md_cuda.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	ok(md_cuda.cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	ok(md_cuda.cuMemGetAllocationPropertiesFromHandle(&seen, imported));
	cr_assert_eq(seen.location.id, 0);
	CUdeviceptr owner = mapped(handle, unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CUdeviceptr reader = mapped(imported, unit, CU_MEM_ACCESS_FLAGS_PROT_READ);
	ok(md_cuda.cuMemsetD32_v2(owner, 31, unit / 4));
	ok(md_cuda.cuCtxSynchronize());
	assert_ints(reader, (int)(unit / 4), 31);
	unmapped(owner, unit);
	unmapped(reader, unit);
	ok(md_cuda.cuMemRelease(handle));
	ok(md_cuda.cuMemRelease(imported));
}

Test(hostcuda_vmm, writing_read_only_memory_fails_and_changes_nothing)
{
	CUmemGenericAllocationHandle handle;
	ok(md_cuda.cuMemCreate(&handle, unit, &prop, 0));
	CUdeviceptr address = mapped(handle, unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CUfunction scale = function_named(load_module(), "scale");
	ok(md_cuda.cuMemsetD32_v2(address, 6, unit / 4));
	ok(md_cuda.cuCtxSynchronize());
	ok(set_access(address, unit, CU_MEM_ACCESS_FLAGS_PROT_READ));
	assert_ints(address, 16, 6);
	ok(launch_scale(scale, NULL, address, 2, 16));
	refused(CUDA_ERROR_ILLEGAL_ADDRESS, md_cuda.cuCtxSynchronize());
	if (on_hostcuda())
		cr_assert_eq(*(int *)(uintptr_t)address, 6, "the write went through");
}

Test(hostcuda_vmm, mapped_memory_without_access_faults)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	CUfunction scale = function_named(load_module(), "scale");
	ok(md_cuda.cuMemCreate(&handle, unit, &prop, 0));
	ok(md_cuda.cuMemAddressReserve(&address, unit, 0, 0, 0));
	ok(md_cuda.cuMemMap(address, unit, 0, handle, 0));
	ok(launch_scale(scale, NULL, address, 2, 16));
	refused(CUDA_ERROR_ILLEGAL_ADDRESS, md_cuda.cuCtxSynchronize());
}

Test(hostcuda_vmm, memory_that_is_mapped_again_faults_until_it_is_filled)
{
	CUmemGenericAllocationHandle handle, next;
	only_on_hostcuda("its settings");
	setenv("HOSTCUDA_REMAPPED", "fault", 1);
	ok(md_cuda.cuMemCreate(&handle, unit, &prop, 0));
	ok(md_cuda.cuMemCreate(&next, unit, &prop, 0));
	CUdeviceptr address = mapped(handle, unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CUfunction scale = function_named(load_module(), "scale");
	int32_t factor = 2, n = 4;
	void *params[] = {&address, &factor, &n};
	ok(md_cuda.cuLaunchKernel(scale, 1, 1, 1, 4, 1, 1, 0, NULL, params, NULL));
	ok(md_cuda.cuCtxSynchronize());
	ok(md_cuda.cuMemUnmap(address, unit));
	ok(md_cuda.cuMemMap(address, unit, 0, next, 0));
	ok(set_access(address, unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	ok(md_cuda.cuMemsetD32_v2(address, 3, unit / 8)); /* the first half is filled */
	ok(md_cuda.cuLaunchKernel(scale, 1, 1, 1, 4, 1, 1, 0, NULL, params, NULL));
	ok(md_cuda.cuCtxSynchronize());
	address += unit / 2;
	ok(md_cuda.cuLaunchKernel(scale, 1, 1, 1, 4, 1, 1, 0, NULL, params, NULL));
	refused(CUDA_ERROR_ILLEGAL_ADDRESS, md_cuda.cuCtxSynchronize());
}

Test(hostcuda_vmm, memory_that_is_filled_by_one_address_is_there_by_all_of_them)
{
	CUmemGenericAllocationHandle handle;
	only_on_hostcuda("its settings");
	setenv("HOSTCUDA_REMAPPED", "fault", 1);
	ok(md_cuda.cuMemCreate(&handle, unit, &prop, 0));
	CUdeviceptr address = mapped(handle, unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(md_cuda.cuMemUnmap(address, unit));
	ok(md_cuda.cuMemRelease(handle));
	ok(md_cuda.cuMemCreate(&handle, unit, &prop, 0));
	ok(md_cuda.cuMemMap(address, unit, 0, handle, 0));
	ok(set_access(address, unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	CUdeviceptr alias = mapped(handle, unit, CU_MEM_ACCESS_FLAGS_PROT_READ);
	ok(md_cuda.cuMemsetD32_v2(address, 3, unit / 8)); /* the first half is filled */
	ok(md_cuda.cuCtxSynchronize());
	assert_ints(alias, 16, 3);
	CUdeviceptr later = mapped(handle, unit, CU_MEM_ACCESS_FLAGS_PROT_READ);
	assert_ints(later, 16, 3);
	int32_t value;
	refused(CUDA_ERROR_ILLEGAL_ADDRESS, md_cuda.cuMemcpyDtoH_v2(&value, later + unit / 2, sizeof(value)));
}

/* Mapped memory of device 1, to which device 0 has no right. */
Test(hostcuda_vmm_between, copies_that_name_contexts_go_by_the_rights_of_each_end)
{
	CUcontext contexts[2], gone;
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp other = prop;
	CUdeviceptr mine;
	CUdeviceptr address;
	size_t size;
	setenv("HOSTCUDA_DEVICES", "2", 1);
	device_open();
	only_on_hostcuda("its settings");
	for (int i = 0; i < 2; i++)
		ok(md_cuda.cuDevicePrimaryCtxRetain(&contexts[i], i));
	other.location.id = 1;
	ok(md_cuda.cuMemGetAllocationGranularity(&size, &other, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	const CUmemAccessDesc right = {other.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	ok(md_cuda.cuMemCreate(&handle, size, &other, 0));
	ok(md_cuda.cuMemAddressReserve(&address, size, 0, 0, 0));
	ok(md_cuda.cuMemMap(address, size, 0, handle, 0));
	ok(md_cuda.cuMemSetAccess(address, size, &right, 1));
	ok(md_cuda.cuMemAlloc_v2(&mine, size));
	ok(md_cuda.cuMemsetD8_v2(mine, 5, size));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemcpyDtoD_v2(address, mine, size));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemcpyPeer(address, contexts[0], mine, contexts[0], size));
	ok(md_cuda.cuMemcpyPeer(address, contexts[1], mine, contexts[0], size));
	ok(md_cuda.cuMemsetD8_v2(mine, 0, size));
	ok(md_cuda.cuMemcpyPeer(mine, contexts[0], address, contexts[1], size));
	unsigned char value = 0;
	ok(md_cuda.cuMemcpyDtoH_v2(&value, mine + size - 1, 1));
	cr_assert_eq(value, 5, "%u came", value);
	ok(md_cuda.cuCtxCreate_v2(&gone, 0, 1));
	ok(md_cuda.cuCtxDestroy_v2(gone));
	refused(CUDA_ERROR_INVALID_CONTEXT, md_cuda.cuMemcpyPeer(mine, contexts[0], address, gone, size));
}
