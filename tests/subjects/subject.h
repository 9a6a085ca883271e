/* SPDX-License-Identifier: Apache-2.0 */
/* What engines under test begin with: the driver, a context, and a way to end where a call fails. */
#ifndef TESTS_SUBJECTS_SUBJECT_H
#define TESTS_SUBJECTS_SUBJECT_H

#include <stdio.h>
#include <stdlib.h>

#include "driver/cuda_driver.h"

#define TRY(entry, ...)                                                                                                \
	do {                                                                                                           \
		CUresult result_ = md_cuda.entry ? md_cuda.entry(__VA_ARGS__) : CUDA_ERROR_NOT_SUPPORTED;              \
		if (result_ != CUDA_SUCCESS) {                                                                         \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #entry, md_cuda_error_name(result_));           \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static inline void load_driver(void)
{
	struct md_error err = {0};
	if (md_cuda_load(&err) == MD_OK)
		return;
	fprintf(stderr, "%s\n", err.message);
	exit(1);
}

/* The primary context of the first device, which is current from then on. */
static inline CUcontext open_context_on(CUdevice device)
{
	CUcontext context;
	TRY(cuInit, 0);
	TRY(cuDevicePrimaryCtxRetain, &context, device);
	TRY(cuCtxSetCurrent, context);
	return context;
}

static inline CUcontext open_context(void)
{
	return open_context_on(0);
}

/* What the stream has captured, instantiated. */
static inline CUgraphExec end_capture(CUstream stream)
{
	CUgraphExec exec;
	CUgraph graph;
	TRY(cuStreamEndCapture, stream, &graph);
	TRY(cuGraphInstantiateWithFlags, &exec, graph, 0);
	TRY(cuGraphDestroy, graph);
	return exec;
}

#endif
