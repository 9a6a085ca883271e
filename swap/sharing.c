/* SPDX-License-Identifier: Apache-2.0 */
/* Calls by which processes share device memory. What they shared may be gone again; one such call is enough to say no. */
#include "swap/sharing.h"

#include <stdatomic.h>
#include <stddef.h>

#include "base/child.h"
#include "base/environment.h"
#include "swap/arrival.h"
#include "swap/layer.h"

static _Atomic(const char *) first_call;

CUresult md_swap_sharing_note(CUresult result, const char *call)
{
	const char *none = NULL;
	if (result == CUDA_SUCCESS)
		atomic_compare_exchange_strong(&first_call, &none, call);
	return result;
}

const char *md_swap_sharing_call(void)
{
	return atomic_load(&first_call);
}

CUresult md_swap_own_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
						    CUmemAllocationHandleType shHandleType)
{
	CUresult result = md_swap_arrival_settle_all();
	if (result == CUDA_SUCCESS)
		result = md_swap_real.cuMemImportFromShareableHandle(handle, osHandle, shHandleType);
	return md_swap_sharing_note(result, "cuMemImportFromShareableHandle");
}

CUresult md_swap_own_cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool,
						      CUmemAllocationHandleType handleType, unsigned long long flags)
{
	return md_swap_sharing_note(md_swap_real.cuMemPoolExportToShareableHandle(handle_out, pool, handleType, flags),
				    "cuMemPoolExportToShareableHandle");
}

CUresult md_swap_own_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
							CUmemAllocationHandleType handleType, unsigned long long flags)
{
	return md_swap_sharing_note(
	    md_swap_real.cuMemPoolImportFromShareableHandle(pool_out, handle, handleType, flags),
	    "cuMemPoolImportFromShareableHandle");
}

/* A child has no device memory until it makes a context of its own. */
static void renew(void)
{
	atomic_store(&first_call, NULL);
}

__attribute__((constructor(MD_LOADED_SETTINGS))) static void watch_children(void)
{
	static struct md_child_renewal own = {.renew = renew};
	md_child_register(&own);
}
