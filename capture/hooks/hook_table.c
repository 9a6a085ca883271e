/* SPDX-License-Identifier: Apache-2.0 */
/* The hook table, and a weak hook for every row of it: it passes through unless another file defines the hook. */
#include "capture/hooks/hook.h"

/* The table needs an address for each row, so a row with nothing to record has a hook that passes the call on. */
#define PASS_NONE(symbol, params, args)
#define PASS_CORE(symbol, params, args)
#define PASS_BOTH(symbol, params, args)                                                                                \
	__attribute__((weak)) CUresult CUDAAPI symbol params                                                           \
	{                                                                                                              \
		return MD_REAL(symbol, args);                                                                          \
	}
#define PASS_CAPTURE(symbol, params, args) PASS_BOTH(symbol, params, args)
#define CU_ENTRY(symbol, base, version, need, hook, params, args) PASS_##hook(symbol, params, args)
#include "driver/cuda_api.def"

const struct md_hook md_hooks[] = {
#define CU_ENTRY MD_HOOK_ENTRY
#include "driver/cuda_api.def"
};
MD_HOOK_COUNT;
