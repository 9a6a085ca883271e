/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the JIT compiler that change the code which it makes from PTX. */
#include "driver/jit_options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OPTIMIZATION_DEFAULT 4

static bool changes_code(CUjit_option option, uintptr_t value)
{
	switch ((int)option) {
	case CU_JIT_WALL_TIME:
	case CU_JIT_INFO_LOG_BUFFER:
	case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
	case CU_JIT_ERROR_LOG_BUFFER:
	case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
	case CU_JIT_TARGET_FROM_CUCONTEXT:
	case CU_JIT_LOG_VERBOSE:
	case CU_JIT_GENERATE_LINE_INFO:
		return false;
	case CU_JIT_OPTIMIZATION_LEVEL:
		return (unsigned)value != OPTIMIZATION_DEFAULT;
	case CU_JIT_GENERATE_DEBUG_INFO:
		return (int)value != 0;
	default:
		return true;
	}
}

static const char *name_of(CUjit_option option)
{
	switch ((int)option) {
	case CU_JIT_MAX_REGISTERS:
		return "CU_JIT_MAX_REGISTERS";
	case CU_JIT_THREADS_PER_BLOCK:
		return "CU_JIT_THREADS_PER_BLOCK";
	case CU_JIT_OPTIMIZATION_LEVEL:
		return "CU_JIT_OPTIMIZATION_LEVEL";
	case CU_JIT_TARGET:
		return "CU_JIT_TARGET";
	case CU_JIT_FALLBACK_STRATEGY:
		return "CU_JIT_FALLBACK_STRATEGY";
	case CU_JIT_GENERATE_DEBUG_INFO:
		return "CU_JIT_GENERATE_DEBUG_INFO";
	case CU_JIT_CACHE_MODE:
		return "CU_JIT_CACHE_MODE";
	case CU_JIT_FTZ:
		return "CU_JIT_FTZ";
	case CU_JIT_PREC_DIV:
		return "CU_JIT_PREC_DIV";
	case CU_JIT_PREC_SQRT:
		return "CU_JIT_PREC_SQRT";
	case CU_JIT_FMA:
		return "CU_JIT_FMA";
	default:
		return "one that Medusa does not know";
	}
}

const char *md_jit_option_of_code(unsigned count, const CUjit_option *options, void *const *values)
{
	for (unsigned i = 0; options && i < count; i++)
		if (changes_code(options[i], values ? (uintptr_t)values[i] : 0))
			return name_of(options[i]);
	return NULL;
}
