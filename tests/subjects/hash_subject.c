/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the hash of device memory: argv[1] MiB in argv[2] tensors; compares the first MiB of each
 * with the host's. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "driver/device_hash.h"
#include "tests/subjects/subject.h"

static struct md_device_hasher hasher;
static CUstream stream;

static uint64_t hash(struct md_hash_range *ranges, size_t count)
{
	struct md_error err = {0};
	uint64_t start = md_clock_ns();
	size_t failed;
	if (md_device_hash(&hasher, stream, ranges, count, &failed, &err) != MD_OK) {
		fprintf(stderr, "range %zu: %s\n", failed, err.message);
		exit(1);
	}
	return md_clock_ns() - start;
}

static bool first_is_right(const struct md_hash_range *range)
{
	struct md_hash_range part = {.address = range->address, .size = range->size < 1 << 20 ? range->size : 1 << 20};
	struct md_hash here;
	void *bytes = malloc(part.size);
	if (!bytes)
		exit(1);
	TRY(cuMemcpyDtoH_v2, bytes, part.address, part.size);
	hash(&part, 1);
	here = md_device_hash_bytes(bytes, part.size);
	free(bytes);
	return md_hash_equal(&here, &part.hash);
}

int main(int argc, char **argv)
{
	uint64_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 64) << 20, best = UINT64_MAX, start;
	size_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 16, wrong = 0;
	struct md_hash_range *ranges = calloc(count + 1, sizeof(*ranges));
	struct md_error err = {0};
	CUdeviceptr memory;
	if (!ranges || !count || md_cuda_load(&err) != MD_OK) {
		fprintf(stderr, "%s\n", err.message);
		return 1;
	}
	open_context();
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	TRY(cuMemAlloc_v2, &memory, bytes);
	for (size_t i = 0; i < count; i++) {
		uint64_t size = bytes / count / 16 * 16;
		ranges[i] = (struct md_hash_range){.address = memory + i * size, .size = size - i % 16};
		TRY(cuMemsetD32_v2, ranges[i].address, (unsigned)i * 2654435761u, size / 4);
	}
	TRY(cuCtxSynchronize);
	start = md_clock_ns();
	md_device_hasher_open(&hasher, stream);
	printf("kernel    %s, opened in %.1f ms\n", hasher.function ? "on the device" : "none: through the host",
	       (double)(md_clock_ns() - start) / 1e6);
	for (int i = 0; i < 5; i++) {
		uint64_t ns = hash(ranges, count);
		best = ns < best ? ns : best;
	}
	printf("hashed    %" PRIu64 " MiB in %zu ranges: %.3f ms with staging, %.0f GB/s\n", bytes >> 20, count,
	       (double)best / 1e6, (double)bytes / (double)best);
	for (size_t i = 0; i < count; i++)
		wrong += !first_is_right(&ranges[i]);
	printf("compared  %zu ranges with the host, %zu differ\n", count, wrong);
	md_device_hasher_close(&hasher);
	return wrong != 0;
}
