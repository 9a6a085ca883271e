/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine that copies between two devices, without peer access, in every way that the driver takes; twice, and in between it
 * gives its memory away and takes it back if argv[1] is "swap". Prints what came of each copy. With "graphs" as the last
 * argument the copies are in graphs, which live through that.
 */
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "medusa/medusa.h"
#include "medusa/swap.h"
#include "tests/subjects/subject.h"

enum { BYTES = 4096, PITCH = 512, MEMORY = 3 << 20 };

static CUcontext contexts[2];
static CUdeviceptr here, there;
static CUstream stream;
static unsigned char pattern[BYTES], got[BYTES];

static void on(int device)
{
	TRY(cuCtxSetCurrent, contexts[device]);
}

static void clear(void)
{
	memset(got, 0, sizeof(got));
	on(1);
	TRY(cuMemsetD8_v2, there, 0, BYTES);
	TRY(cuCtxSynchronize);
	on(0);
}

/* What the other device's memory holds, as that device sees it. */
static void say(const char *what, CUresult result)
{
	TRY(cuCtxSynchronize);
	on(1);
	TRY(cuMemcpyDtoH_v2, got, there, BYTES);
	on(0);
	printf("%s: %s, %s\n", what, md_cuda_error_name(result), memcmp(got, pattern, BYTES) ? "other bytes" : "right");
	clear();
}

static void bytes(void)
{
	say("DtoD", md_cuda.cuMemcpyDtoD_v2(there, here, BYTES));
	say("DtoDAsync", md_cuda.cuMemcpyDtoDAsync_v2(there, here, BYTES, stream));
	say("unified", md_cuda.cuMemcpy(there, here, BYTES));
	say("unifiedAsync", md_cuda.cuMemcpyAsync(there, here, BYTES, stream));
	say("unified from the host", md_cuda.cuMemcpy(there, (CUdeviceptr)(uintptr_t)pattern, BYTES));
	say("HtoD", md_cuda.cuMemcpyHtoD_v2(there, pattern, BYTES));
	say("HtoDAsync", md_cuda.cuMemcpyHtoDAsync_v2(there, pattern, BYTES, stream));
	say("Peer", md_cuda.cuMemcpyPeer(there, contexts[1], here, contexts[0], BYTES));
	say("PeerAsync", md_cuda.cuMemcpyPeerAsync(there, contexts[1], here, contexts[0], BYTES, stream));
	say("DtoD of the per-thread stream", md_cuda.cuMemcpyDtoD_v2_ptds(there, here, BYTES));
	say("DtoDAsync of it", md_cuda.cuMemcpyDtoDAsync_v2_ptsz(there, here, BYTES, NULL));
}

/* Rows of half the pitch, so that the other half comes with a second copy. */
static void shapes(void)
{
	CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			      .srcDevice = here,
			      .srcPitch = PITCH,
			      .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			      .dstDevice = there,
			      .dstPitch = PITCH,
			      .WidthInBytes = PITCH / 2,
			      .Height = BYTES / PITCH};
	CUresult first = md_cuda.cuMemcpy2D_v2(&rows);
	rows.srcXInBytes = rows.dstXInBytes = PITCH / 2;
	say("2D", first ? first : md_cuda.cuMemcpy2DAsync_v2(&rows, stream));
	CUDA_MEMCPY3D slices = {.srcMemoryType = CU_MEMORYTYPE_HOST,
				.srcHost = pattern,
				.srcPitch = PITCH,
				.srcHeight = 4,
				.dstMemoryType = CU_MEMORYTYPE_UNIFIED,
				.dstDevice = there,
				.dstPitch = PITCH,
				.dstHeight = 4,
				.WidthInBytes = PITCH,
				.Height = 4,
				.Depth = 1};
	first = md_cuda.cuMemcpy3D_v2(&slices);
	slices.srcZ = slices.dstZ = 1;
	say("3D", first ? first : md_cuda.cuMemcpy3DAsync_v2(&slices, stream));
}

static void back(void)
{
	unsigned char mine[BYTES];
	on(1);
	TRY(cuMemcpyHtoD_v2, there, pattern, BYTES);
	on(0);
	memset(mine, 0, BYTES);
	CUresult result = md_cuda.cuMemcpyDtoH_v2(mine, there, BYTES);
	printf("DtoH: %s, %s\n", md_cuda_error_name(result), memcmp(mine, pattern, BYTES) ? "other bytes" : "right");
	clear();
	result = md_cuda.cuMemcpyDtoH_v2(mine, BYTES, BYTES);
	printf("of no memory: %s\n", result == CUDA_SUCCESS ? "done" : "refused");
}

/* ---- in graphs ---- */

enum { CAPTURED, CAPTURED_BACK, ADDED, ADDED_ANEW, SET, SET_LATE, GRAPHS };
static const char *const graph_names[] = {"captured", "captured there", "added", "added by its parameters",
					  "set",      "set late"};
