/* SPDX-License-Identifier: Apache-2.0 */
/* Another library that is preloaded: it stands in front of the same entry points, and counts what comes by. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/export.h"

typedef void *dlsym_function(void *, const char *);
typedef CUresult lookup(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static atomic_uint lookups, queries, allocations, launches;
static __typeof__(cuMemAlloc_v2) *real_alloc;
static __typeof__(cuLaunchKernel) *real_launch;
static lookup *real_lookup;

static dlsym_function *next_dlsym(void)
{
	static const char *const tags[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
	dlsym_function *found = NULL;
	for (size_t i = 0; !found && i < sizeof(tags) / sizeof(tags[0]); i++)
		found = (dlsym_function *)dlvsym(RTLD_NEXT, "dlsym", tags[i]);
	return found;
}

/* A program that is linked with the driver comes here before anybody has looked anything up. */
static void *real_of(const char *symbol)
{
	void *address = next_dlsym()(RTLD_NEXT, symbol);
	return address ? address : next_dlsym()(dlopen("libcuda.so.1", RTLD_NOW), symbol);
}

MD_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
	allocations++;
	if (!real_alloc)
		real_alloc = (__typeof__(real_alloc))real_of("cuMemAlloc_v2");
	return real_alloc(address, bytes);
}

MD_EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
				  unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)
{
	launches++;
	if (!real_launch)
		real_launch = (__typeof__(real_launch))real_of("cuLaunchKernel");
	return real_launch(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}

static CUresult ask(const char *name, void **address, int version, cuuint64_t flags,
		    CUdriverProcAddressQueryResult *status)
{
	CUresult result = real_lookup(name, address, version, flags, status);
	queries++;
	if (result == CUDA_SUCCESS && *address && !(flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)) {
		if (!strcmp(name, "cuMemAlloc") && *address != (void *)cuMemAlloc_v2) {
			real_alloc = (__typeof__(real_alloc))*address;
			*address = (void *)cuMemAlloc_v2;
		} else if (!strcmp(name, "cuLaunchKernel") && *address != (void *)cuLaunchKernel) {
			real_launch = (__typeof__(real_launch))*address;
			*address = (void *)cuLaunchKernel;
		} else if (!strcmp(name, "cuGetProcAddress") && version >= 12000 && *address != (void *)ask) {
			*address = (void *)ask;
		}
	}
	return result;
}

/* RTLD_NEXT and RTLD_DEFAULT are somebody else's there, and are passed on as they are. */
MD_EXPORT void *dlsym(void *handle, const char *name)
{
	void *address = next_dlsym()(handle, name);
	lookups++;
	if (handle == RTLD_NEXT || handle == RTLD_DEFAULT || !address)
		return address;
	if (!strcmp(name, "cuGetProcAddress_v2") && address != (void *)ask) {
		real_lookup = (lookup *)address;
		return (void *)ask;
	}
	if (!strcmp(name, "cuMemAlloc_v2") && address != (void *)cuMemAlloc_v2) {
		real_alloc = (__typeof__(real_alloc))address;
		return (void *)cuMemAlloc_v2;
	}
	if (!strcmp(name, "cuLaunchKernel") && address != (void *)cuLaunchKernel) {
		real_launch = (__typeof__(real_launch))address;
		return (void *)cuLaunchKernel;
	}
	return address;
}

__attribute__((destructor)) static void report(void)
{
	if (allocations)
		fprintf(stderr, "other library: saw lookups %d allocations %d launches %d\n", lookups > 0,
			allocations > 0, launches > 0);
}
