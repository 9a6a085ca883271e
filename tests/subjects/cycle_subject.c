/* SPDX-License-Identifier: Apache-2.0 */
/* Restores and gives up the restore subject's graphs again and again, in one process. argv[1]: how often. Prints what
 * the process and the device hold. CYCLES_ALONE: no graph is asked for. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "medusa/medusa.h"
#include "restore_subject.h"
#include "tests/subjects/subject.h"

static CUdeviceptr weights, input, state, output;

static void set_up(void)
{
	float values[FLOATS];
	TRY(cuMemAlloc_v2, &weights, BYTES);
	TRY(cuMemAlloc_v2, &input, BYTES);
	TRY(cuMemAlloc_v2, &state, BYTES);
	TRY(cuMemAlloc_v2, &output, OUTPUT_BYTES);
	for (uint32_t i = 0; i < FLOATS; i++)
		values[i] = weight_at(i);
	TRY(cuMemcpyHtoD_v2, weights, values, BYTES);
	TRY(cuMemcpyHtoD_v2, input, values, BYTES);
	TRY(cuMemsetD8_v2, state, 0, BYTES);
	TRY(cuMemsetD8_v2, output, 0, OUTPUT_BYTES);
	/* A set may be under way still, and non-blocking streams do not wait for it. */
	if (md_cuda.cuCtxSynchronize() != CUDA_SUCCESS)
		exit(1);
	medusa_bind("weights", weights, BYTES, MEDUSA_BIND_CONSTANT);
	medusa_bind("input", input, BYTES, MEDUSA_BIND_INPUT);
	medusa_bind("state", state, BYTES, MEDUSA_BIND_STATE);
	medusa_bind("output", output, OUTPUT_BYTES, MEDUSA_BIND_OUTPUT);
}

static void tear_down(void)
{
	TRY(cuMemFree_v2, weights);
	TRY(cuMemFree_v2, input);
	TRY(cuMemFree_v2, state);
	TRY(cuMemFree_v2, output);
}

/* A checksum of what all graphs have left. */
static unsigned long long replay(void)
{
	uint8_t bytes[OUTPUT_BYTES];
	unsigned long long sum = 1469598103934665603u;
	CUstream stream;
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	for (unsigned batch = 1; batch <= GRAPHS; batch++) {
		void *exec = NULL;
		if (medusa_graph_get(LABEL, batch, UINT64_MAX, &exec) != MEDUSA_OK) {
			fprintf(stderr, "graph %u: %s\n", batch, medusa_reason());
			exit(3);
		}
		TRY(cuGraphLaunch, exec, stream);
		TRY(cuStreamSynchronize, stream);
		TRY(cuMemcpyDtoH_v2, bytes, output, OUTPUT_BYTES);
		for (size_t i = 0; i < OUTPUT_BYTES; i++)
			sum = (sum ^ bytes[i]) * 1099511628211u;
	}
	TRY(cuStreamDestroy_v2, stream);
	return sum;
}

static long resident_bytes(void)
{
	long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	if (!file || fscanf(file, "%*d %ld", &pages) != 1)
		exit(4);
	fclose(file);
	return pages * sysconf(_SC_PAGESIZE);
}

static void print_held(unsigned cycle)
{
	size_t now = 0, total = 0;
	malloc_trim(0); /* what is free would count as resident, more or less by chance */
	TRY(cuMemGetInfo_v2, &now, &total);
	printf("cycle %u resident %ld heap %zu device %zu\n", cycle, resident_bytes(),
	       mallinfo2().uordblks + mallinfo2().hblkhd, total - now);
}

int main(int argc, char **argv)
{
	unsigned cycles = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
	unsigned long long first = 0;
	CUcontext context;
	if (md_cuda_load(NULL) != MD_OK)
		return 2;
	TRY(cuInit, 0);
	for (unsigned cycle = 1; cycle <= cycles; cycle++) {
		TRY(cuDevicePrimaryCtxRetain, &context, 0);
		TRY(cuCtxSetCurrent, context);
		set_up();
		unsigned long long sum = getenv("CYCLES_ALONE") ? 0 : replay();
		first = cycle == 1 ? sum : first;
		if (sum != first) {
			fprintf(stderr, "cycle %u: %016llx, the first one %016llx\n", cycle, sum, first);
			return 3;
		}
		tear_down();
		TRY(cuDevicePrimaryCtxRelease_v2, 0); /* the graphs go with their context */
		if (cycle % 100 && cycle != 20)
			continue;
		TRY(cuDevicePrimaryCtxRetain, &context, 0);
		TRY(cuCtxSetCurrent, context);
		print_held(cycle);
		TRY(cuDevicePrimaryCtxRelease_v2, 0);
	}
	return 0;
}
