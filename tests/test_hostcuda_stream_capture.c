/* SPDX-License-Identifier: Apache-2.0 */
/* Stream capture: what becomes a node, which edges there are, and every way to break a capture. */
#include <pthread.h>

#include "tests/hostcuda_fixture.h"

static CUstream stream, other;
static CUmodule module;
static CUfunction scale;
static CUdeviceptr x;

static void open_with_streams(void)
{
	device_open();
	module = load_whole_module();
	scale = function_named(module, "scale");
	x = device_ints(1, 64);
	ok(md_cuda.cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	ok(md_cuda.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
}

static void close_with_streams(void)
{
	ok(md_cuda.cuStreamDestroy_v2(stream));
	ok(md_cuda.cuStreamDestroy_v2(other));
	ok(md_cuda.cuMemFree_v2(x));
	ok(md_cuda.cuModuleUnload(module));
	device_close();
}

TestSuite(hostcuda_stream_capture, .init = open_with_streams, .fini = close_with_streams);

static void begin(CUstreamCaptureMode mode)
{
	ok(md_cuda.cuStreamBeginCapture_v2(stream, mode));
}

static void assert_invalidated(void)
{
	CUgraph graph = (CUgraph)1;
	CUstreamCaptureStatus status;
	ok(md_cuda.cuStreamIsCapturing(stream, &status));
	cr_assert_eq(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED, "status %d", (int)status);
	refused(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, launch_scale(scale, stream, x, 2, 64));
	refused(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, md_cuda.cuStreamEndCapture(stream, &graph));
	cr_assert_null(graph);
	ok(md_cuda.cuStreamIsCapturing(stream, &status));
	cr_assert_eq(status, CU_STREAM_CAPTURE_STATUS_NONE);
}

Test(hostcuda_stream_capture, work_is_noted_and_not_done)
{
	CUstreamCaptureStatus status;
	CUgraphNodeType type;
	CUgraphNode nodes[8];
	CUgraphExec exec;
	CUgraph graph;
	size_t count = 8;
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	ok(md_cuda.cuStreamIsCapturing(stream, &status));
	cr_assert_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ok(md_cuda.cuMemsetD32Async(x, 3, 64, stream));
	ok(launch_scale(scale, stream, x, 5, 64));
	ok(md_cuda.cuMemcpyDtoDAsync_v2(x + 4, x, 4, stream));
	ok(md_cuda.cuStreamEndCapture(stream, &graph));
	assert_ints(x, 64, 1);
	ok(md_cuda.cuGraphGetNodes(graph, nodes, &count));
	cr_assert_eq(count, 3);
	unsigned types = 0; /* nobody promises an order of nodes */
	for (size_t i = 0; i < 3; i++) {
		ok(md_cuda.cuGraphNodeGetType(nodes[i], &type));
		types |= 1u << type;
	}
	cr_assert_eq(
	    types, 1u << CU_GRAPH_NODE_TYPE_MEMSET | 1u << CU_GRAPH_NODE_TYPE_KERNEL | 1u << CU_GRAPH_NODE_TYPE_MEMCPY,
	    "a set of %x", types);
	ok(md_cuda.cuGraphInstantiateWithFlags(&exec, graph, 0));
	ok(md_cuda.cuGraphLaunch(exec, stream));
	ok(md_cuda.cuStreamSynchronize(stream));
	assert_ints(x, 64, 15);
	ok(md_cuda.cuGraphExecDestroy(exec));
	ok(md_cuda.cuGraphDestroy(graph));
}

Test(hostcuda_stream_capture, events_fork_and_join)
{
	CUevent fork, join;
	CUgraph graph;
	CUgraphNode from[8], to[8], roots[4];
	size_t edges = 8, root_count = 4;
	CUstreamCaptureStatus status;
	CUdeviceptr y = device_ints(1, 64);
	ok(md_cuda.cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
	ok(md_cuda.cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	ok(md_cuda.cuMemsetD32Async(x, 2, 64, stream));
	ok(md_cuda.cuEventRecord(fork, stream));
	ok(md_cuda.cuStreamWaitEvent(other, fork, 0));
	ok(md_cuda.cuStreamIsCapturing(other, &status));
	cr_assert_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ok(launch_scale(scale, stream, x, 3, 64));
	ok(launch_scale(scale, other, y, 7, 64));
	ok(md_cuda.cuEventRecord(join, other));
	ok(md_cuda.cuStreamWaitEvent(stream, join, 0));
	ok(launch_scale(scale, stream, y, 2, 64));
	ok(md_cuda.cuStreamEndCapture(stream, &graph));
	ok(md_cuda.cuStreamIsCapturing(other, &status));
	cr_assert_eq(status, CU_STREAM_CAPTURE_STATUS_NONE);
	ok(md_cuda.cuGraphGetEdges(graph, from, to, &edges));
	cr_assert_eq(edges, 4, "a diamond has 4 edges, not %zu", edges);
	ok(md_cuda.cuGraphGetRootNodes(graph, roots, &root_count));
	cr_assert_eq(root_count, 1);
	CUresult waited = md_cuda.cuEventSynchronize(join); /* an H200's driver says CUDA_ERROR_INVALID_VALUE */
	cr_assert(waited == CUDA_ERROR_CAPTURED_EVENT || waited == CUDA_ERROR_INVALID_VALUE, "it gave %d", waited);
	ok(md_cuda.cuGraphDestroy(graph));
	ok(md_cuda.cuEventDestroy_v2(fork));
	ok(md_cuda.cuEventDestroy_v2(join));
	ok(md_cuda.cuMemFree_v2(y));
}

Test(hostcuda_stream_capture, should_fail_unjoined_work)
{
	CUevent fork;
	CUgraph graph;
	ok(md_cuda.cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	ok(md_cuda.cuMemsetD32Async(x, 2, 64, stream));
	ok(md_cuda.cuEventRecord(fork, stream));
	ok(md_cuda.cuStreamWaitEvent(other, fork, 0));
	ok(launch_scale(scale, other, x, 7, 64));
	refused(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, md_cuda.cuStreamEndCapture(stream, &graph));
	cr_assert_null(graph);
	ok(launch_scale(scale, other, x, 7, 64));
	ok(md_cuda.cuStreamSynchronize(other));
	assert_ints(x, 64, 7);
	ok(md_cuda.cuEventDestroy_v2(fork));
}

Test(hostcuda_stream_capture, unsafe_calls_break_it)
{
	CUdeviceptr address;
	int host;
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	refused(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, md_cuda.cuMemAlloc_v2(&address, 64));
	assert_invalidated();
	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	refused(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, md_cuda.cuStreamSynchronize(stream));
	assert_invalidated();
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	CUstreamCaptureStatus status;
	refused(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
		md_cuda.cuStreamIsCapturing(NULL, &status)); /* to ask breaks nothing */
	ok(md_cuda.cuStreamIsCapturing(stream, &status));
	cr_assert_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE, "asking broke the capture");
	refused(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, md_cuda.cuMemcpyDtoH_v2(&host, x, 4));
	assert_invalidated();
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	refused(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, launch_scale(scale, NULL, x, 2, 64));
	assert_invalidated();
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	refused(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, md_cuda.cuMemAllocAsync(&address, 64, NULL));
	assert_invalidated();
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	refused(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, md_cuda.cuMemFreeAsync(x, NULL));
	assert_invalidated();
}

Test(hostcuda_stream_capture, relaxed_modes_allow_them)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr address;
	CUgraph graph;
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	ok(md_cuda.cuMemAlloc_v2(&address, 64));
	ok(md_cuda.cuStreamEndCapture(stream, &graph));
	ok(md_cuda.cuGraphDestroy(graph));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	ok(md_cuda.cuThreadExchangeStreamCaptureMode(&mode));
	cr_assert_eq(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
	CUdeviceptr second;
	ok(md_cuda.cuMemAlloc_v2(&second, 64));
	ok(md_cuda.cuThreadExchangeStreamCaptureMode(&mode));
	cr_assert_eq(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
	ok(md_cuda.cuStreamEndCapture(stream, &graph));
	ok(md_cuda.cuGraphDestroy(graph));
	ok(md_cuda.cuMemFree_v2(second));
	ok(md_cuda.cuMemFree_v2(address));
}

static void *allocate_elsewhere(void *result)
{
	CUdeviceptr address;
	CUcontext context;
	md_cuda.cuDevicePrimaryCtxRetain(&context, 0);
	md_cuda.cuCtxSetCurrent(context);
	*(CUresult *)result = md_cuda.cuMemAlloc_v2(&address, 64);
	if (*(CUresult *)result == CUDA_SUCCESS)
		md_cuda.cuMemFree_v2(address);
	md_cuda.cuDevicePrimaryCtxRelease_v2(0);
	return NULL;
}

static CUresult allocation_in_another_thread(void)
{
	pthread_t thread;
	CUresult result;
	pthread_create(&thread, NULL, allocate_elsewhere, &result);
	pthread_join(thread, NULL);
	return result;
}

Test(hostcuda_stream_capture, other_threads_break_global_captures_alone)
{
	CUgraph graph;
	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	ok(allocation_in_another_thread());
	ok(md_cuda.cuStreamEndCapture(stream, &graph));
	ok(md_cuda.cuGraphDestroy(graph));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	refused(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, allocation_in_another_thread());
	assert_invalidated();
}

Test(hostcuda_stream_capture, should_fail_wrong_begins_and_ends)
{
	CUgraph graph;
	CUevent outside;
	refused(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
		md_cuda.cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
	refused(CUDA_ERROR_ILLEGAL_STATE, md_cuda.cuStreamEndCapture(stream, &graph));
	ok(md_cuda.cuEventCreate(&outside, 0));
	ok(md_cuda.cuEventRecord(outside, other));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	refused(CUDA_ERROR_ILLEGAL_STATE, md_cuda.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	refused(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, md_cuda.cuStreamWaitEvent(stream, outside, 0));
	assert_invalidated();
	ok(md_cuda.cuEventDestroy_v2(outside));
}

static CUresult launch_programmatic(CUstream on, CUlaunchAttribute *attributes, unsigned count)
{
	int factor = 2, n = 64;
	void *params[] = {&x, &factor, &n};
	CUlaunchConfig config = {.gridDimX = 1,
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = 64,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .hStream = on,
				 .attrs = attributes,
				 .numAttrs = count};
	return md_cuda.cuLaunchKernelEx(&config, scale, params, NULL);
}

Test(hostcuda_stream_capture, attributes_go_to_nodes_and_edges)
{
	CUlaunchAttribute attributes[] = {
	    {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
	     .value.programmaticStreamSerializationAllowed = 1},
	    {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {1, 1, 1}},
	};
	CUkernelNodeAttrValue value;
	CUgraphEdgeData data[4];
	CUgraphNode from[4], to[4];
	CUgraph graph;
	size_t count = 4;
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	ok(md_cuda.cuMemsetD32Async(x, 1, 64, stream));
	ok(launch_programmatic(stream, attributes, 2));
	ok(launch_programmatic(stream, attributes, 2));
	ok(md_cuda.cuStreamEndCapture(stream, &graph));
	refused(CUDA_ERROR_LOSSY_QUERY, md_cuda.cuGraphGetEdges(graph, from, to, &count));
	count = 4;
	ok(md_cuda.cuGraphGetEdges_v2(graph, from, to, data, &count));
	cr_assert_eq(count, 2);
	unsigned programmatic = 0;
	for (size_t i = 0; i < count; i++)
		programmatic += data[i].type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC &&
				data[i].from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
	cr_assert_eq(programmatic, 1, "only the edge between kernels is programmatic");
	ok(md_cuda.cuGraphKernelNodeGetAttribute(to[1], CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value));
	cr_assert(value.clusterDim.x == 1 && value.clusterDim.y == 1);
	ok(md_cuda.cuGraphDestroy(graph));
}

Test(hostcuda_stream_capture, the_front_can_be_seen_and_set)
{
	CUstreamCaptureStatus status;
	const CUgraphNode *front;
	const CUgraphEdgeData *data;
	cuuint64_t id = 0;
	CUgraph graph, of_capture;
	size_t count, edges;
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	ok(launch_scale(scale, stream, x, 2, 64));
	ok(launch_scale(scale, stream, x, 2, 64));
	ok(md_cuda.cuStreamGetCaptureInfo_v3(stream, &status, &id, &of_capture, &front, &data, &count));
	cr_assert(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id && count == 1);
	ok(md_cuda.cuStreamUpdateCaptureDependencies(stream, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	ok(launch_scale(scale, stream, x, 2, 64));
	ok(md_cuda.cuStreamGetCaptureInfo_v2(stream, &status, &id, &of_capture, &front, &count));
	ok(md_cuda.cuStreamEndCapture(stream, &graph));
	cr_assert_eq(graph, of_capture);
	ok(md_cuda.cuGraphGetEdges(graph, NULL, NULL, &edges));
	cr_assert_eq(edges, 1, "the third launch depends on nothing");
	ok(md_cuda.cuGraphDestroy(graph));
}

Test(hostcuda_stream_capture, into_a_graph_that_is_there)
{
	CUgraphNode first, root;
	CUgraph graph, same;
	size_t nodes = 0, edges = 0;
	if (!md_cuda.cuStreamBeginCaptureToGraph)
		skip("this driver has no cuStreamBeginCaptureToGraph");
	ok(md_cuda.cuGraphCreate(&graph, 0));
	ok(md_cuda.cuGraphAddEmptyNode(&first, graph, NULL, 0));
	ok(md_cuda.cuStreamBeginCaptureToGraph(stream, graph, &first, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ok(launch_scale(scale, stream, x, 2, 64));
	ok(md_cuda.cuStreamEndCapture(stream, &same));
	cr_assert_eq(same, graph);
	ok(md_cuda.cuGraphGetNodes(graph, NULL, &nodes));
	ok(md_cuda.cuGraphGetEdges(graph, NULL, NULL, &edges));
	cr_assert(nodes == 2 && edges == 1, "%zu nodes, %zu edges", nodes, edges);
	nodes = 1;
	ok(md_cuda.cuGraphGetRootNodes(graph, &root, &nodes));
	cr_assert_eq(root, first);
	ok(md_cuda.cuGraphDestroy(graph));
}
