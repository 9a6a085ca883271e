/* SPDX-License-Identifier: Apache-2.0 */
/* Functions and kernels: names, parameters, attributes, loading state. */
#include "hostcuda/context.h"
#include "hostcuda/device.h"
#include "hostcuda/device_state.h"
#include "hostcuda/module.h"
#include "hostcuda/module_image.h"
#include "hostcuda/node_fault.h"

static struct hc_function *function_of(CUfunction handle)
{
	return hc_handle_kind(handle) == HC_FUNCTION ? (struct hc_function *)handle : NULL;
}

static struct hc_kernel *kernel_of(CUkernel handle)
{
	return hc_handle_kind(handle) == HC_KERNEL ? (struct hc_kernel *)handle : NULL;
}

/* For either kind of handle, because the driver accepts a CUkernel where a CUfunction is expected. */
static const struct hc_symbol *symbol_of(CUfunction handle)
{
	struct hc_function *function = function_of(handle);
	struct hc_kernel *kernel = kernel_of((CUkernel)handle);
	return function ? function->symbol : kernel ? kernel->symbol : NULL;
}

CUresult hc_cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
	HC_STATE_GUARD();
	struct hc_function *function;
	if (!pFunc)
		return CUDA_ERROR_INVALID_VALUE;
	if (!kernel_of(kernel))
		return CUDA_ERROR_INVALID_HANDLE;
	HC_TRY(hc_function_resolve((CUfunction)kernel, &function));
	*pFunc = (CUfunction)function;
	return CUDA_SUCCESS;
}

CUresult hc_cuFuncGetName(const char **name, CUfunction hfunc)
{
	HC_STATE_GUARD();
	const struct hc_symbol *symbol = symbol_of(hfunc);
	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	if (!symbol)
		return CUDA_ERROR_INVALID_HANDLE;
	*name = symbol->name;
	return CUDA_SUCCESS;
}

CUresult hc_cuKernelGetName(const char **name, CUkernel hfunc)
{
	return hc_cuFuncGetName(name, (CUfunction)hfunc);
}

CUresult hc_cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel)
{
	HC_STATE_GUARD();
	if (!pLib)
		return CUDA_ERROR_INVALID_VALUE;
	if (!kernel_of(kernel))
		return CUDA_ERROR_INVALID_HANDLE;
	*pLib = (CUlibrary)kernel_of(kernel)->library;
	return CUDA_SUCCESS;
}

CUresult hc_cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
	HC_STATE_GUARD();
	struct hc_function *function = function_of(hfunc);
	if (!hmod)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	*hmod = (CUmodule)function->module;
	return CUDA_SUCCESS;
}

CUresult hc_cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
	HC_STATE_GUARD();
	const struct hc_symbol *symbol = symbol_of(func);
	if (!symbol)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!paramOffset || paramIndex >= symbol->param_count)
		return CUDA_ERROR_INVALID_VALUE;
	*paramOffset = symbol->params[paramIndex].offset;
	if (paramSize)
		*paramSize = symbol->params[paramIndex].size;
	return CUDA_SUCCESS;
}

CUresult hc_cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
	return hc_cuFuncGetParamInfo((CUfunction)kernel, paramIndex, paramOffset, paramSize);
}

static CUresult attribute_get(const struct hc_attributes *attributes, CUfunction_attribute attribute, int *value)
{
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = 1024;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*value = 90;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*value = 32;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
	case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
	case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
		*value = 0;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*value = attributes->max_dynamic;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		*value = attributes->carveout;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		*value = attributes->non_portable_cluster;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		*value = attributes->scheduling;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
		*value = attributes->cluster_required;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
		*value = attributes->cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH];
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult attribute_set(struct hc_attributes *attributes, CUfunction_attribute attribute, int value)
{
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		if (value < 0 || value > (int)HC_MAX_DYNAMIC_SHARED)
			return CUDA_ERROR_INVALID_VALUE;
		attributes->max_dynamic = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		if (value < -1 || value > 100)
			return CUDA_ERROR_INVALID_VALUE;
		attributes->carveout = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		attributes->non_portable_cluster = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		attributes->scheduling = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
		attributes->cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = value;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult hc_cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
	HC_STATE_GUARD();
	struct hc_function *function;
	if (!pi)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(hc_function_resolve(hfunc, &function));
	return attribute_get(&function->attributes, attrib, pi);
}

CUresult hc_cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
	HC_STATE_GUARD();
	struct hc_function *function;
	HC_TRY(hc_function_resolve(hfunc, &function));
	if (attrib == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT && hc_node_fault("function"))
		return CUDA_SUCCESS;
	return attribute_set(&function->attributes, attrib, value);
}

CUresult hc_cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev)
{
	HC_STATE_GUARD();
	if (!pi)
		return CUDA_ERROR_INVALID_VALUE;
	if (!hc_device_at(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!kernel_of(kernel))
		return CUDA_ERROR_INVALID_HANDLE;
	return attribute_get(&kernel_of(kernel)->attributes, attrib, pi);
}

/* Applies to functions that exist already, and to those that are made later. */
CUresult hc_cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel handle, CUdevice dev)
{
	HC_STATE_GUARD();
	struct hc_kernel *kernel = kernel_of(handle);
	if (!hc_device_at(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!kernel)
		return CUDA_ERROR_INVALID_HANDLE;
	HC_TRY(attribute_set(&kernel->attributes, attrib, val));
	struct hc_context *context = hc_context_home();
	for (struct hc_module *module = context ? context->modules : NULL; module; module = module->next)
		if (module->library == kernel->library)
			attribute_set(&module->functions[kernel - kernel->library->kernels].attributes, attrib, val);
	return CUDA_SUCCESS;
}

CUresult hc_cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
	HC_STATE_GUARD();
	(void)config; /* there is no cache to configure */
	return symbol_of(hfunc) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult hc_cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction hfunc)
{
	HC_STATE_GUARD();
	struct hc_function *function = function_of(hfunc);
	if (!state)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	*state = function->image->library ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
	return CUDA_SUCCESS;
}

CUresult hc_cuFuncLoad(CUfunction hfunc)
{
	HC_STATE_GUARD();
	struct hc_function *function;
	HC_TRY(hc_function_resolve(hfunc, &function));
	return hc_image_load(function->image);
}

CUresult hc_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
							size_t dynamicSMemSize)
{
	HC_STATE_GUARD();
	if (!numBlocks || blockSize <= 0 || blockSize > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	if (!symbol_of(func))
		return CUDA_ERROR_INVALID_HANDLE;
	int by_threads = 2048 / blockSize, by_shared = (int)((228u << 10) / (dynamicSMemSize + 1024));
	int blocks = by_threads < by_shared ? by_threads : by_shared;
	*numBlocks = blocks < 32 ? blocks : 32;
	return CUDA_SUCCESS;
}
