/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of a context that decide how much memory a kernel has (stack, heap): they are read and compared. */
#include <inttypes.h>

#include "driver/cuda_driver.h"
#include "format/fingerprint.h"

/* Limits of the second-level cache are left out, because they only change the speed of kernels. */
static const struct {
	CUlimit limit;
	const char *name, *key, *constant;
} known[MD_LIMITS] = {
    {CU_LIMIT_STACK_SIZE, "stack", "stack_limit", "CU_LIMIT_STACK_SIZE"},
    {CU_LIMIT_PRINTF_FIFO_SIZE, "printf buffer", "printf_limit", "CU_LIMIT_PRINTF_FIFO_SIZE"},
    {CU_LIMIT_MALLOC_HEAP_SIZE, "heap", "heap_limit", "CU_LIMIT_MALLOC_HEAP_SIZE"},
    {CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, "device launch depth", "sync_depth_limit", "CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH"},
    {CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, "pending device launch", "pending_launch_limit",
     "CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT"},
};

static uint64_t read_limit(unsigned i)
{
	size_t value = 0;
	bool told = md_cuda.cuCtxGetLimit && md_cuda.cuCtxGetLimit(&value, known[i].limit) == CUDA_SUCCESS;
	return told ? value : 0;
}

void md_limits_read(uint64_t limits[MD_LIMITS])
{
	for (unsigned i = 0; i < MD_LIMITS; i++)
		limits[i] = read_limit(i);
}

void md_limits_raise(uint64_t limits[MD_LIMITS], const uint64_t others[MD_LIMITS])
{
	for (unsigned i = 0; i < MD_LIMITS; i++)
		limits[i] = others[i] > limits[i] ? others[i] : limits[i];
}

enum md_status md_limits_compare(const uint64_t stored[MD_LIMITS], const uint64_t now[MD_LIMITS], struct md_error *err)
{
	for (unsigned i = 0; i < MD_LIMITS; i++) {
		if (now[i] >= stored[i])
			continue;
		return md_error_set(err, MD_ERR_MISMATCH,
				    "the context's %s limit is %" PRIu64 ", the graphs were captured with %" PRIu64
				    ": call cuCtxSetLimit(%s, %" PRIu64 ") before graphs are asked for",
				    known[i].name, now[i], stored[i], known[i].constant, stored[i]);
	}
	return MD_OK;
}

enum md_status md_limits_check(const uint64_t stored[MD_LIMITS], struct md_error *err)
{
	uint64_t now[MD_LIMITS] = {0};
	for (unsigned i = 0; i < MD_LIMITS; i++)
		if (stored[i]) /* every limit is at least 0 */
			now[i] = read_limit(i);
	return md_limits_compare(stored, now, err);
}

const char *md_limit_name(unsigned limit)
{
	return known[limit].name;
}

const char *md_limit_key(unsigned limit)
{
	return known[limit].key;
}
