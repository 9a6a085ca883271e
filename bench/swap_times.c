/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures what swapping costs an engine that is not swapped: the gate around a call, and allocations of the layer
 * against the driver's own, in turn: swap_times [ROUNDS]
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/splitmix.h"
#include "swap/gate.h"
#include "swap/layer.h"

#define CALLS 2000000
#define LIVE 256
#define STEPS 4000

static void need(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "%s: %s\n", what, md_cuda_error_name(result));
	exit(1);
}

static double gate_ns(void)
{
	CUresult result = CUDA_SUCCESS;
	uint64_t start = md_clock_ns();
	for (unsigned i = 0; i < CALLS; i++) {
		result |= MD_SWAP_GATED(cuLaunchKernel, CUDA_SUCCESS);
		__asm__ volatile("" : "+r"(result));
	}
	need(result, "the gate");
	return (double)(md_clock_ns() - start) / CALLS;
}

/* Sizes as a caching allocator asks for them, those of single tensors, and those between. */
static const struct sequence {
	const char *name;
	size_t sizes[6];
	unsigned live;
} sequences[] = {
    {"segments of 2 and 20 MB", {2u << 20, 20u << 20, 2u << 20, 20u << 20, 2u << 20, 44u << 20}, 64},
    {"tensors of 512 bytes to 1 MB", {512, 4096, 100000, 65536, 1u << 20, 300}, LIVE},
    {"buffers of 1 to 300 MB", {1u << 20, 5u << 20, 300u << 20, 33u << 20, 8u << 20, 70u << 20}, 8},
};

/* Takes and gives in a random order, the same for both tables. */
static double step_ns(const struct md_cuda *table, const struct sequence *sequence)
{
	CUdeviceptr live[LIVE] = {0};
	uint64_t state = 7, start = md_clock_ns();
	for (unsigned i = 0; i < STEPS; i++) {
		CUdeviceptr *at = &live[md_random_next(&state) % sequence->live];
		if (*at) {
			need(table->cuMemFree_v2(*at), "cuMemFree");
			*at = 0;
		} else {
			need(table->cuMemAlloc_v2(at, sequence->sizes[md_random_next(&state) % 6]), "cuMemAlloc");
		}
	}
	for (unsigned i = 0; i < LIVE; i++)
		need(live[i] ? table->cuMemFree_v2(live[i]) : CUDA_SUCCESS, "cuMemFree");
	return (double)(md_clock_ns() - start) / STEPS;
}

int main(int argc, char *argv[])
{
	int rounds = argc > 1 ? atoi(argv[1]) : 3;
	struct md_error err = {0};
	CUcontext context;
	if (md_cuda_load(&err) != MD_OK) {
		fprintf(stderr, "%s\n", err.message);
		return 1;
	}
	struct md_cuda layer = md_swap_real;
	md_swap_layer(&layer);
	need(layer.cuInit(0), "cuInit");
	need(layer.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	need(layer.cuCtxSetCurrent(context), "cuCtxSetCurrent");
	for (int round = 0; round < rounds; round++) {
		printf("gate: %.1f ns\n", gate_ns());
		for (unsigned i = 0; i < sizeof(sequences) / sizeof(sequences[0]); i++) {
			double driver = step_ns(&md_swap_real, &sequences[i]), own = step_ns(&layer, &sequences[i]);
			printf("%s: driver %.0f ns, layer %.0f ns, %.2f x\n", sequences[i].name, driver, own,
			       own / driver);
		}
	}
	return 0;
}
