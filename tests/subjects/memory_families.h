/* SPDX-License-Identifier: Apache-2.0 */
/* The subject's cases that differ in how they come by memory: each makes it, and says what its kernels read. */
#ifndef TESTS_SUBJECTS_MEMORY_FAMILIES_H
#define TESTS_SUBJECTS_MEMORY_FAMILIES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "driver/cuda_driver.h"
#include "medusa/medusa.h"
#include "tests/subjects/memory_peer.h"

enum { REPLAYS = 3, LARGE = 1 << 20, GRANULE = 2 << 20 };

static CUdeviceptr in, out;
static CUfunction add, list, blocks, scaled;
static const char *image_path;
static CUstream stream;
static struct memory_peer peer;

/* What a case has made. */
static struct made {
	CUdeviceptr memory; /* that its kernel reads */
	float *host;        /* written before each replay, or NULL */
	bool peers;         /* the peer writes it before each replay */
	void (*launch)(const struct made *made);
	void (*before_capture)(void);          /* what a first, live forward pass does */
	void (*afterwards)(struct made *made); /* between capture and first replay, or in place of the capture */
} made;

/* ---- pieces ---- */

static void launch_add(CUdeviceptr from, float factor)
{
	int32_t n = MEMORY_N;
	void *params[] = {&out, &from, &factor, &n};
	TRY(cuLaunchKernel, add, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static void launch_both(const struct made *from)
{
	launch_add(in, 1);
	launch_add(from->memory, 2);
}

static void fill(CUdeviceptr memory, float first)
{
	float values[MEMORY_N];
	for (unsigned i = 0; i < MEMORY_N; i++)
		values[i] = first + (float)i;
	TRY(cuMemcpyHtoD_v2, memory, values, sizeof(values));
}

static void use(CUdeviceptr memory)
{
	made.memory = memory;
	made.launch = launch_both;
}

/* Private: a table that the engine has put there, and binds to nothing; no two are alike. */
static void use_table(CUdeviceptr memory)
{
	static unsigned tables;
	fill(memory, 100 + 1000 * (float)++tables);
	use(memory);
}

static void use_bound(const char *name, CUdeviceptr memory, enum medusa_role role)
{
	use(memory);
	medusa_bind(name, memory, MEMORY_BYTES, role);
}

static CUdeviceptr device(size_t bytes)
{
	CUdeviceptr memory;
	TRY(cuMemAlloc_v2, &memory, bytes);
	return memory;
}

/* ---- families ---- */

static CUdeviceptr second_row(void)
{
	CUdeviceptr memory;
	size_t pitch;
	TRY(cuMemAllocPitch_v2, &memory, &pitch, MEMORY_BYTES, 4, 16);
	return memory + pitch;
}

static void pitched(void)
{
	CUdeviceptr row = second_row();
	fill(row, 7);
	use_bound("pitched", row, MEDUSA_BIND_CONSTANT);
}

static void pitched_table(void)
{
	use_table(second_row());
}

static CUdeviceptr ordered(CUmemoryPool pool)
{
	CUdeviceptr memory;
	if (pool)
		TRY(cuMemAllocFromPoolAsync, &memory, MEMORY_BYTES, pool, stream);
	else
		TRY(cuMemAllocAsync, &memory, MEMORY_BYTES, stream);
	TRY(cuStreamSynchronize, stream);
	return memory;
}

static CUmemoryPool own_pool(CUmemAllocationHandleType type)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.handleTypes = type,
				.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
	CUmemoryPool pool;
	TRY(cuMemPoolCreate, &pool, &props);
	return pool;
}

static void async(void)
{
	CUdeviceptr memory = ordered(NULL);
	fill(memory, 9);
	use_bound("async", memory, MEDUSA_BIND_CONSTANT);
}

static void async_table(void)
{
	use_table(ordered(NULL));
}

static void pool_table(void)
{
	use_table(ordered(own_pool(CU_MEM_HANDLE_TYPE_NONE)));
}

/* The device takes its memory from there when none is named. */
static void current_pool_table(void)
{
	TRY(cuDeviceSetMemPool, 0, own_pool(CU_MEM_HANDLE_TYPE_NONE));
	use_table(ordered(NULL));
}

static void managed(void)
{
	CUdeviceptr memory;
	TRY(cuMemAllocManaged, &memory, MEMORY_BYTES, CU_MEM_ATTACH_GLOBAL);
	made.host = (float *)memory;
	use_bound("managed", memory, MEDUSA_BIND_INPUT);
}

/* The same bytes in every replay of a capture; nobody sees when the host writes others. */
static void managed_unbound(void)
{
	CUdeviceptr memory;
	TRY(cuMemAllocManaged, &memory, MEMORY_BYTES, CU_MEM_ATTACH_GLOBAL);
	for (unsigned i = 0; i < MEMORY_N; i++)
		((float *)memory)[i] = (float)i * 3;
	use(memory);
}

static CUdeviceptr locked(unsigned flags)
{
	CUdeviceptr seen;
	TRY(cuMemHostAlloc, (void **)&made.host, MEMORY_BYTES, flags);
	TRY(cuMemHostGetDevicePointer_v2, &seen, made.host, 0);
	return seen;
}

static void pinned(void)
{
	use_bound("pinned", locked(0), MEDUSA_BIND_INPUT);
}

static void pinned_unbound(void)
{
	use(locked(0));
}

static CUdeviceptr registered_pages(void)
{
	CUdeviceptr seen;
	made.host = aligned_alloc(4096, 4096);
	TRY(cuMemHostRegister_v2, made.host, 4096, CU_MEMHOSTREGISTER_DEVICEMAP);
	TRY(cuMemHostGetDevicePointer_v2, &seen, made.host, 0);
	return seen;
}

static void registered(void)
{
	use_bound("registered", registered_pages(), MEDUSA_BIND_INPUT);
}

static void registered_unbound(void)
{
	use(registered_pages());
}

/* At another address on the device than on the host. */
static CUdeviceptr elsewhere(void)
{
	CUdeviceptr seen = locked(CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED);
	if (seen == (CUdeviceptr)(uintptr_t)made.host)
		fprintf(stderr, "host memory at one address\n");
	return seen;
}

static void mapped_host(void)
{
	use_bound("mapped_host", elsewhere(), MEDUSA_BIND_INPUT);
}

static void mapped_host_unbound(void)
{
	use(elsewhere());
}

/* ---- virtual memory ---- */

static CUmemGenericAllocationHandle physical(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
	CUmemGenericAllocationHandle handle;
	TRY(cuMemCreate, &handle, GRANULE, &prop, 0);
	return handle;
}

static void map(CUdeviceptr at, CUmemGenericAllocationHandle handle)
{
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	TRY(cuMemMap, at, GRANULE, 0, handle, 0);
	TRY(cuMemSetAccess, at, GRANULE, &access, 1);
	TRY(cuMemRelease, handle);
}

static CUdeviceptr reserved(unsigned granules)
{
	CUdeviceptr at;
	TRY(cuMemAddressReserve, &at, (size_t)granules * GRANULE, 0, 0, 0);
	return at;
}

static CUdeviceptr virtual_memory(void)
{
	CUdeviceptr at = reserved(1);
	map(at, physical());
	return at;
}

static void vmm(void)
{
	CUdeviceptr memory = virtual_memory();
	fill(memory, 11);
	use_bound("vmm", memory, MEDUSA_BIND_CONSTANT);
}

static void vmm_table(void)
{
	use_table(virtual_memory());
}

/* One memory at two addresses: the engine writes by the first one, the kernel reads by the second one. */
static CUdeviceptr second_address(const char *bound)
{
	CUdeviceptr one = virtual_memory(), two = reserved(1);
	CUmemGenericAllocationHandle handle;
	fill(one, 13);
	medusa_bind(bound, one, MEMORY_BYTES, MEDUSA_BIND_CONSTANT);
	TRY(cuMemRetainAllocationHandle, &handle, (void *)one);
	map(two, handle);
	return two;
}

static void aliased(void)
{
	use_bound("aliased", second_address("aliased_first"), MEDUSA_BIND_CONSTANT);
}

static void aliased_unbound(void)
{
	use(second_address("aliased_unbound"));
}

/* Other memory at the address than when it was first used. */
static void remap(CUdeviceptr at, float first)
{
	TRY(cuStreamSynchronize, stream);
	TRY(cuMemUnmap, at, GRANULE);
	map(at, physical());
	fill(at, first);
}

static void remapped_before(void)
{
	CUdeviceptr at = virtual_memory();
	fill(at, 1);
	launch_add(at, 0);
	remap(at, 50);
	use(at);
}

static void remap_later(struct made *of)
{
	remap(of->memory, 70);
}

/* The engine suspends and resumes: what is bound has other memory, at its address. */
static void remapped_bound(void)
{
	CUdeviceptr memory = virtual_memory();
	fill(memory, 30);
	use_bound("remapped", memory, MEDUSA_BIND_STATE);
	made.afterwards = remap_later;
}

/* Bound first, then captured on the memory that came there later. */
static void remapped_bound_before(void)
{
	CUdeviceptr memory = virtual_memory();
	use_bound("remapped_before", memory, MEDUSA_BIND_STATE);
	remap(memory, 40);
}

static void remapped_after(void)
{
	use_table(virtual_memory());
	made.afterwards = remap_later;
}

/* MEMORY_GROWS: as state, which has memory for its first half alone. */
static void bound_then_mapped(void)
{
	bool grows = getenv("MEMORY_GROWS") != NULL;
	CUdeviceptr at = reserved(grows ? 2 : 1);
	if (grows) {
		use(at);
		medusa_bind("bound_then_mapped", at, (size_t)2 * GRANULE, MEDUSA_BIND_STATE);
	} else {
		use_bound("bound_then_mapped", at, MEDUSA_BIND_CONSTANT);
	}
	map(at, physical());
	fill(at, 60);
}

/* A segment grows behind what it has, in the range reserved for it; a table lies over the border. */
static void expandable(void)
{
	CUdeviceptr at = reserved(4);
	map(at, physical());
	fill(at, 1);
	launch_add(at, 0);
	TRY(cuStreamSynchronize, stream);
	map(at + GRANULE, physical());
	use_table(at + GRANULE - MEMORY_BYTES / 2);
}

static void expandable_bound(void)
{
	CUdeviceptr at = reserved(2), memory = at + GRANULE - MEMORY_BYTES / 2;
	map(at, physical());
	map(at + GRANULE, physical());
	fill(memory, 12);
	use_bound("expandable", memory, MEDUSA_BIND_CONSTANT);
}

/* On the host, whose threads reach it without a call. */
static CUdeviceptr memory_on_host(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0}};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at = reserved(1);
	TRY(cuMemCreate, &handle, GRANULE, &prop, 0);
	map(at, handle);
	made.host = (float *)at;
	return at;
}

