/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the JIT compiler that change the code which it makes from PTX. */
#ifndef MD_DRIVER_JIT_OPTIONS_H
#define MD_DRIVER_JIT_OPTIONS_H

#include <cuda.h>

/*
 * The name of the first option, of those passed to cuModuleLoadDataEx or cuLibraryLoadData, that may change the code;
 * NULL if there is none. Options that only report (logs, wall time), request line numbers, or have their default value
 * change nothing. An unknown option may change anything.
 */
const char *md_jit_option_of_code(unsigned count, const CUjit_option *options, void *const *values);

#endif
