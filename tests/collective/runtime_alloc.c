/* SPDX-License-Identifier: Apache-2.0 */
/* What a CUDA runtime in a shared library of its own is to allocations: the driver is called from here, whoever asked. */
#include "tests/collective/runtime_alloc.h"

#include "base/export.h"

MD_EXPORT CUresult runtime_alloc(CUdeviceptr *out, size_t bytes)
{
	return cuMemAlloc(out, bytes);
}
