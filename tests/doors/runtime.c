/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA runtime in small: linked into a program and built as a library, it asks the driver by base
 * name and version. */
#include "tests/doors/runtime.h"

#include <dlfcn.h>
#include <string.h>

#include "base/export.h"

typedef CUresult lookup(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

MD_EXPORT const char *rt_open(struct rt *rt, cuuint64_t flags)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	lookup *first = library ? (lookup *)dlsym(library, "cuGetProcAddress_v2") : NULL, *look = NULL;
	CUdriverProcAddressQueryResult status;
	void *address = NULL;
	/* A CUDA runtime asks cuGetProcAddress for cuGetProcAddress, too. */
	if (!first || first("cuGetProcAddress", &address, 12000, flags, &status) || !address)
		return "cuGetProcAddress";
	look = (lookup *)address;
#define RT(symbol, base, version)                                                                                      \
	if (look(#base, &address, version, flags, &status) || status != CU_GET_PROC_ADDRESS_SUCCESS || !address)       \
		return #base;                                                                                          \
	memcpy(&rt->symbol, &address, sizeof(address));
	RT_LIST
#undef RT
	return NULL;
}
