/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs of nodes_subject.c with nodes of another context, or of a part of the device. */
#ifndef TESTS_SUBJECTS_NODES_CONTEXTS_H
#define TESTS_SUBJECTS_NODES_CONTEXTS_H

#include <dlfcn.h>

#include "tests/subjects/nodes_subject.h"

static const char *image_path;

/* A second context, whose memory kernels of the first one cannot reach. */
static struct {
	CUcontext context;
	CUstream stream;
	CUevent event;
	CUfunction step;
	CUdeviceptr in, out;
} other;

static void enter_other(void)
{
	CUmodule module;
	if (other.context) {
		TRY(cuCtxPushCurrent_v2, other.context);
		return;
	}
	TRY(cuCtxCreate_v2, &other.context, 0, 0); /* and it is current */
	TRY(cuStreamCreate, &other.stream, CU_STREAM_NON_BLOCKING);
	TRY(cuEventCreate, &other.event, CU_EVENT_DISABLE_TIMING);
	TRY(cuModuleLoad, &module, image_path);
	TRY(cuModuleGetFunction, &other.step, module, "nodes_step");
	TRY(cuMemAlloc_v2, &other.in, BYTES);
	TRY(cuMemAlloc_v2, &other.out, BYTES);
	TRY(cuMemsetD8_v2, other.in, 0, BYTES);
	TRY(cuMemsetD8_v2, other.out, 0, BYTES);
	TRY(cuCtxSynchronize);
}

static void leave_other(void)
{
	CUcontext popped;
	TRY(cuCtxPopCurrent_v2, &popped);
}

static void launch_other(void)
{
	float factor = 2;
	int32_t n = N;
	void *params[] = {&other.out, &other.in, &factor, &n};
	TRY(cuLaunchKernel, other.step, 1, 1, 1, 32, 1, 1, 0, other.stream, params, NULL);
}

static void set_other(void)
{
	TRY(cuMemsetD8Async, other.in, 1, BYTES, other.stream);
}

/* A fork into the other context, and back. */
static CUgraph forked_to_other(void (*enqueue)(void))
{
	enter_other();
	leave_other();
	begin();
	launch(out, in, 1, stream);
	TRY(cuEventRecord, fork_one, stream);
	enter_other();
	TRY(cuStreamWaitEvent, other.stream, fork_one, 0);
	enqueue();
	TRY(cuEventRecord, other.event, other.stream);
	leave_other();
	TRY(cuStreamWaitEvent, stream, other.event, 0);
	return end();
}

static CUgraph other_context(void)
{
	return forked_to_other(launch_other);
}

static CUgraph other_context_set(void)
{
	return forked_to_other(set_other);
}

/* By the call that adds a node. */
static CUgraph other_context_added(void)
{
	CUDA_MEMSET_NODE_PARAMS set = {.dst = 0, .value = 1, .elementSize = 1, .width = BYTES, .height = 1};
	CUgraph graph = captured(two_steps);
	CUgraphNode node;
	enter_other();
	leave_other();
	set.dst = other.in;
	TRY(cuGraphAddMemsetNode, &node, graph, NULL, 0, &set, other.context);
	return graph;
}

/* ---- a part of the device ---- */

#define GREEN(entry, ...)                                                                                              \
	do {                                                                                                           \
		__typeof__(&entry) entry_ = (__typeof__(&entry))dlsym(driver, #entry);                                 \
		CUresult result_ = entry_ ? entry_(__VA_ARGS__) : CUDA_ERROR_NOT_SUPPORTED;                            \
		if (result_ != CUDA_SUCCESS) {                                                                         \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #entry, md_cuda_error_name(result_));           \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static CUgraph green_context(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
	CUdevResource all, part, rest;
	CUdevResourceDesc description;
	CUgreenCtx green;
	CUcontext as_context, popped;
	CUgraph graph;
	CUstream own = stream;
	unsigned groups = 1;
	GREEN(cuDeviceGetDevResource, 0, &all, CU_DEV_RESOURCE_TYPE_SM);
	GREEN(cuDevSmResourceSplitByCount, &part, &groups, &all, &rest, 0u, all.sm.minSmPartitionSize);
	GREEN(cuDevResourceGenerateDesc, &description, &part, 1u);
	GREEN(cuGreenCtxCreate, &green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM);
	GREEN(cuGreenCtxStreamCreate, &stream, green, CU_STREAM_NON_BLOCKING, 0);
	GREEN(cuCtxFromGreenCtx, &as_context, green);
	TRY(cuCtxPushCurrent_v2, as_context);
	graph = captured(two_steps);
	TRY(cuCtxPopCurrent_v2, &popped);
	stream = own;
	return graph;
}

#endif
