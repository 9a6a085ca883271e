/* SPDX-License-Identifier: Apache-2.0 */
/* Links between devices: who may reach whose memory, and bytes that go over each link. */
#include <fcntl.h>
#include <unistd.h>

#include "hostcuda/bus.h"
#include "tests/hostcuda_fixture.h"

enum { BYTES = 4 << 20 };

static CUcontext first, second;

static void set_up(void)
{
	setenv("HOSTCUDA_DEVICES", "2", 1);
	unsetenv("CUDA_VISIBLE_DEVICES");
	device_open();
	if (!on_hostcuda())
		skip("links of hostcuda");
	ok(md_cuda.cuCtxGetCurrent(&first));
	ok(md_cuda.cuDevicePrimaryCtxRetain(&second, 1));
}

static void tear_down(void)
{
	md_cuda.cuDevicePrimaryCtxRelease_v2(1);
	device_close();
}

TestSuite(hostcuda_bus, .init = set_up, .fini = tear_down, .timeout = 60);

static CUmemGenericAllocationHandle memory_on(CUdevice device)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
	ok(md_cuda.cuMemCreate(&handle, BYTES, &prop, 0));
	return handle;
}

static CUdeviceptr map(CUmemGenericAllocationHandle handle)
{
	CUdeviceptr address;
	ok(md_cuda.cuMemAddressReserve(&address, BYTES, 0, 0, 0));
	ok(md_cuda.cuMemMap(address, BYTES, 0, handle, 0));
	return address;
}

static CUmemAccessDesc right_of(CUdevice device)
{
	return (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}

Test(hostcuda_bus, devices_reach_each_other)
{
	int may = -1;
	ok(md_cuda.cuDeviceCanAccessPeer(&may, 0, 1));
	cr_assert_eq(may, 1);
	ok(md_cuda.cuDeviceCanAccessPeer(&may, 1, 1));
	cr_assert_eq(may, 0, "a device is no peer of itself");
	ok(md_cuda.cuDeviceGetP2PAttribute(&may, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, 0));
	cr_assert_eq(may, 1);
	refused(CUDA_ERROR_INVALID_DEVICE,
		md_cuda.cuDeviceGetP2PAttribute(&may, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, 2));
	refused(CUDA_ERROR_INVALID_DEVICE, md_cuda.cuDeviceCanAccessPeer(&may, 2, 0));
}

Test(hostcuda_bus, should_fail_devices_that_do_not)
{
	int may = -1;
	CUmemAccessDesc right = right_of(1);
	CUdeviceptr address = map(memory_on(0));
	setenv("HOSTCUDA_NVLINK", "none", 1);
	ok(md_cuda.cuDeviceCanAccessPeer(&may, 0, 1));
	cr_assert_eq(may, 0);
	refused(CUDA_ERROR_INVALID_DEVICE, md_cuda.cuMemSetAccess(address, BYTES, &right, 1));
	right = right_of(0);
	ok(md_cuda.cuMemSetAccess(address, BYTES, &right, 1));
}

Test(hostcuda_bus, imported_memory_is_on_its_device)
{
	CUmemGenericAllocationHandle imported;
	CUmemAllocationProp prop;
	int fd = -1;
	ok(md_cuda.cuMemExportToShareableHandle(&fd, memory_on(1), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	ok(md_cuda.cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	ok(md_cuda.cuMemGetAllocationPropertiesFromHandle(&prop, imported));
	cr_assert_eq(prop.location.id, 1);
	close(fd);
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	refused(CUDA_ERROR_INVALID_VALUE,
		md_cuda.cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
						       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
}

/* Only the devices that cuMemSetAccess has named copy to mapped memory, and the bytes arrive. */
Test(hostcuda_bus, copies_between_devices)
{
	CUmemAccessDesc right = right_of(0);
	CUdeviceptr address = map(memory_on(0)), stage;
	uint32_t *there = malloc(BYTES), *back = malloc(BYTES);
	ok(md_cuda.cuMemSetAccess(address, BYTES, &right, 1));
	ok(md_cuda.cuCtxSetCurrent(second));
	ok(md_cuda.cuMemAlloc_v2(&stage, BYTES));
	for (size_t i = 0; i < BYTES / 4; i++)
		there[i] = (uint32_t)i * 2654435761u;
	ok(md_cuda.cuMemcpyHtoD_v2(stage, there, BYTES));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemcpyDtoD_v2(address, stage, BYTES));
	right = right_of(1);
	ok(md_cuda.cuMemSetAccess(address, BYTES, &right, 1));
	ok(md_cuda.cuMemcpyDtoD_v2(address, stage, BYTES));
	ok(md_cuda.cuCtxSynchronize());
	ok(md_cuda.cuCtxSetCurrent(first));
	ok(md_cuda.cuMemcpyDtoH_v2(back, address, BYTES));
	cr_assert_arr_eq(there, back, BYTES);
	free(there);
	free(back);
}

/* As hostcuda writes them behind the rows of the file (HOSTCUDA_SHARED). */
Test(hostcuda_bus, bytes_are_counted_by_link, .init = NULL, .fini = NULL)
{
	char path[] = "/tmp/medusa-bus-XXXXXX";
	struct hc_bus_state state;
	CUdeviceptr one, two;
	void *host = calloc(1, BYTES);
	int fd = mkstemp(path);
	cr_assert_geq(fd, 0);
	setenv("HOSTCUDA_SHARED", path, 1);
	setenv("HOSTCUDA_H2D_GBPS", "1,2", 1);
	set_up();
	ok(md_cuda.cuMemAlloc_v2(&one, BYTES));
	ok(md_cuda.cuCtxSetCurrent(second));
	ok(md_cuda.cuMemAlloc_v2(&two, BYTES));
	ok(md_cuda.cuMemcpyHtoD_v2(two, host, BYTES));
	ok(md_cuda.cuMemcpyDtoD_v2(one, two, BYTES / 2));
	ok(md_cuda.cuMemcpyDtoD_v2(two, two + BYTES / 2, BYTES / 4));
	ok(md_cuda.cuMemcpyDtoH_v2(host, two, BYTES / 4));
	cr_assert_eq(
	    pread(fd, &state, sizeof(state), (off_t)((128 * HC_MAX_DEVICES + HC_MAX_DEVICES) * sizeof(uint64_t))),
	    (ssize_t)sizeof(state));
	cr_assert(state.bytes[HC_BUS_TO_DEVICE][0] == 0 && state.bytes[HC_BUS_TO_DEVICE][1] == BYTES);
	cr_assert(state.bytes[HC_BUS_PEER][0] == BYTES / 2 && state.bytes[HC_BUS_PEER][1] == 0);
	cr_assert(state.bytes[HC_BUS_TO_HOST][0] == 0 && state.bytes[HC_BUS_TO_HOST][1] == BYTES / 4);
	tear_down();
	unlink(path);
	close(fd);
	free(host);
}
