/* SPDX-License-Identifier: Apache-2.0 */
/* What the graphs of nodes_subject.c are made of: its memory, functions, streams and events, and common pieces. */
#ifndef TESTS_SUBJECTS_NODES_SUBJECT_H
#define TESTS_SUBJECTS_NODES_SUBJECT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/subjects/subject.h"

enum { N = 64, BYTES = N * 4, REPLAYS = 3, ORIGIN = 1 << 18 };

static CUdeviceptr in, out, temporary, map_memory, counter, drawn[2], drawn_unbound[2];
static float *staged_in, *staged_out, *unbound, pageable[N];
static CUfunction step, range, origin, mapped, mapped_there, told, cached, counted, draws, numbered;
static CUstream stream, second, third;
static CUevent fork_one, fork_two, join_one, join_two, engines, foreign, inner, own_one, own_two;
static CUcontext context;

/* ---- pieces of graphs ---- */

static CUresult try_launch(CUdeviceptr to, CUdeviceptr from, float factor, CUstream on, CUlaunchAttribute *attributes,
			   unsigned count)
{
	int32_t n = N;
	void *params[] = {&to, &from, &factor, &n};
	CUlaunchConfig config = {.gridDimX = 4,
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = 32,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .hStream = on,
				 .attrs = attributes,
				 .numAttrs = count};
	return md_cuda.cuLaunchKernelEx(&config, step, params, NULL);
}

static void launch_with(CUdeviceptr to, CUdeviceptr from, float factor, CUstream on, CUlaunchAttribute *attributes,
			unsigned count)
{
	CUresult result = try_launch(to, from, factor, on, attributes, count);
	if (result != CUDA_SUCCESS) {
		fprintf(stderr, "a launch with attribute %u: cuLaunchKernelEx: %s\n",
			count ? (unsigned)attributes[count - 1].id : 0, md_cuda_error_name(result));
		exit(1);
	}
}

static void launch(CUdeviceptr to, CUdeviceptr from, float factor, CUstream on)
{
	launch_with(to, from, factor, on, NULL, 0);
}

static void clear(void)
{
	TRY(cuMemsetD32Async, temporary, 0, N, stream);
}

/* temporary = 2 * in; out += temporary */
static void two_steps(void)
{
	clear();
	launch(temporary, in, 2, stream);
	launch(out, temporary, 1, stream);
}

static void begin(void)
{
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static CUgraph end(void)
{
	CUgraph graph;
	TRY(cuStreamEndCapture, stream, &graph);
	return graph;
}

static CUgraph captured(void (*enqueue)(void))
{
	begin();
	enqueue();
	return end();
}

/* On a GPU that may not have them; said once. */
static int device_refuses(CUlaunchAttribute *attributes, unsigned count)
{
	const char *device = getenv("MEDUSA_DEVICE");
	if (!device || strcmp(device, "gpu") || try_launch(out, in, 0, second, attributes, count) == CUDA_SUCCESS)
		return 0;
	fprintf(stderr, "no preferred clusters here: cluster dimensions are in their place\n");
	return 1;
}

/* With an attribute that a node may not tell; it must be a multiple of the one before it. */
static void clustered(void)
{
	static int refused = -1;
	CUlaunchAttribute cluster[] = {
	    {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {1, 1, 1}},
	    {.id = CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION, .value.preferredClusterDim = {2, 1, 1}},
	};
	if (refused < 0)
		refused = device_refuses(cluster, 2);
	if (refused) {
		cluster[0].value.clusterDim.x = 2;
		launch_with(out, in, 2, stream, cluster, 1);
		return;
	}
	launch_with(out, in, 2, stream, cluster, 2);
}

#endif
