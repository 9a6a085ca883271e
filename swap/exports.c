/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of entry points that the layer handles and the restore library does not hook; they call the layer. */
#include "driver/hooks.h"

#define FORWARD(symbol, params, args)                                                                                  \
	CUresult CUDAAPI symbol params                                                                                 \
	{                                                                                                              \
		return MD_HOOK_REAL(symbol) ? md_cuda.symbol args : CUDA_ERROR_NOT_SUPPORTED;                          \
	}
#define SKIP(...)
#define WHEN_NONE(use, ...) use(__VA_ARGS__)
#define WHEN_CAPTURE(use, ...) use(__VA_ARGS__)
#define WHEN_RESTORE(use, ...)
#define WHEN_BOTH(use, ...)
#define WHEN_CORE(use, ...)
#define HOOKED_PASS SKIP
#define HOOKED_GATE FORWARD
#define HOOKED_WAIT FORWARD
#define HOOKED_ALL FORWARD
#define HOOKED_BETWEEN FORWARD
#define HOOKED_SHAPE FORWARD
#define HOOKED_OWN FORWARD
#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args) WHEN_##hook(HOOKED_##swap, symbol, params, args)
#include "driver/cuda_api.def"

#define ROWED_PASS SKIP
#define ROWED_GATE MD_HOOK_ROW
#define ROWED_WAIT MD_HOOK_ROW
#define ROWED_ALL MD_HOOK_ROW
#define ROWED_BETWEEN MD_HOOK_ROW
#define ROWED_SHAPE MD_HOOK_ROW
#define ROWED_OWN MD_HOOK_ROW
extern const struct md_hook md_more_hooks[];
extern const size_t md_more_hook_count;
const struct md_hook md_more_hooks[] = {
#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args) WHEN_##hook(ROWED_##swap, symbol)
#include "driver/cuda_api.def"
};
const size_t md_more_hook_count = sizeof(md_more_hooks) / sizeof(md_more_hooks[0]);
