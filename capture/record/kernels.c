/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: from a function handle to (image, name, parameter layout, function state), each put into the trace once. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "capture/capture.h"
#include "capture/record/images.h"
#include "capture/record/kernels.h"

#define MAX_PARAMS 4096 /* the driver's own limit is 32,764 bytes of parameters, a byte each at least */

struct handle { /* a CUfunction or CUkernel that has been seen */
	uint64_t value;
	uint32_t kernel;
	CUmodule module;
	CUlibrary library;
};

static struct {
	struct md_kernel *items; /* by kernel index */
	uint32_t count, capacity;
	struct md_map handles; /* handle value -> index into seen */
	struct handle *seen;
	size_t seen_count, seen_capacity;
	struct md_map gone; /* handle value -> when its module was unloaded */
} kernels MD_CAPTURE_GUARDED;

/* What a handle turned out to be. */
struct resolved {
	CUfunction func;
	CUkernel kern;
	const char *name;
	CUmodule module;
	CUlibrary library;
	uint32_t image;
};

/* ---- asking the driver ---- */

static void resolve_image(struct resolved *it) MD_CAPTURE_HELD
{
	it->image = MD_NONE;
	if (it->kern && md_cuda.cuKernelGetLibrary && !md_cuda.cuKernelGetLibrary(&it->library, it->kern))
		it->image = md_capture_image_of_library(it->library);
	if (it->image == MD_NONE && it->func && !md_cuda.cuFuncGetModule(&it->module, it->func))
		it->image = md_capture_image_of_module(it->module);
}

/* A CUfunction may be a CUkernel that has no context yet: ask as a function first, then as a kernel. */
static bool resolve(CUfunction func, CUkernel kern, struct resolved *it) MD_CAPTURE_HELD
{
	*it = (struct resolved){.func = func, .kern = kern};
	if (func && md_cuda.cuFuncGetName(&it->name, func) != CUDA_SUCCESS) {
		it->func = NULL;
		if (!kern)
			it->kern = (CUkernel)func;
	}
	if (!it->func && (!it->kern || md_cuda.cuKernelGetName(&it->name, it->kern) != CUDA_SUCCESS))
		return false;
	/* For function state: the kernel's function in this context. */
	if (!it->func && md_cuda.cuKernelGetFunction(&it->func, it->kern) != CUDA_SUCCESS)
		it->func = NULL;
	resolve_image(it);
	return it->name != NULL;
}

static CUresult param_info(const struct resolved *it, size_t index, size_t *offset, size_t *size)
{
	return it->func ? md_cuda.cuFuncGetParamInfo(it->func, index, offset, size)
			: md_cuda.cuKernelGetParamInfo(it->kern, index, offset, size);
}

static bool read_params(const struct resolved *it, struct md_kernel *kernel)
{
	size_t offset, size, count = 0;
	while (count < MAX_PARAMS && param_info(it, count, &offset, &size) == CUDA_SUCCESS)
		count++;
	kernel->params = calloc(count ? count : 1, sizeof(*kernel->params));
	if (!kernel->params)
		return false;
	for (; kernel->param_count < count; kernel->param_count++) {
		if (param_info(it, kernel->param_count, &offset, &size) != CUDA_SUCCESS)
			break;
		kernel->params[kernel->param_count] = (struct md_param){(uint32_t)offset, (uint32_t)size};
	}
	return true;
}

static int32_t attribute(const struct resolved *it, CUfunction_attribute id, int32_t otherwise)
{
	CUdevice device;
	int value;
	if (it->func)
		return md_cuda.cuFuncGetAttribute(&value, id, it->func) ? otherwise : value;
	if (md_cuda.cuCtxGetDevice(&device) || md_cuda.cuKernelGetAttribute(&value, id, it->kern, device))
		return otherwise;
	return value;
}

static struct md_func_state read_state(const struct resolved *it)
{
	return (struct md_func_state){
	    .max_dynamic_shared_bytes = attribute(it, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 0),
	    .preferred_carveout = attribute(it, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, -1),
	    .non_portable_cluster = attribute(it, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 0),
	    .registers = attribute(it, CU_FUNC_ATTRIBUTE_NUM_REGS, 0),
	    .static_shared_bytes = attribute(it, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 0),
	};
}

/* ---- the table ---- */

static uint32_t find_equal(const struct md_kernel *kernel) MD_CAPTURE_HELD
{
	for (uint32_t i = kernels.count; i-- > 0;) {
		const struct md_kernel *item = &kernels.items[i];
		if (item->image == kernel->image && !memcmp(&item->state, &kernel->state, sizeof(item->state)) &&
		    item->param_count == kernel->param_count && !strcmp(item->name, kernel->name))
			return i;
	}
	return MD_NONE;
}

