/* SPDX-License-Identifier: Apache-2.0 */
/* An engine over the CUDA runtime that binds nothing: argument 1 is a library with another copy of the runtime, or "".
 */
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "medusa/medusa.h"

enum { GRAPHS = 3, WIDTH = 64, FLOATS = GRAPHS * WIDTH, BYTES = FLOATS * 4 };

#define CALL(call)                                                                                                     \
	do {                                                                                                           \
		cudaError_t result_ = (call);                                                                          \
		if (result_ != cudaSuccess) {                                                                          \
			fprintf(stderr, "%s: %s\n", #call, cudaGetErrorName(result_));                                 \
			exit(5);                                                                                       \
		}                                                                                                      \
	} while (0)

__global__ void scale_add(float *out, const float *by, const float *in, int n, float bias)
{
	for (int i = threadIdx.x; i < n; i += blockDim.x)
		out[i] = by[i] * in[i] + bias;
}

/* Also what the library exports: the same kernel's name, from another copy of the runtime. */
extern "C" __attribute__((visibility("default"))) void subject_launch(float *out, const float *by, const float *in,
								      int n, cudaStream_t stream)
{
	scale_add<<<1, 32, 0, stream>>>(out, by, in, n, OWN_BIAS);
	CALL(cudaGetLastError());
}

#ifndef AS_LIBRARY
typedef void launch_function(float *, const float *, const float *, int, cudaStream_t);

static launch_function *other = subject_launch;
static float *weights, *input, *output, *workspace;
static cudaStream_t stream;

static void fill(float *to, float first)
{
	float values[FLOATS];
	for (int i = 0; i < FLOATS; i++)
		values[i] = first + (float)i / 8;
	CALL(cudaMemcpy(to, values, BYTES, cudaMemcpyHostToDevice));
	CALL(cudaDeviceSynchronize()); /* the copy may still be on its way, and the stream need not wait for it */
}

static cudaGraphExec_t capture(unsigned batch)
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	int n = (int)batch * WIDTH;
	if (!workspace) { /* a warm-up: modules are loaded lazily, and must not be in a capture */
		CALL(cudaMalloc((void **)&workspace, BYTES));
		subject_launch(workspace, weights, input, n, stream);
		other(workspace, weights, input, n, stream);
		CALL(cudaStreamSynchronize(stream));
	}
	CALL(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	subject_launch(workspace, weights, input, n, stream);
	other(output, weights, workspace, n, stream);
	CALL(cudaStreamEndCapture(stream, &graph));
	CALL(cudaGraphInstantiateWithFlags(&exec, graph, 0));
	CALL(cudaGraphDestroy(graph));
	if (medusa_graph_label(exec, "step", batch) != MEDUSA_OK)
		fprintf(stderr, "label: %s\n", medusa_reason());
	return exec;
}

static void replay(cudaGraphExec_t exec, unsigned batch)
{
	float values[FLOATS];
	fill(input, (float)batch);
	CALL(cudaGraphLaunch(exec, stream));
	CALL(cudaStreamSynchronize(stream));
	CALL(cudaMemcpy(values, output, BYTES, cudaMemcpyDeviceToHost));
	printf("%u", batch);
	for (unsigned at = 0; at < batch * WIDTH; at += 7)
		printf(" %a", (double)values[at]);
	printf("\n");
}

int main(int argc, char **argv)
{
	cudaGraphExec_t execs[GRAPHS + 1];
	void *library = argc > 1 && *argv[1] ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	if (library)
		other = (launch_function *)dlsym(library, "subject_launch");
	if (!other || (argc > 1 && *argv[1] && !library)) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
	CALL(cudaSetDevice(0));
	CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CALL(cudaMalloc((void **)&weights, BYTES));
	CALL(cudaMalloc((void **)&input, BYTES));
	CALL(cudaMalloc((void **)&output, BYTES));
	CALL(cudaMemset(output, 0, BYTES));
	fill(weights, 1);
	for (unsigned batch = 1; batch <= GRAPHS; batch++) {
		void *exec = NULL;
		int result = medusa_graph_get("step", batch, UINT64_MAX, &exec);
		fprintf(stderr, "graph %u %s %s\n", batch, result == MEDUSA_OK ? "restored" : "live",
			result == MEDUSA_OK ? "" : medusa_reason());
		execs[batch] = result == MEDUSA_OK ? (cudaGraphExec_t)exec : capture(batch);
	}
	medusa_mark("ready");
	for (unsigned batch = 1; batch <= GRAPHS; batch++)
		replay(execs[batch], batch);
	medusa_release();
	return 0;
}
#endif
