/* SPDX-License-Identifier: Apache-2.0 */
/* How a kernel is written for hostcuda: a C function called once per thread block, found through the image's symbol
 * table. */
#ifndef HOSTCUDA_KERNEL_H
#define HOSTCUDA_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "base/export.h"

/*
 * An image is an ELF shared object (gcc -shared -fPIC -nostartfiles -fvisibility=hidden). A kernel NAME is
 *
 *	struct add_params { float *out; const float *a; int32_t n; };
 *	HOSTCUDA_KERNEL(add, struct add_params, HOSTCUDA_PARAM(struct add_params, out), HOSTCUDA_PARAM(struct
 *add_params, a), HOSTCUDA_PARAM(struct add_params, n))
 *	{
 *		... uses `block` (const struct hostcuda_block *) and `p` (const struct add_params *) ...
 *	}
 *
 * with HOSTCUDA_HIDDEN_KERNEL for one whose symbol is local: cuModuleGetFunction does not find it, enumeration does.
 * The device copies parameters into a block laid out like the struct; cuFuncGetParamInfo answers from the descriptor.
 */

struct hostcuda_block {
	uint32_t grid_dim[3], block_dim[3], block_idx[3];
	uint32_t shared_bytes; /* static + dynamic */
	void *shared;          /* zeroed before each block, 64-byte aligned */
	const size_t *limits;  /* of the context, by CUlimit; a kernel that needs more faults, or loses output */
	/*
	 * How many kernels and device copies have run outside of graphs so far. Until the next one, a kernel may read
	 * tensor maps from a cache.
	 */
	uint64_t lone_ops;
};

struct hostcuda_param {
	uint32_t offset, size;
};

/* One per kernel, symbol "hostcuda_kernel_NAME": local for hidden kernels, global (default visibility)
 * for the others. */
struct hostcuda_kernel {
	uint32_t magic; /* HOSTCUDA_KERNEL_MAGIC */
	uint32_t param_count;
	const struct hostcuda_param *params;
	void (*run)(const struct hostcuda_block *block, const void *params);
	uint32_t params_size, reserved;
};

/* Used once in an image whose kernels use the device heap; the heap's size is fixed once such code is loaded. */
#define HOSTCUDA_USES_HEAP                                                                                             \
	extern MD_EXPORT const uint8_t hostcuda_uses_heap;                                                             \
	MD_EXPORT const uint8_t hostcuda_uses_heap = 1

#define HOSTCUDA_KERNEL_MAGIC 0x4b434348u /* "HCCK" */
#define HOSTCUDA_PARAM(type, field)                                                                                    \
	{                                                                                                              \
		offsetof(type, field), sizeof(((type *)0)->field)                                                      \
	}

#define HOSTCUDA_KERNEL_DEFINE(linkage, name, type, ...)                                                               \
	static void name##_body(const struct hostcuda_block *block, const type *p);                                    \
	static void name##_run(const struct hostcuda_block *block, const void *params)                                 \
	{                                                                                                              \
		name##_body(block, (const type *)params);                                                              \
	}                                                                                                              \
	static const struct hostcuda_param name##_params[] = {__VA_ARGS__};                                            \
	linkage const struct hostcuda_kernel hostcuda_kernel_##name = {                                                \
	    HOSTCUDA_KERNEL_MAGIC, sizeof(name##_params) / sizeof(name##_params[0]),                                   \
	    name##_params,         name##_run,                                                                         \
	    sizeof(type),          0};                                                                                 \
	static void name##_body(const struct hostcuda_block *block __attribute__((unused)), const type *p)

#define HOSTCUDA_KERNEL(name, type, ...)                                                                               \
	HOSTCUDA_KERNEL_DEFINE(extern MD_EXPORT const struct hostcuda_kernel hostcuda_kernel_##name;                   \
			       MD_EXPORT, name, type, __VA_ARGS__)
#define HOSTCUDA_HIDDEN_KERNEL(name, type, ...)                                                                        \
	HOSTCUDA_KERNEL_DEFINE(static __attribute__((used)), name, type, __VA_ARGS__)

#endif
