/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the driver for addresses, one behind the other, from a start that differs from run to run. */
#include "capture/place/reserve.h"

#include <stdatomic.h>

#include "base/hash.h"
#include "capture/capture.h"

/* Upper halves; the ranges of 17 TB that begin there hold nothing on Linux, and their ends are not reached. */
#define FIRST_RUN 0x5a37u
#define OTHER_RUNS 0x6801u
#define OTHER_RUNS_COUNT 0x200u
#define STEP (UINT64_C(1) << 33) /* keeps upper halves odd */
#define ROOM (UINT64_C(1) << 44)

static _Atomic uint64_t used;

static uint64_t start_of_run(void)
{
	uint64_t shift = md_capture.options.shift;
	if (!shift)
		return (uint64_t)FIRST_RUN << 32;
	return (OTHER_RUNS + 2 * (md_hash_checksum(&shift, sizeof(shift)) % OTHER_RUNS_COUNT)) << 32;
}

/* 0: none, the driver chooses. */
static uint64_t next_address(uint64_t bytes, uint64_t alignment)
{
	uint64_t step = bytes > ROOM ? 0 : (bytes + STEP - 1) / STEP * STEP;
	uint64_t at = atomic_fetch_add(&used, step);
	return !step || alignment > STEP / 2 || at > ROOM - step ? 0 : start_of_run() + at;
}

CUresult md_capture_reserve(CUdeviceptr *address, uint64_t bytes, uint64_t alignment)
{
	uint64_t wanted = next_address(bytes, alignment);
	if (wanted && md_cuda.cuMemAddressReserve(address, bytes, alignment, wanted, 0) == CUDA_SUCCESS)
		return CUDA_SUCCESS;
	return md_cuda.cuMemAddressReserve(address, bytes, alignment, 0, 0);
}
