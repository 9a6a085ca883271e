/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs of nodes_subject.c with attributes of nodes, and with functions that were told something. */
#ifndef TESTS_SUBJECTS_NODES_ATTRIBUTES_H
#define TESTS_SUBJECTS_NODES_ATTRIBUTES_H

#include "tests/subjects/nodes_subject.h"

/* ---- attributes ---- */

static CUgraph with_attributes(CUlaunchAttribute *attributes, unsigned count)
{
	begin();
	launch_with(out, in, 2, stream, attributes, count);
	launch(out, in, 1, stream);
	return end();
}

static CUgraph window(void)
{
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
				       .value.accessPolicyWindow = {.base_ptr = (void *)(uintptr_t)(in + 64),
								    .num_bytes = 128,
								    .hitRatio = 0.5f,
								    .hitProp = CU_ACCESS_PROPERTY_PERSISTING,
								    .missProp = CU_ACCESS_PROPERTY_STREAMING}};
	return with_attributes(&attribute, 1);
}

static CUgraph clusters(void)
{
	CUlaunchAttribute attributes[] = {
	    {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {2, 1, 1}},
	    {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
	     .value.clusterSchedulingPolicyPreference = CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING},
	};
	return with_attributes(attributes, 2);
}

static CUgraph preferred_cluster(void)
{
	CUlaunchAttribute attributes[] = {
	    {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {2, 1, 1}},
	    {.id = CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION, .value.preferredClusterDim = {4, 1, 1}},
	};
	return with_attributes(attributes, 2);
}

/* A copy of a graph has the attributes of the launches that made the original. */
static CUgraph cloned(void)
{
	CUgraph original = captured(clustered), copy;
	TRY(cuGraphClone, &copy, original);
	TRY(cuGraphDestroy, original);
	return copy;
}

/* Set on the node, by no launch. */
static CUgraph set_cluster(void)
{
	CUlaunchAttributeValue one = {.clusterDim = {1, 1, 1}}, value = {.preferredClusterDim = {4, 1, 1}};
	CUgraphNode nodes[3];
	size_t count = 3;
	CUgraph graph = captured(two_steps);
	TRY(cuGraphGetNodes, graph, nodes, &count);
	TRY(cuGraphKernelNodeSetAttribute, nodes[1], CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &one);
	TRY(cuGraphKernelNodeSetAttribute, nodes[1], CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION, &value);
	return graph;
}

/* What a node's launch gave goes with a copy of its attributes. */
static CUDA_KERNEL_NODE_PARAMS plain(CUdeviceptr *to, CUdeviceptr *from, float *factor, int32_t *n, void **params)
{
	params[0] = to;
	params[1] = from;
	params[2] = factor;
	params[3] = n;
	return (CUDA_KERNEL_NODE_PARAMS){.func = step,
					 .gridDimX = 4,
					 .gridDimY = 1,
					 .gridDimZ = 1,
					 .blockDimX = 32,
					 .blockDimY = 1,
					 .blockDimZ = 1,
					 .kernelParams = params};
}

static CUgraph copied_attributes(void)
{
	CUgraph graph = captured(clustered);
	CUgraphNode first, second_node;
	size_t count = 1;
	float factor = 3;
	int32_t n = N;
	void *params[4];
	CUDA_KERNEL_NODE_PARAMS node = plain(&out, &in, &factor, &n, params);
	TRY(cuGraphGetNodes, graph, &first, &count);
	TRY(cuGraphAddKernelNode_v2, &second_node, graph, &first, 1, &node);
	TRY(cuGraphKernelNodeCopyAttributes, second_node, first);
	return graph;
}

/* A node goes, and its handle may be the next one's. */
static CUgraph reused_node(void)
{
	CUgraph graph = captured(clustered);
	CUgraphNode node;
	size_t count = 1;
	float factor = 3;
	int32_t n = N;
	void *params[4];
	CUDA_KERNEL_NODE_PARAMS plain_node = plain(&out, &in, &factor, &n, params);
	TRY(cuGraphGetNodes, graph, &node, &count);
	TRY(cuGraphDestroyNode, node);
	TRY(cuGraphAddKernelNode_v2, &node, graph, NULL, 0, &plain_node);
	return graph;
}

