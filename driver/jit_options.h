/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a JIT compiler that change the code which it makes of PTX. */
#ifndef MD_DRIVER_JIT_OPTIONS_H
#define MD_DRIVER_JIT_OPTIONS_H

#include <cuda.h>

/*
 * The name of the first option, of those given to cuModuleLoadDataEx or cuLibraryLoadData, that may change the code;
 * NULL if there is none. Options that only report (logs, wall time), ask for line numbers, or have the value that holds
 * without them, change nothing. An option that is not known may change anything.
 */
const char *md_jit_option_of_code(unsigned count, const CUjit_option *options, void *const *values);

#endif
