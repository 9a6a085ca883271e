/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weak implementations of all entry points: one that no other file implements prints its name once and returns "not
 * supported".
 */
#include <stdio.h>

#include "hostcuda/device_state.h"

static CUresult not_supported(const char *symbol, bool *said)
{
	if (!__atomic_exchange_n(said, true, __ATOMIC_RELAXED))
		fprintf(stderr, "hostcuda: %s is not supported\n", symbol);
	return CUDA_ERROR_NOT_SUPPORTED;
}

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args)                                                \
	__attribute__((weak)) CUresult hc_##symbol params                                                              \
	{                                                                                                              \
		static bool said;                                                                                      \
		return not_supported(#symbol, &said);                                                                  \
	}
#define CU_ENTRY_TS(symbol, base, version, need, hook, swap, params, args)
#include "driver/cuda_api.def"
