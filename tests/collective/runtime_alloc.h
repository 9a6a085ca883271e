/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA runtime in small, which the engine and the collective library both use. */
#ifndef TESTS_COLLECTIVE_RUNTIME_H
#define TESTS_COLLECTIVE_RUNTIME_H

#include <cuda.h>

CUresult runtime_alloc(CUdeviceptr *out, size_t bytes);

#endif