/* The nodes of a capture that fails go without a call that says so; one of many may get a handle of theirs. */
static CUgraph after_failure(void)
{
	CUgraph graph;
	CUgraphNode nodes[16];
	float factor = 1;
	int32_t n = N;
	void *params[4];
	CUDA_KERNEL_NODE_PARAMS node = plain(&out, &in, &factor, &n, params);
	begin();
	for (int i = 0; i < 16; i++)
		clustered();
	(void)md_cuda.cuStreamSynchronize(stream); /* not allowed here */
	if (md_cuda.cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS)
		exit(1);
	TRY(cuGraphCreate, &graph, 0);
	for (int i = 0; i < 16; i++)
		TRY(cuGraphAddKernelNode_v2, &nodes[i], graph, i ? &nodes[i - 1] : NULL, i > 0, &node);
	return graph;
}

/* The call that adds nodes of any type. */
static CUgraph any_node(void)
{
	CUgraph graph, leaf = captured(clustered);
	CUgraphNodeParams child_params = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph.graph = leaf};
	CUgraphNodeParams kernel_params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
	CUgraphNode first, last;
	float factor = 3;
	int32_t n = N;
	void *params[4];
	CUDA_KERNEL_NODE_PARAMS node = plain(&out, &in, &factor, &n, params);
	kernel_params.kernel.func = node.func;
	kernel_params.kernel.gridDimX = kernel_params.kernel.gridDimY = kernel_params.kernel.gridDimZ = 1;
	kernel_params.kernel.blockDimX = 32;
	kernel_params.kernel.blockDimY = kernel_params.kernel.blockDimZ = 1;
	kernel_params.kernel.kernelParams = params;
	TRY(cuGraphCreate, &graph, 0);
	TRY(cuGraphAddNode_v2, &first, graph, NULL, NULL, 0, &child_params);
	TRY(cuGraphAddNode_v2, &last, graph, &first, NULL, 1, &kernel_params);
	TRY(cuGraphDestroy, leaf);
	return graph;
}

static CUgraph cooperative(void)
{
	int32_t n = N;
	float factor = 1;
	void *params[] = {&out, &in, &factor, &n};
	begin();
	TRY(cuLaunchCooperativeKernel, step, 2, 1, 1, 32, 1, 1, 0, stream, params);
	return end();
}

static CUgraph priority(void)
{
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = -3};
	return with_attributes(&attribute, 1);
}

static CUgraph sync_domain(void)
{
	CUlaunchAttribute attributes[] = {
	    {.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, .value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE},
	    {.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, .value.memSyncDomainMap = {1, 3}},
	};
	return with_attributes(attributes, 2);
}

/* Both domains are one: not the default, which keeps them apart. */
static CUgraph sync_domains_one(void)
{
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, .value.memSyncDomainMap = {0, 0}};
	return with_attributes(&attribute, 1);
}

static CUgraph carveout(void)
{
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
				       .value.sharedMemCarveout = 50};
	return with_attributes(&attribute, 1);
}

static CUgraph strange_attribute(void)
{
	CUlaunchAttribute attribute = {.id = (CUlaunchAttributeID)29, .value.priority = 1};
	return with_attributes(&attribute, 1);
}

static CUgraph updatable(void)
{
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE,
				       .value.deviceUpdatableKernelNode = {.deviceUpdatable = 1}};
	return with_attributes(&attribute, 1);
}

static CUgraph set_on_first(CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
	CUgraph graph = with_attributes(NULL, 0);
	CUgraphNode nodes[2];
	size_t count = 2;
	TRY(cuGraphGetNodes, graph, nodes, &count);
	TRY(cuGraphKernelNodeSetAttribute, nodes[0], id, value);
	return graph;
}

static CUgraph updatable_set(void)
{
	CUlaunchAttributeValue value = {.deviceUpdatableKernelNode = {.deviceUpdatable = 1}};
	return set_on_first(CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value);
}

/* ---- what functions are told, which nodes do not carry ---- */

static CUgraph launched_with(CUfunction function, unsigned shared)
{
	float factor = 2;
	int32_t n = N;
	void *params[] = {&out, &in, &factor, &n};
	begin();
	TRY(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, shared, stream, params, NULL);
	return end();
}

static CUgraph function_state(void)
{
	TRY(cuFuncSetAttribute, told, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 96 << 10);
	TRY(cuFuncSetAttribute, told, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
	TRY(cuFuncSetAttribute, told, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 60);
	return launched_with(told, 64 << 10);
}

/* 0 is a preference: all for the cache. */
static CUgraph function_cache(void)
{
	TRY(cuFuncSetAttribute, cached, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 0);
	return launched_with(cached, 0);
}

#endif
