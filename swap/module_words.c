/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps a list of the variables that the engine has asked for, and reads them from the device. */
#include "swap/module_words.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/child.h"
#include "base/cleanup.h"
#include "base/environment.h"
#include "base/guarded.h"
#include "swap/contexts.h"
#include "swap/layer.h"

#define READ_MOST ((size_t)64 << 20) /* bytes of one variable that are read */

struct variable {
	CUdeviceptr address;
	size_t bytes;
	const void *owner; /* module or library */
	CUcontext context;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct variable *variables MD_GUARDED_BY(lock);
static size_t count MD_GUARDED_BY(lock), room MD_GUARDED_BY(lock);
static bool incomplete MD_GUARDED_BY(lock);

/* ---- what is known ---- */

static void add(const struct variable *one) MD_REQUIRES(lock)
{
	for (size_t i = 0; i < count; i++)
		if (variables[i].address == one->address) {
			variables[i] = *one;
			return;
		}
	if (MD_ARRAY_GROW(variables, count, room))
		variables[count++] = *one;
	else
		incomplete = true;
}

/* Hands a variable out, and keeps it. */
static CUresult asked(CUresult result, struct variable *one, CUdeviceptr *address, size_t *bytes)
{
	if (result != CUDA_SUCCESS)
		return result;
	*address = one->address;
	if (bytes)
		*bytes = one->bytes;
	if (!one->bytes)
		return result;
	CUdevice device;
	bool current = md_swap_context_current(&one->context, &device) == CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	if (current)
		add(one);
	else
		incomplete = true;
	pthread_mutex_unlock(&lock);
	return result;
}

static void forget(const void *owner, CUcontext context)
{
	pthread_mutex_lock(&lock);
	for (size_t i = count; i-- > 0;)
		if (variables[i].owner == owner || variables[i].context == context)
			variables[i] = variables[--count];
	pthread_mutex_unlock(&lock);
}

void md_swap_variables_context_gone(CUcontext context)
{
	forget(NULL, context);
}

/* ---- calls ---- */

CUresult md_swap_own_cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
	struct variable one = {.owner = hmod};
	if (!dptr)
		return md_swap_real.cuModuleGetGlobal_v2(dptr, bytes, hmod, name);
	return asked(md_swap_real.cuModuleGetGlobal_v2(&one.address, &one.bytes, hmod, name), &one, dptr, bytes);
}

CUresult md_swap_own_cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	struct variable one = {.owner = library};
	if (!dptr)
		return md_swap_real.cuLibraryGetGlobal(dptr, bytes, library, name);
	return asked(md_swap_real.cuLibraryGetGlobal(&one.address, &one.bytes, library, name), &one, dptr, bytes);
}

CUresult md_swap_own_cuModuleUnload(CUmodule hmod)
{
	CUresult result = md_swap_real.cuModuleUnload(hmod);
	if (result == CUDA_SUCCESS)
		forget(hmod, NULL);
	return result;
}

CUresult md_swap_own_cuLibraryUnload(CUlibrary library)
{
	CUresult result = md_swap_real.cuLibraryUnload(library);
	if (result == CUDA_SUCCESS)
		forget(library, NULL);
	return result;
}

/* ---- reading ---- */

/* One whose module went with a library that was unloaded is not there any more. */
static bool is_there(const struct md_cuda *driver, const struct variable *one, bool *managed)
{
	unsigned type = 0, is_managed = 0;
	if (driver->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, one->address) != CUDA_SUCCESS)
		return false;
	*managed =
	    driver->cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, one->address) != CUDA_SUCCESS ||
	    is_managed;
	return true;
}

static bool read_one(const struct md_cuda *driver, const struct variable *one, md_swap_variable_reader *reader,
		     void *user)
{
	MD_AUTO_FREE uint8_t *bytes = NULL;
	CUcontext ignored;
	bool managed = false;
	if (one->bytes > READ_MOST || driver->cuCtxPushCurrent_v2(one->context) != CUDA_SUCCESS)
		return false;
	bool there = is_there(driver, one, &managed), read = false;
	bytes = there && !managed ? malloc(one->bytes) : NULL;
	if (bytes)
		read = driver->cuMemcpyDtoH_v2(bytes, one->address, one->bytes) == CUDA_SUCCESS;
	driver->cuCtxPopCurrent_v2(&ignored);
	return !there || (read && reader(user, bytes, one->bytes));
}

bool md_swap_variables_read(const struct md_cuda *driver, md_swap_variable_reader *reader, void *user)
{
	pthread_mutex_lock(&lock);
	bool known = !incomplete && (!count || driver->cuPointerGetAttribute);
	for (size_t i = 0; i < count && known; i++)
		known = read_one(driver, &variables[i], reader, user);
	pthread_mutex_unlock(&lock);
	return known;
}

/* The child has none of the driver's objects. */
static void renew(void) MD_LOCKS_UNCHECKED
{
	pthread_mutex_init(&lock, NULL);
	count = 0;
	incomplete = false;
}

__attribute__((constructor(MD_LOADED_SETTINGS))) static void watch_children(void)
{
	static struct md_child_renewal own = {.renew = renew};
	md_child_register(&own);
}
