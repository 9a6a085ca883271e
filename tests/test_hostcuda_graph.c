/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: nodes of each type, what they give back, edges with data, instantiation, updates, refusals. */
#include <unistd.h>

#include "tests/hostcuda_fixture.h"

static CUstream stream;
static CUmodule module;
static CUfunction scale;
static CUdeviceptr x;
static CUgraph graph;

static void open_with_graph(void)
{
	device_open();
	module = load_whole_module();
	scale = function_named(module, "scale");
	x = device_ints(1, 64);
	ok(md_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(md_cuda.cuGraphCreate(&graph, 0));
}

static void close_with_graph(void)
{
	ok(md_cuda.cuGraphDestroy(graph));
	ok(md_cuda.cuStreamDestroy_v2(stream));
	ok(md_cuda.cuMemFree_v2(x));
	ok(md_cuda.cuModuleUnload(module));
	device_close();
}

TestSuite(hostcuda_graph, .init = open_with_graph, .fini = close_with_graph);

static CUDA_KERNEL_NODE_PARAMS scale_params(void **params)
{
	return (CUDA_KERNEL_NODE_PARAMS){.func = scale,
					 .gridDimX = 1,
					 .gridDimY = 1,
					 .gridDimZ = 1,
					 .blockDimX = 64,
					 .blockDimY = 1,
					 .blockDimZ = 1,
					 .kernelParams = params};
}

static CUgraphNode add_scale(CUgraphNode after, int factor)
{
	int count = 64;
	void *params[] = {&x, &factor, &count};
	CUDA_KERNEL_NODE_PARAMS node_params = scale_params(params);
	CUgraphNode node;
	ok(md_cuda.cuGraphAddKernelNode_v2(&node, graph, &after, after ? 1 : 0, &node_params));
	return node;
}

static CUgraphNode add_set(CUgraphNode after, unsigned value)
{
	CUDA_MEMSET_NODE_PARAMS params = {.dst = x, .value = value, .elementSize = 4, .width = 64, .height = 1};
	CUgraphNode node;
	CUcontext context;
	ok(md_cuda.cuCtxGetCurrent(&context));
	ok(md_cuda.cuGraphAddMemsetNode(&node, graph, &after, after ? 1 : 0, &params, context));
	return node;
}

static CUgraphNode node_of_type(CUgraph in, CUgraphNodeType wanted)
{
	CUgraphNode nodes[8];
	CUgraphNodeType type;
	size_t count = 8;
	ok(md_cuda.cuGraphGetNodes(in, nodes, &count));
	for (size_t i = 0; i < count; i++) {
		ok(md_cuda.cuGraphNodeGetType(nodes[i], &type));
		if (type == wanted)
			return nodes[i];
	}
	cr_assert_fail("no node of type %d", (int)wanted);
	return NULL;
}

static CUgraphExec instantiated(void)
{
	CUgraphExec exec;
	ok(md_cuda.cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

static void run(CUgraphExec exec)
{
	ok(md_cuda.cuGraphLaunch(exec, stream));
	ok(md_cuda.cuStreamSynchronize(stream));
}

static void note(void *seen)
{
	*(int *)seen += 1;
}

Test(hostcuda_graph, every_type_of_node_runs_in_its_place)
{
	CUdeviceptr y = device_ints(0, 64);
	CUgraphNode copy, host, empty, child, inner;
	CUgraph small;
	CUcontext context;
	int seen = 0;
	ok(md_cuda.cuCtxGetCurrent(&context));
	CUgraphNode kernel = add_scale(add_set(NULL, 3), 4);
	CUDA_MEMCPY3D params = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				.srcDevice = x,
				.dstMemoryType = CU_MEMORYTYPE_DEVICE,
				.dstDevice = y,
				.WidthInBytes = 256,
				.Height = 1,
				.Depth = 1};
	ok(md_cuda.cuGraphAddMemcpyNode(&copy, graph, &kernel, 1, &params, context));
	CUDA_HOST_NODE_PARAMS call = {note, &seen};
	ok(md_cuda.cuGraphAddHostNode(&host, graph, &copy, 1, &call));
	ok(md_cuda.cuGraphAddEmptyNode(&empty, graph, &host, 1));
	ok(md_cuda.cuGraphCreate(&small, 0));
	CUDA_MEMSET_NODE_PARAMS set = {.dst = x, .value = 8, .elementSize = 4, .width = 1, .height = 1};
	ok(md_cuda.cuGraphAddMemsetNode(&inner, small, NULL, 0, &set, context));
	ok(md_cuda.cuGraphAddChildGraphNode(&child, graph, &empty, 1, small));
	ok(md_cuda.cuGraphDestroy(small));
	CUgraphExec exec = instantiated();
	ok(md_cuda.cuGraphUpload(exec, stream));
	run(exec);
	run(exec);
	assert_ints(y, 64, 12);
	assert_ints(x, 1, 8);
	assert_ints(x + 4, 63, 12);
	cr_assert_eq(seen, 2);
	CUgraph within;
	size_t count = 0;
	ok(md_cuda.cuGraphChildGraphNodeGetGraph(child, &within));
	ok(md_cuda.cuGraphGetNodes(within, NULL, &count));
	cr_assert_eq(count, 1);
	ok(md_cuda.cuGraphExecDestroy(exec));
	ok(md_cuda.cuMemFree_v2(y));
}

Test(hostcuda_graph, kernel_nodes_give_back_their_own_copy)
{
	int factor = 6, count = 64;
	void *params[] = {&x, &factor, &count};
	CUDA_KERNEL_NODE_PARAMS given = scale_params(params), got;
	CUgraphNode node;
	ok(md_cuda.cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &given));
	factor = 1;
	ok(md_cuda.cuGraphKernelNodeGetParams_v2(node, &got));
	cr_assert(got.func == scale && got.blockDimX == 64 && got.gridDimX == 1);
	cr_assert_not_null(got.kernelParams);
	cr_assert_null(got.extra);
	cr_assert_eq(*(CUdeviceptr *)got.kernelParams[0], x);
	cr_assert_eq(*(int *)got.kernelParams[1], 6, "the node must not see the caller's change");
	CUgraphExec exec = instantiated();
	run(exec);
	assert_ints(x, 64, 6);
	ok(md_cuda.cuGraphExecDestroy(exec));
}

Test(hostcuda_graph, nodes_added_with_extra_give_back_extra)
{
	struct {
		CUdeviceptr x;
		int factor, count;
	} arguments = {x, 9, 64};
	size_t size = sizeof(arguments);
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &arguments, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			 CU_LAUNCH_PARAM_END};
	CUDA_KERNEL_NODE_PARAMS given = scale_params(NULL), got;
	CUgraphNode node;
	given.extra = extra;
	ok(md_cuda.cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &given));
	memset(&arguments, 0, sizeof(arguments));
	ok(md_cuda.cuGraphKernelNodeGetParams_v2(node, &got));
	cr_assert_null(got.kernelParams);
	int *buffer = NULL;
	size_t buffer_size = 0;
	for (void **key = got.extra; *key != CU_LAUNCH_PARAM_END; key += 2) { /* in any order */
		if (*key == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = key[1];
		else if (*key == CU_LAUNCH_PARAM_BUFFER_SIZE)
			buffer_size = *(size_t *)key[1];
	}
	cr_assert_eq(buffer_size, sizeof(arguments));
	cr_assert(buffer && buffer[2] == 9, "the buffer's second argument is 9");
	CUgraphExec exec = instantiated();
	run(exec);
	assert_ints(x, 64, 9);
	ok(md_cuda.cuGraphExecDestroy(exec));
}

