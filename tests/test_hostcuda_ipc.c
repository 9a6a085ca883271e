/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is handed on: what handles and pools can be exported and imported, and what is refused. */
#include <unistd.h>

#include "tests/hostcuda_fixture.h"

TestSuite(hostcuda_ipc, .init = device_open, .fini = device_close);

static CUmemoryPool pool_with(CUmemAllocationHandleType type)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.handleTypes = type,
				.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
	CUmemoryPool pool;
	ok(md_cuda.cuMemPoolCreate(&pool, &props));
	return pool;
}

Test(hostcuda_ipc, exported_memory_keeps_what_it_holds)
{
	CUdeviceptr address = device_ints(7, 64), opened;
	CUipcMemHandle handle, other;
	ok(md_cuda.cuIpcGetMemHandle(&handle, address));
	ok(md_cuda.cuIpcGetMemHandle(&other, address));
	assert_ints(address, 64, 7);
	ok(launch_scale(function_named(load_module(), "scale"), NULL, address, 2, 64));
	ok(md_cuda.cuCtxSynchronize());
	assert_ints(address, 64, 14);
	refused(CUDA_ERROR_INVALID_CONTEXT,
		md_cuda.cuIpcOpenMemHandle_v2(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuIpcCloseMemHandle(address));
	ok(md_cuda.cuMemFree_v2(address));
}

Test(hostcuda_ipc, should_fail_memory_that_cannot_be_exported)
{
	CUdeviceptr managed, pooled;
	CUipcMemHandle handle;
	CUmemPoolPtrExportData data;
	only_on_hostcuda("a real driver may export from inside of an allocation");
	ok(md_cuda.cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuIpcGetMemHandle(&handle, managed));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuIpcGetMemHandle(&handle, managed + (1u << 30)));
	ok(md_cuda.cuMemAllocFromPoolAsync(&pooled, 4096, pool_with(CU_MEM_HANDLE_TYPE_NONE), NULL));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemPoolExportPointer(&data, pooled));
	ok(md_cuda.cuMemFree_v2(managed));
	ok(md_cuda.cuMemFreeAsync(pooled, NULL));
}

Test(hostcuda_ipc, an_imported_pool_holds_pointers_and_makes_none)
{
	CUmemoryPool pool = pool_with(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), imported;
	CUmemPoolPtrExportData data;
	CUdeviceptr address, same, other;
	int fd, back[64];
	only_on_hostcuda("a real driver imports in another process");
	ok(md_cuda.cuMemAllocFromPoolAsync(&address, sizeof(back), pool, NULL));
	ok(md_cuda.cuMemsetD32_v2(address, 5, 64));
	ok(md_cuda.cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	ok(md_cuda.cuMemPoolExportPointer(&data, address));
	ok(md_cuda.cuMemPoolImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
						      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	close(fd);
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemPoolImportPointer(&same, pool, &data));
	ok(md_cuda.cuMemPoolImportPointer(&same, imported, &data));
	cr_assert_neq(same, address, "it lies at an address of its own");
	ok(md_cuda.cuMemcpyDtoH_v2(back, same, sizeof(back)));
	cr_assert_eq(back[63], 5, "and is the same memory");
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuMemAllocFromPoolAsync(&other, 64, imported, NULL));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuDeviceSetMemPool(0, imported));
	ok(md_cuda.cuMemFreeAsync(same, NULL));
	ok(md_cuda.cuMemFreeAsync(address, NULL));
}

Test(hostcuda_ipc, the_current_pool_serves_what_names_none)
{
	CUmemoryPool pool = pool_with(CU_MEM_HANDLE_TYPE_NONE), current;
	CUdeviceptr address;
	ok(md_cuda.cuDeviceSetMemPool(0, pool));
	ok(md_cuda.cuDeviceGetMemPool(&current, 0));
	cr_assert_eq(current, pool);
	ok(md_cuda.cuMemAllocAsync(&address, 64, NULL));
	ok(md_cuda.cuPointerGetAttribute(&current, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
	cr_assert_eq(current, pool);
	ok(md_cuda.cuMemFreeAsync(address, NULL));
	ok(md_cuda.cuStreamSynchronize(NULL));
	ok(md_cuda.cuMemPoolDestroy(pool));
	ok(md_cuda.cuDeviceGetMemPool(&current, 0));
	cr_assert_neq(current, pool, "the default one is current again");
}

Test(hostcuda_ipc, write_combined_memory_has_two_addresses)
{
	int *host;
	CUdeviceptr seen;
	unsigned type;
	only_on_hostcuda("a real device may see it at the host's address");
	ok(md_cuda.cuMemHostAlloc((void **)&host, 4096, CU_MEMHOSTALLOC_WRITECOMBINED));
	ok(md_cuda.cuMemHostGetDevicePointer_v2(&seen, host + 16, 0));
	cr_assert_neq(seen, (CUdeviceptr)(uintptr_t)(host + 16));
	host[16] = 3;
	ok(launch_scale(function_named(load_module(), "scale"), NULL, seen, 5, 1));
	ok(md_cuda.cuCtxSynchronize());
	cr_assert_eq(host[16], 15, "%d", host[16]);
	ok(md_cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, seen));
	cr_assert_eq(type, CU_MEMORYTYPE_HOST);
	ok(md_cuda.cuMemFreeHost(host));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, seen));
}

Test(hostcuda_ipc, allocation_nodes_of_a_capture)
{
	CUstream stream;
	CUgraph graph;
	CUgraphNode nodes[3];
	CUgraphNodeType type;
	CUdeviceptr address;
	size_t count = 3;
	ok(md_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(md_cuda.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ok(md_cuda.cuMemAllocAsync(&address, 256, stream));
	ok(md_cuda.cuMemsetD32Async(address, 1, 64, stream));
	ok(md_cuda.cuMemFreeAsync(address, stream));
	ok(md_cuda.cuStreamEndCapture(stream, &graph));
	ok(md_cuda.cuGraphGetNodes(graph, nodes, &count));
	cr_assert_eq(count, 3);
	ok(md_cuda.cuGraphNodeGetType(nodes[0], &type));
	cr_assert_eq(type, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
	ok(md_cuda.cuGraphNodeGetType(nodes[2], &type));
	cr_assert_eq(type, CU_GRAPH_NODE_TYPE_MEM_FREE);
	ok(md_cuda.cuGraphDestroy(graph));
	ok(md_cuda.cuStreamDestroy_v2(stream));
}