static CUgraphExec execs[GRAPHS];
static CUdeviceptr other; /* on the first device, too */

static CUDA_MEMCPY3D copy_of(CUdeviceptr to, CUdeviceptr from)
{
	return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .srcDevice = from,
			       .srcPitch = BYTES,
			       .srcHeight = 1,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstDevice = to,
			       .dstPitch = BYTES,
			       .dstHeight = 1,
			       .WidthInBytes = BYTES,
			       .Height = 1,
			       .Depth = 1};
}

static CUresult capture(int device, CUgraph *graph)
{
	CUstream on_it;
	on(device);
	TRY(cuStreamCreate, &on_it, CU_STREAM_NON_BLOCKING);
	TRY(cuStreamBeginCapture_v2, on_it, CU_STREAM_CAPTURE_MODE_GLOBAL);
	CUresult result = md_cuda.cuMemcpyDtoDAsync_v2(there, here, BYTES, on_it);
	CUresult ended = md_cuda.cuStreamEndCapture(on_it, graph);
	TRY(cuStreamDestroy_v2, on_it);
	on(0);
	return result ? result : ended;
}

static CUresult add(int kind, CUgraph *graph)
{
	CUDA_MEMCPY3D there_from_here = copy_of(there, here), within = copy_of(other, here);
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
				    .memcpy = {.copyCtx = contexts[0], .copyParams = there_from_here}};
	CUgraphNode node;
	CUresult result;
	TRY(cuGraphCreate, graph, 0);
	if (kind == ADDED_ANEW)
		return md_cuda.cuGraphAddNode(&node, *graph, NULL, 0, &params);
	result = md_cuda.cuGraphAddMemcpyNode(&node, *graph, NULL, 0, kind == ADDED ? &there_from_here : &within,
					      contexts[0]);
	if (kind == ADDED || result != CUDA_SUCCESS)
		return result;
	if (kind == SET)
		return md_cuda.cuGraphMemcpyNodeSetParams(node, &there_from_here);
	TRY(cuGraphInstantiateWithFlags, &execs[kind], *graph, 0);
	return md_cuda.cuGraphExecMemcpyNodeSetParams(execs[kind], node, &there_from_here, contexts[0]);
}

static void make_graphs(void)
{
	TRY(cuMemAlloc_v2, &other, MEMORY);
	for (int kind = 0; kind < GRAPHS; kind++) {
		CUgraph graph;
		CUresult result = kind <= CAPTURED_BACK ? capture(kind == CAPTURED_BACK, &graph) : add(kind, &graph);
		if (result == CUDA_SUCCESS && !execs[kind])
			TRY(cuGraphInstantiateWithFlags, &execs[kind], graph, 0);
		printf("graph %s: %s\n", graph_names[kind], md_cuda_error_name(result));
		if (result != CUDA_SUCCESS)
			execs[kind] = NULL;
	}
}

static void launch_graphs(void)
{
	for (int kind = 0; kind < GRAPHS; kind++)
		if (execs[kind])
			say(graph_names[kind], md_cuda.cuGraphLaunch(execs[kind], stream));
}

static void swap(void)
{
	struct medusa_swap_report report = {.size = sizeof(report)};
	int out = medusa_swap_out(NULL, NULL, &report);
	for (int i = 0; i < 1200 && out == MEDUSA_ERR_NOT_FOUND; i++) { /* medusa-swap run does not know of it yet */
		usleep(50000);
		out = medusa_swap_out(NULL, NULL, &report);
	}
	int in = medusa_swap_in(NULL, NULL, NULL);
	fprintf(stderr, "out %d of %llu bytes, in %d\n", out, (unsigned long long)report.bytes, in);
}

int main(int argc, char **argv)
{
	load_driver();
	TRY(cuInit, 0);
	for (int i = 0; i < 2; i++)
		TRY(cuDevicePrimaryCtxRetain, &contexts[i], i);
	on(1);
	TRY(cuMemAlloc_v2, &there, MEMORY);
	on(0);
	TRY(cuMemAlloc_v2, &here, MEMORY);
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	for (int i = 0; i < BYTES; i++)
		pattern[i] = (unsigned char)(i * 7 + i / 256 + 1);
	TRY(cuMemcpyHtoD_v2, here, pattern, BYTES);
	clear();
	bool graphs = argc > 1 && !strcmp(argv[argc - 1], "graphs");
	if (graphs)
		make_graphs();
	for (int turn = 0; turn < 2; turn++) {
		if (graphs) {
			launch_graphs();
		} else {
			bytes();
			shapes();
			back();
		}
		if (!turn && argc > 1 && !strcmp(argv[1], "swap"))
			swap();
	}
	return 0;
}