static uint32_t add_kernel(const struct resolved *it) MD_CAPTURE_HELD
{
	struct md_kernel kernel = {.image = it->image, .name = (char *)it->name};
	uint32_t index;
	kernel.state = read_state(it);
	if (!read_params(it, &kernel))
		return MD_NONE;
	index = find_equal(&kernel);
	if (index != MD_NONE) {
		free(kernel.params);
		return index;
	}
	kernel.name = strdup(it->name);
	if (!kernel.name || !MD_ARRAY_GROW(kernels.items, kernels.count, kernels.capacity)) {
		free(kernel.name);
		free(kernel.params);
		return MD_NONE;
	}
	md_trace_put_kernel(md_capture.writer, md_capture_next(), &kernel);
	kernels.items[kernels.count] = kernel;
	return kernels.count++;
}

static struct handle *find_handle(uint64_t value) MD_CAPTURE_HELD
{
	uint64_t at;
	return value && md_map_get(&kernels.handles, value, &at) ? &kernels.seen[at] : NULL;
}

static bool remember_handle(uint64_t value, const struct resolved *it, uint32_t kernel) MD_CAPTURE_HELD
{
	struct handle *known = find_handle(value);
	if (!known) {
		if (!MD_ARRAY_GROW(kernels.seen, kernels.seen_count, kernels.seen_capacity))
			return false;
		if (!md_map_put(&kernels.handles, value, kernels.seen_count))
			return false;
		known = &kernels.seen[kernels.seen_count++];
	}
	*known = (struct handle){value, kernel, it->module, it->library};
	return true;
}

static uint32_t find_slowly(CUfunction func, CUkernel kern) MD_CAPTURE_HELD
{
	struct resolved it;
	uint32_t kernel;
	if (!md_capture.writer || !resolve(func, kern, &it))
		return MD_NONE;
	kernel = add_kernel(&it);
	if (kernel == MD_NONE || !remember_handle(func ? (uintptr_t)func : (uintptr_t)kern, &it, kernel))
		md_capture_trouble("out of memory for kernel %u", kernels.count);
	return kernel;
}

uint32_t md_capture_kernel_find(CUfunction func, CUkernel kern)
{
	struct handle *known = find_handle(func ? (uintptr_t)func : (uintptr_t)kern);
	return known ? known->kernel : find_slowly(func, kern);
}

uint32_t md_capture_kernel_find_fresh(CUfunction func, CUkernel kern)
{
	struct handle *known = find_handle(func ? (uintptr_t)func : (uintptr_t)kern);
	struct resolved it = {.func = func, .kern = kern};
	struct md_func_state state;
	/* The image may have become known since a launch, and a node has more handles than a launch. */
	if (!known || (kernels.items[known->kernel].image == MD_NONE && kern))
		return find_slowly(func, kern);
	if (md_cuda.cuFuncGetAttribute((int[1]){0}, CU_FUNC_ATTRIBUTE_NUM_REGS, func) != CUDA_SUCCESS)
		return known->kernel;
	state = read_state(&it);
	if (!memcmp(&state, &kernels.items[known->kernel].state, sizeof(state)))
		return known->kernel;
	return find_slowly(func, kern);
}

const struct md_kernel *md_capture_kernel_get(uint32_t index)
{
	return index < kernels.count ? &kernels.items[index] : NULL;
}

/* Launches into a stream capture are not looked up, so every handle of the module is noted. */
static void note_gone(CUresult listed, void *const *handles, unsigned count)
{
	uint64_t now = md_capture_next();
	for (unsigned i = 0; listed == CUDA_SUCCESS && i < count; i++)
		if (!md_map_put(&kernels.gone, (uintptr_t)handles[i], now))
			md_capture_trouble("out of memory for an unloaded kernel");
}

/* Called before the unload, while the module's kernels still exist. */
static void note_unloaded(CUmodule module, CUlibrary library)
{
	MD_AUTO_FREE void **handles = NULL;
	unsigned count = 0;
	if (module ? md_cuda.cuModuleGetFunctionCount(&count, module)
		   : md_cuda.cuLibraryGetKernelCount(&count, library))
		return;
	handles = calloc(count + (size_t)1, sizeof(*handles));
	if (!handles)
		md_capture_trouble("out of memory for %u unloaded kernels", count);
	else if (module)
		note_gone(md_cuda.cuModuleEnumerateFunctions((CUfunction *)handles, count, module), handles, count);
	else
		note_gone(md_cuda.cuLibraryEnumerateKernels((CUkernel *)handles, count, library), handles, count);
}

void md_capture_kernels_forget(CUmodule module, CUlibrary library)
{
	if (module || library)
		note_unloaded(module, library);
	for (size_t i = 0; i < kernels.seen_count;) {
		struct handle *item = &kernels.seen[i];
		bool unloaded = (module && item->module == module) || (library && item->library == library);
		if (!unloaded && (module || library)) {
			i++;
			continue;
		}
		md_map_remove(&kernels.handles, item->value, NULL);
		*item = kernels.seen[--kernels.seen_count];
		if (i < kernels.seen_count)
			md_map_put(&kernels.handles, item->value, i);
	}
	atomic_fetch_add(&md_capture.epoch, 1);
}

bool md_capture_kernel_unloaded_since(CUfunction func, CUkernel kern, uint64_t sequence)
{
	uint64_t when;
	return md_map_get(&kernels.gone, func ? (uintptr_t)func : (uintptr_t)kern, &when) && when > sequence;
}