Test(hostcuda_graph, an_executable_keeps_what_it_was_made_from)
{
	CUgraphNode node = add_scale(add_set(NULL, 2), 3);
	CUgraphExec exec = instantiated();
	int factor = 50, count = 64;
	void *params[] = {&x, &factor, &count};
	CUDA_KERNEL_NODE_PARAMS changed = scale_params(params);
	ok(md_cuda.cuGraphKernelNodeSetParams_v2(node, &changed));
	run(exec);
	assert_ints(x, 64, 6);
	ok(md_cuda.cuGraphExecKernelNodeSetParams_v2(exec, node, &changed));
	run(exec);
	assert_ints(x, 64, 100);
	ok(md_cuda.cuGraphExecDestroy(exec));
}

Test(hostcuda_graph, update_needs_the_same_topology)
{
	CUgraphExecUpdateResultInfo info;
	CUgraph same, other;
	CUgraphNode added;
	add_scale(add_set(NULL, 2), 3);
	CUgraphExec exec = instantiated();
	ok(md_cuda.cuGraphClone(&same, graph));
	int factor = 10, n = 64;
	void *params[] = {&x, &factor, &n};
	CUDA_KERNEL_NODE_PARAMS changed = scale_params(params);
	ok(md_cuda.cuGraphKernelNodeSetParams_v2(node_of_type(same, CU_GRAPH_NODE_TYPE_KERNEL), &changed));
	ok(md_cuda.cuGraphExecUpdate_v2(exec, same, &info));
	cr_assert_eq(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
	run(exec);
	assert_ints(x, 64, 20);
	ok(md_cuda.cuGraphClone(&other, graph));
	ok(md_cuda.cuGraphAddEmptyNode(&added, other, NULL, 0));
	refused(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, md_cuda.cuGraphExecUpdate_v2(exec, other, &info));
	cr_assert_eq(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	run(exec);
	assert_ints(x, 64, 20);
	ok(md_cuda.cuGraphDestroy(same));
	ok(md_cuda.cuGraphDestroy(other));
	ok(md_cuda.cuGraphExecDestroy(exec));
}

Test(hostcuda_graph, edges_keep_their_data)
{
	const CUgraphEdgeData early = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
				       .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
	CUgraphNode set = add_set(NULL, 1), one = add_scale(NULL, 2), two = add_scale(NULL, 3), from[4], to[4];
	CUgraphEdgeData data[4];
	CUgraph copy;
	size_t count = 4;
	ok(md_cuda.cuGraphAddDependencies(graph, &set, &one, 1));
	ok(md_cuda.cuGraphAddDependencies_v2(graph, &one, &two, &early, 1));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuGraphAddDependencies(graph, &set, &one, 1));
	refused_somehow(CUDA_ERROR_INVALID_VALUE, md_cuda.cuGraphAddDependencies_v2(graph, &set, &two, &early, 1));
	ok(md_cuda.cuGraphClone(&copy, graph));
	refused(CUDA_ERROR_LOSSY_QUERY, md_cuda.cuGraphGetEdges(copy, from, to, &count));
	count = 4;
	ok(md_cuda.cuGraphGetEdges_v2(copy, from, to, data, &count));
	cr_assert_eq(count, 2);
	cr_assert_eq(data[0].type + data[1].type, 1);
	count = 1;
	ok(md_cuda.cuGraphNodeGetDependencies_v2(two, from, data, &count));
	cr_assert(from[0] == one && data[0].from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
	refused(CUDA_ERROR_LOSSY_QUERY, md_cuda.cuGraphNodeGetDependencies(two, from, &count));
	ok(md_cuda.cuGraphDestroy(copy));
	ok(md_cuda.cuGraphDestroyNode(one));
	count = 0;
	ok(md_cuda.cuGraphGetEdges(graph, NULL, NULL, &count));
	cr_assert_eq(count, 0);
}

Test(hostcuda_graph, attributes_are_kept_and_copied)
{
	CUgraphNode one = add_scale(NULL, 2), two = add_scale(one, 2);
	CUkernelNodeAttrValue value = {.priority = -3};
	ok(md_cuda.cuGraphKernelNodeSetAttribute(one, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
	if (on_hostcuda()) /* what another driver makes of an attribute of launches is not documented */
		refused(CUDA_ERROR_INVALID_VALUE,
			md_cuda.cuGraphKernelNodeSetAttribute(
			    one, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, &value));
	ok(md_cuda.cuGraphKernelNodeCopyAttributes(two, one));
	memset(&value, 0, sizeof(value));
	ok(md_cuda.cuGraphKernelNodeGetAttribute(two, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
	cr_assert_eq(value.priority, -3);
}

static int inside, most_inside;

static void enter(void *unused)
{
	(void)unused;
	int now = __atomic_add_fetch(&inside, 1, __ATOMIC_ACQ_REL);
	if (now > __atomic_load_n(&most_inside, __ATOMIC_ACQUIRE))
		__atomic_store_n(&most_inside, now, __ATOMIC_RELEASE);
}

static void leave(void *unused)
{
	(void)unused;
	__atomic_sub_fetch(&inside, 1, __ATOMIC_ACQ_REL);
}

Test(hostcuda_graph, one_executable_never_runs_twice_at_once, .timeout = 600)
{
	CUDA_HOST_NODE_PARAMS in = {enter, NULL}, out = {leave, NULL};
	CUgraphNode first, wait, last;
	CUdeviceptr flag_address;
	CUstream second;
	int *flag;
	ok(md_cuda.cuMemHostAlloc((void **)&flag, sizeof(*flag), CU_MEMHOSTALLOC_DEVICEMAP));
	*flag = 0;
	ok(md_cuda.cuMemHostGetDevicePointer_v2(&flag_address, flag, 0));
	ok(md_cuda.cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	void *params[] = {&x, &flag_address};
	CUDA_KERNEL_NODE_PARAMS waiting = {.func = function_named(module, "wait_flag"),
					   .gridDimX = 1,
					   .gridDimY = 1,
					   .gridDimZ = 1,
					   .blockDimX = 1,
					   .blockDimY = 1,
					   .blockDimZ = 1,
					   .kernelParams = params};
	ok(md_cuda.cuGraphAddHostNode(&first, graph, NULL, 0, &in));
	ok(md_cuda.cuGraphAddKernelNode_v2(&wait, graph, &first, 1, &waiting));
	ok(md_cuda.cuGraphAddHostNode(&last, graph, &wait, 1, &out));
	CUgraphExec exec = instantiated();
	ok(md_cuda.cuGraphLaunch(exec, stream));
	ok(md_cuda.cuGraphLaunch(exec, second));
	usleep(50000);
	__atomic_store_n(flag, 4, __ATOMIC_RELEASE);
	ok(md_cuda.cuCtxSynchronize());
	cr_assert_eq(most_inside, 1, "%d launches ran at once", most_inside);
	ok(md_cuda.cuGraphExecDestroy(exec));
	ok(md_cuda.cuStreamDestroy_v2(second));
	ok(md_cuda.cuMemFreeHost(flag));
}

Test(hostcuda_graph, launches_of_one_executable_follow_each_other)
{
	CUstream second;
	add_scale(NULL, 2);
	CUgraphExec exec = instantiated();
	ok(md_cuda.cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 10; i++)
		ok(md_cuda.cuGraphLaunch(exec, i % 2 ? stream : second));
	ok(md_cuda.cuGraphExecDestroy(exec)); /* launches under way finish */
	ok(md_cuda.cuCtxSynchronize());
	assert_ints(x, 64, 1024);
	ok(md_cuda.cuStreamDestroy_v2(second));
}

static void wait_for_flag(void *flag)
{
	while (!__atomic_load_n((int *)flag, __ATOMIC_ACQUIRE))
		usleep(1000);
}

Test(hostcuda_graph, a_launch_has_recorded_the_events_of_its_graph, .timeout = 60)
{
	CUgraphNode wait, record;
	CUstream second;
	CUevent event;
	int flag = 0;
	CUDA_HOST_NODE_PARAMS waiting = {wait_for_flag, &flag};
	ok(md_cuda.cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	ok(md_cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	ok(md_cuda.cuGraphAddHostNode(&wait, graph, NULL, 0, &waiting));
	ok(md_cuda.cuGraphAddEventRecordNode(&record, graph, &wait, 1, event));
	add_scale(record, 3);
	CUgraphExec exec = instantiated();
	ok(md_cuda.cuGraphLaunch(exec, stream));
	ok(md_cuda.cuStreamWaitEvent(second, event, 0));
	ok(md_cuda.cuMemsetD32Async(x + 4, 9, 1, second));
	usleep(50000);
	refused(CUDA_ERROR_NOT_READY, md_cuda.cuEventQuery(event));
	refused(CUDA_ERROR_NOT_READY, md_cuda.cuStreamQuery(second));
	__atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
	ok(md_cuda.cuEventSynchronize(event));
	ok(md_cuda.cuCtxSynchronize());
	assert_ints(x, 1, 3);
	ok(md_cuda.cuGraphExecDestroy(exec));
	ok(md_cuda.cuEventDestroy_v2(event));
	ok(md_cuda.cuStreamDestroy_v2(second));
}

/* As communication libraries do: wait for the last operation, whichever it was, and record the event behind this one. */
Test(hostcuda_graph, a_launch_waits_for_what_was_recorded_before_it, .timeout = 60)
{
	CUgraphNode wait, record;
	CUevent event;
	ok(md_cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	ok(md_cuda.cuGraphAddEventWaitNode(&wait, graph, NULL, 0, event));
	ok(md_cuda.cuGraphAddEventRecordNode(&record, graph, (CUgraphNode[]){add_scale(wait, 2)}, 1, event));
	CUgraphExec exec = instantiated();
	for (int i = 0; i < 4; i++) {
		int flag = 0;
		if (i)
			ok(md_cuda.cuLaunchHostFunc(stream, wait_for_flag, &flag));
		ok(md_cuda.cuGraphLaunch(exec, stream)); /* the event may not have been recorded at all yet */
		ok(md_cuda.cuEventRecord(event, stream));
		ok(md_cuda.cuGraphLaunch(exec, stream));
		__atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
		ok(md_cuda.cuStreamSynchronize(stream));
	}
	assert_ints(x, 64, 256);
	ok(md_cuda.cuGraphExecDestroy(exec));
	ok(md_cuda.cuEventDestroy_v2(event));
}

Test(hostcuda_graph, should_fail_cycles)
{
	CUgraphNode one = add_scale(NULL, 2), two = add_scale(one, 2);
	CUgraphExec exec;
	refused_somehow(CUDA_ERROR_INVALID_VALUE, md_cuda.cuGraphAddDependencies(graph, &one, &one, 1));
	CUresult added = md_cuda.cuGraphAddDependencies(graph, &two, &one, 1);
	if (added == CUDA_SUCCESS)
		refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuGraphInstantiateWithFlags(&exec, graph, 0));
	else
		refused(CUDA_ERROR_INVALID_VALUE, added);
}

Test(hostcuda_graph, a_fault_in_a_graph_fails_the_context)
{
	CUdeviceptr gone = device_ints(1, 64);
	CUdeviceptr kept = x;
	only_on_hostcuda("a real device may leave freed pages mapped");
	x = gone;
	add_scale(NULL, 2);
	x = kept;
	CUgraphExec exec = instantiated();
	ok(md_cuda.cuMemFree_v2(gone));
	ok(md_cuda.cuGraphLaunch(exec, stream));
	refused(CUDA_ERROR_ILLEGAL_ADDRESS, md_cuda.cuStreamSynchronize(stream));
	ok(md_cuda.cuGraphExecDestroy(exec));
	ok(md_cuda.cuGraphDestroy(graph));
	ok(md_cuda.cuDevicePrimaryCtxReset_v2(0));
	open_with_graph(); /* for the suite's end */
}

Test(hostcuda_graph, a_long_chain)
{
	enum { NODES = 5000 };
	CUgraphNode last = NULL;
	for (int i = 0; i < NODES; i++)
		last = add_scale(last, i % 2 ? -1 : 1);
	CUgraphExec exec = instantiated();
	run(exec);
	assert_ints(x, 64, NODES / 2 % 2 ? -1 : 1);
	ok(md_cuda.cuGraphExecDestroy(exec));
}
