/* SPDX-License-Identifier: Apache-2.0 */
/* Interposition core of the preloaded libraries: exported symbols, dlsym and cuGetProcAddress all lead to the hooks. */
#ifndef MD_DRIVER_INTERPOSE_H
#define MD_DRIVER_INTERPOSE_H

#include <stdbool.h>
#include <stddef.h>

#include "driver/cuda_driver.h"

/*
 * A preloaded library defines, with default visibility, a function named like each entry point it hooks (the compiler
 * checks the prototype against cuda.h), and one table made from cuda_api.def:
 *
 *	const struct md_hook md_hooks[] = {
 *		{"cuMemAlloc_v2", (void *)cuMemAlloc_v2, offsetof(struct md_cuda, cuMemAlloc_v2)}, ...
 *	};
 *	const size_t md_hook_count;
 *
 * A library of two parts has a second table, md_more_hooks with md_more_hook_count.
 *
 * driver/interpose.c (linked into preloaded libraries only) defines dlsym, cuGetProcAddress and cuGetProcAddress_v2:
 * they ask the real one first and swap the answer only if it is the real address of a hooked entry point.
 */
struct md_hook {
	const char *symbol;
	void *hook;
	size_t slot; /* offset of the real entry point in struct md_cuda */
};

extern const struct md_hook md_hooks[];
extern const size_t md_hook_count;

/* The real dlsym, found with dlvsym for every version tag of the platform. */
void *md_interpose_real_dlsym(void *handle, const char *name);

/* Warns when another library with a dlsym of its own was preloaded before this one. */
void md_interpose_check_order(void);

/*
 * Per-thread guard: a hook acts only at depth 0, so that calls that the driver or Medusa makes inside a hook pass
 * through. md_guard_enter returns false (and does not count) if this thread is inside a hook already.
 */
bool md_guard_enter(void);
void md_guard_leave(void);

/* From now on md_guard_enter always fails: for a forked child, which has neither our threads nor the device. */
void md_guard_close(void);
bool md_guard_is_closed(void);

#endif