static void on_host(void)
{
	use_bound("on_host", memory_on_host(), MEDUSA_BIND_INPUT);
}

static void on_host_unbound(void)
{
	use(memory_on_host());
}

static void pool_on_host_unbound(void)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0}};
	CUmemoryPool pool;
	TRY(cuMemPoolCreate, &pool, &props);
	use(ordered(pool));
	made.host = (float *)made.memory;
}

/* ---- memory of other processes ---- */

static CUdeviceptr opened(int what)
{
	CUipcMemHandle handle;
	CUdeviceptr memory;
	made.peers = true;
	memory_peer_ask(&peer, what, &handle, sizeof(handle));
	TRY(cuIpcOpenMemHandle_v2, &memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	return memory;
}

static void ipc(void)
{
	use_bound("ipc", opened(MEMORY_PEER_IPC), MEDUSA_BIND_INPUT);
}

/* Opened again it has the same address, and is there until it was closed as often. */
static void ipc_twice(void)
{
	CUdeviceptr memory = opened(MEMORY_PEER_IPC_TWICE);
	use_bound("ipc_twice", memory, MEDUSA_BIND_INPUT);
	if (opened(MEMORY_PEER_IPC_TWICE) != memory) {
		fprintf(stderr, "a handle that is opened twice has two addresses\n");
		exit(1);
	}
	TRY(cuIpcCloseMemHandle, memory);
}

static void ipc_unbound(void)
{
	use(opened(MEMORY_PEER_IPC_UNBOUND));
}

static CUdeviceptr imported_pointer(int what)
{
	CUmemPoolPtrExportData data;
	CUmemoryPool pool;
	CUdeviceptr memory;
	made.peers = true;
	int fd = memory_peer_ask_fd(&peer, MEMORY_PEER_POOL);
	TRY(cuMemPoolImportFromShareableHandle, &pool, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	    0);
	close(fd);
	memory_peer_ask(&peer, what, &data, sizeof(data));
	TRY(cuMemPoolImportPointer, &memory, pool, &data);
	return memory;
}

static void imported_pool(void)
{
	use_bound("imported_pool", imported_pointer(MEMORY_PEER_POINTER), MEDUSA_BIND_INPUT);
}

static void imported_pool_unbound(void)
{
	use(imported_pointer(MEMORY_PEER_POINTER_UNBOUND));
}

static CUdeviceptr imported_handle(void)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at = reserved(1);
	made.peers = true;
	int fd = memory_peer_ask_fd(&peer, MEMORY_PEER_HANDLE);
	TRY(cuMemImportFromShareableHandle, &handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	close(fd);
	map(at, handle);
	return at;
}

static void imported_vmm(void)
{
	use_bound("imported_vmm", imported_handle(), MEDUSA_BIND_INPUT);
}

static void imported_vmm_unbound(void)
{
	use(imported_handle());
}

/* Memory of a device, mapped for this one, or for both. */
static CUdeviceptr for_devices(int home, unsigned devices)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = home}};
	CUmemAccessDesc access[2];
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at = reserved(1);
	for (int i = 0; i < 2; i++)
		access[i] = (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = i},
					      .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	TRY(cuMemCreate, &handle, GRANULE, &prop, 0);
	TRY(cuMemMap, at, GRANULE, 0, handle, 0);
	TRY(cuMemSetAccess, at, GRANULE, access, devices);
	TRY(cuMemRelease, handle);
	return at;
}

