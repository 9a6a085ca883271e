/* SPDX-License-Identifier: Apache-2.0 */
/* Prototypes of all hooks, and macros that make the table md_hooks of a preloaded library from cuda_api.def. */
#ifndef MD_DRIVER_HOOKS_H
#define MD_DRIVER_HOOKS_H

#include <stddef.h>

#include "base/export.h"
#include "driver/interpose.h"

/*
 * A file that defines hooks includes this header: cuda.h declares no per-thread-stream variants, and with the library
 * built hidden each hook must be exported. The one file that ends with MD_HOOK_COUNT defines which rows it takes:
 *
 *	#define MD_HOOK_LIBRARY_CAPTURE     rows CAPTURE and BOTH; without it, RESTORE and BOTH
 *	#include "driver/hooks.h"
 *
 *	const struct md_hook md_hooks[] = {
 *	#define CU_ENTRY MD_HOOK_ENTRY
 *	#include "driver/cuda_api.def"
 *	};
 *	MD_HOOK_COUNT;
 *
 * A hook begins with the real entry point: MD_HOOK_REAL(cuMemAlloc_v2) loads the table if nobody has, and is NULL when
 * this driver does not have it. A program that is linked with libcuda reaches a hook before anybody loaded the table.
 */
#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args) MD_EXPORT CUresult CUDAAPI symbol params;
#include "driver/cuda_api.def"

#define MD_HOOK_REAL(entry) ((void)md_cuda_load(NULL), md_cuda.entry)

#define MD_HOOK_ROW(symbol) {#symbol, (void *)symbol, offsetof(struct md_cuda, symbol)},
#define MD_HOOK_ROW_NONE(symbol)
#define MD_HOOK_ROW_CORE(symbol)
#define MD_HOOK_ROW_BOTH(symbol) MD_HOOK_ROW(symbol)
#ifdef MD_HOOK_LIBRARY_CAPTURE
#define MD_HOOK_ROW_CAPTURE(symbol) MD_HOOK_ROW(symbol)
#define MD_HOOK_ROW_RESTORE(symbol)
#else
#define MD_HOOK_ROW_CAPTURE(symbol)
#define MD_HOOK_ROW_RESTORE(symbol) MD_HOOK_ROW(symbol)
#endif

#define MD_HOOK_ENTRY(symbol, base, version, need, hook, swap, params, args) MD_HOOK_ROW_##hook(symbol)
#define MD_HOOK_COUNT const size_t md_hook_count = sizeof(md_hooks) / sizeof(md_hooks[0])

#endif
