/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine that captures a graph while it measures its KV capacity, and throws it away: the cache is allocated after it.
 * KV_TAKEN=BYTES: so much memory is taken before, as if by another process.
 */
#include <stdio.h>
#include <stdlib.h>

#include "medusa/medusa.h"
#include "tests/subjects/subject.h"

enum { BYTES = 256, BLOCK = 1 << 20 };

static CUdeviceptr input, output;
static CUstream stream;

static CUgraphExec capture_through(CUdeviceptr between)
{
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	TRY(cuMemcpyDtoDAsync_v2, between, input, BYTES, stream);
	TRY(cuMemcpyDtoDAsync_v2, output, between, BYTES, stream);
	return end_capture(stream);
}

static int profile(void *unused)
{
	CUdeviceptr temporary;
	(void)unused;
	TRY(cuMemAlloc_v2, &temporary, BLOCK);
	CUgraphExec exec = capture_through(temporary);
	TRY(cuGraphLaunch, exec, stream);
	TRY(cuStreamSynchronize, stream);
	TRY(cuGraphExecDestroy, exec);
	TRY(cuMemFree_v2, temporary);
	return 0;
}

static CUdeviceptr make_cache(void)
{
	struct medusa_kv_request request = {
	    .size = sizeof(request), .key = "kv_subject", .block_bytes = BLOCK, .utilization = 0.8, .profile = profile};
	struct medusa_kv kv = {.size = sizeof(kv)};
	CUdeviceptr cache;
	if (medusa_kv_capacity(&request, &kv) != MEDUSA_OK) {
		fprintf(stderr, "medusa_kv_capacity: %s\n", medusa_reason());
		exit(1);
	}
	fprintf(stderr, "cache: %llu blocks, %s\n", (unsigned long long)kv.blocks,
		kv.from_profile ? "answered" : "measured");
	TRY(cuMemAlloc_v2, &cache, kv.bytes);
	medusa_bind("input", input, BYTES, MEDUSA_BIND_INPUT);
	medusa_bind("output", output, BYTES, MEDUSA_BIND_OUTPUT);
	medusa_bind("cache", cache, kv.bytes, MEDUSA_BIND_STATE);
	return cache;
}

static CUgraphExec make_graph(CUdeviceptr cache)
{
	void *exec = NULL;
	if (medusa_graph_get("through", 1, UINT64_MAX, &exec) == MEDUSA_OK)
		return exec;
	exec = capture_through(cache);
	medusa_graph_label(exec, "through", 1);
	return exec;
}

int main(void)
{
	unsigned char bytes[BYTES];
	CUdeviceptr taken;
	load_driver();
	open_context();
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	TRY(cuMemAlloc_v2, &input, BYTES);
	TRY(cuMemAlloc_v2, &output, BYTES);
	if (getenv("KV_TAKEN"))
		TRY(cuMemAlloc_v2, &taken, strtoull(getenv("KV_TAKEN"), NULL, 10));
	CUgraphExec exec = make_graph(make_cache());
	TRY(cuMemsetD8_v2, input, 42, BYTES);
	TRY(cuMemsetD8_v2, output, 0, BYTES);
	TRY(cuCtxSynchronize);
	TRY(cuGraphLaunch, exec, stream);
	TRY(cuStreamSynchronize, stream);
	TRY(cuMemcpyDtoH_v2, bytes, output, BYTES);
	printf("through the cache: %d\n", bytes[BYTES - 1]);
	return 0;
}