static void of_other_device(void)
{
	use_table(for_devices(1, 1));
}

static void for_other_device(void)
{
	use_table(for_devices(0, 2));
}

static void for_other_device_bound(void)
{
	CUdeviceptr memory = for_devices(0, 2);
	fill(memory, 17);
	use_bound("for_other_device", memory, MEDUSA_BIND_CONSTANT);
}

static void exported_unbound(void)
{
	CUipcMemHandle handle;
	use_table(device(MEMORY_BYTES));
	TRY(cuIpcGetMemHandle, &handle, made.memory);
}

static void export_later(struct made *of)
{
	CUmemGenericAllocationHandle handle;
	int fd;
	TRY(cuMemRetainAllocationHandle, &handle, (void *)of->memory);
	TRY(cuMemExportToShareableHandle, &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	TRY(cuMemRelease, handle);
	close(fd);
}

static void exported_after(void)
{
	use_table(virtual_memory());
	made.afterwards = export_later;
}

static void exported_pool_unbound(void)
{
	CUmemPoolPtrExportData data;
	CUmemoryPool pool = own_pool(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	int fd;
	use_table(ordered(pool));
	TRY(cuMemPoolExportToShareableHandle, &fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	TRY(cuMemPoolExportPointer, &data, made.memory);
	close(fd);
}

#endif
