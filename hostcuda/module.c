/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and libraries: the handles over kernel images, their functions, kernels and globals by name and by
 * enumeration. */
#include <stdlib.h>
#include <string.h>

#include "hostcuda/context.h"
#include "hostcuda/device.h"
#include "hostcuda/device_state.h"
#include "hostcuda/memory.h"
#include "hostcuda/module.h"
#include "hostcuda/module_image.h"

static struct hc_library *libraries HC_STATE_GUARDED;

static const struct hc_attributes fresh = {.max_dynamic = HC_DEFAULT_DYNAMIC_SHARED, .carveout = -1};

/*
 * Function handles of the module that was destroyed last: they are given out again at once, so that tests find whoever
 * still uses old ones.
 */
static struct hc_function *last_functions HC_STATE_GUARDED;
static size_t last_count HC_STATE_GUARDED;

static struct hc_function *take_functions(size_t count) HC_STATE_HELD
{
	if (!last_functions || last_count != count)
		return calloc(count, sizeof(struct hc_function));
	struct hc_function *functions = last_functions;
	last_functions = NULL;
	memset(functions, 0, count * sizeof(*functions));
	return functions;
}

static void give_functions(struct hc_function *functions, size_t count) HC_STATE_HELD
{
	free(last_functions);
	last_functions = functions;
	last_count = count;
}

static CUresult make_module(struct hc_image *image, struct hc_context *context, struct hc_library *library,
			    struct hc_module **made)
{
	HC_STATE_GUARD();
	struct hc_module *module = calloc(1, sizeof(*module));
	struct hc_function *functions = take_functions(image->kernel_count);
	bool added = module && functions && hc_handle_add(module, HC_MODULE);
	for (size_t i = 0; added && i < image->kernel_count; i++) {
		struct hc_kernel *kernel = library ? &library->kernels[i] : NULL;
		functions[i] = (struct hc_function){image, &image->kernels[i], module, kernel,
						    kernel ? kernel->attributes : fresh};
		added = hc_handle_add(&functions[i], HC_FUNCTION);
	}
	if (!added) {
		hc_handle_remove(module);
		for (size_t i = 0; functions && i < image->kernel_count; i++)
			hc_handle_remove(&functions[i]);
		free(functions);
		free(module);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*module = (struct hc_module){hc_image_ref(image), context, library, functions, context->modules};
	context->modules = module;
	*made = module;
	return CUDA_SUCCESS;
}

/* Forgets the addresses of globals that were given out, because another image may be mapped there next. */
static void forget_globals(struct hc_image *image) HC_STATE_HELD
{
	for (size_t i = 0; image->library && i < image->global_count; i++) {
		struct hc_memory *memory = hc_memory_at(image->base + image->globals[i].value);
		if (memory && memory->kind == HC_MEMORY_GLOBAL)
			hc_memory_forget(memory);
	}
}

void hc_module_destroy(struct hc_module *module)
{
	HC_STATE_GUARD();
	struct hc_module **link = &module->context->modules;
	while (*link != module)
		link = &(*link)->next;
	*link = module->next;
	hc_handle_remove(module);
	for (size_t i = 0; i < module->image->kernel_count; i++)
		hc_handle_remove(&module->functions[i]);
	forget_globals(module->image);
	give_functions(module->functions, module->image->kernel_count);
	hc_image_unref(module->image);
	free(module);
}

static CUresult module_from(CUresult parsed, struct hc_image *image, CUmodule *handle)
{
	struct hc_module *module;
	if (parsed != CUDA_SUCCESS)
		return parsed;
	CUresult result = make_module(image, hc_context_home(), NULL, &module);
	hc_image_unref(image);
	if (result == CUDA_SUCCESS)
		*handle = (CUmodule)module;
	return result;
}

CUresult hc_cuModuleLoadData(CUmodule *module, const void *image)
{
	struct hc_image *parsed = NULL;
	if (!module || !image)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = hc_image_parse(image, &parsed);
	return module_from(result, parsed, module);
}

CUresult hc_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions, CUjit_option *options,
			       void **optionValues)
{
	(void)numOptions, (void)options, (void)optionValues; /* nothing is compiled here */
	return hc_cuModuleLoadData(module, image);
}

CUresult hc_cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
	return hc_cuModuleLoadData(module, fatCubin);
}

CUresult hc_cuModuleLoad(CUmodule *module, const char *fname)
{
	struct hc_image *parsed = NULL;
	if (!module || !fname)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = hc_image_parse_file(fname, &parsed);
	return module_from(result, parsed, module);
}

static struct hc_module *module_of(CUmodule handle)
{
	return hc_handle_kind(handle) == HC_MODULE ? (struct hc_module *)handle : NULL;
}

static struct hc_library *library_of(CUlibrary handle)
{
	return hc_handle_kind(handle) == HC_LIBRARY ? (struct hc_library *)handle : NULL;
}

CUresult hc_cuModuleUnload(CUmodule hmod)
{
	struct hc_module *module = module_of(hmod);
	if (!module || module->library)
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult sticky = hc_context_drain(module->context);
	hc_module_destroy(module);
	return sticky;
}

CUresult hc_cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	const char *setting = secure_getenv("CUDA_MODULE_LOADING");
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = setting && !strcmp(setting, "EAGER") ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
	return CUDA_SUCCESS;
}

/* Finds an exported kernel by name; hidden kernels are found by enumeration only. */
static CUresult find_kernel(const struct hc_image *image, const char *name, size_t *at)
{
	for (size_t i = 0; i < image->kernel_count; i++) {
		if (!image->kernels[i].hidden && !strcmp(image->kernels[i].name, name)) {
			*at = i;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_NOT_FOUND;
}

CUresult hc_cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
	HC_STATE_GUARD();
	struct hc_module *module = module_of(hmod);
	size_t at;
	if (!hfunc || !name)
		return CUDA_ERROR_INVALID_VALUE;
	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	HC_TRY(find_kernel(module->image, name, &at));
	*hfunc = (CUfunction)&module->functions[at];
	return CUDA_SUCCESS;
}

CUresult hc_cuModuleGetFunctionCount(unsigned int *count, CUmodule hmod)
{
	HC_STATE_GUARD();
	struct hc_module *module = module_of(hmod);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	*count = (unsigned)module->image->kernel_count;
	return CUDA_SUCCESS;
}

CUresult hc_cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
	HC_STATE_GUARD();
	struct hc_module *module = module_of(mod);
	if (!functions)
		return CUDA_ERROR_INVALID_VALUE;
	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	for (size_t i = 0; i < numFunctions && i < module->image->kernel_count; i++)
		functions[i] = (CUfunction)&module->functions[i];
	return CUDA_SUCCESS;
}

/* A global lies in the mapped image, so asking for its address maps the image. */
static CUresult get_global(struct hc_image *image, struct hc_context *context, const char *name, CUdeviceptr *dptr,
			   size_t *bytes)
{
	HC_STATE_GUARD();
	for (size_t i = 0; name && i < image->global_count; i++) {
		if (strcmp(image->globals[i].name, name))
			continue;
		HC_TRY(hc_image_load(image));
		uint64_t address = image->base + image->globals[i].value;
		if (!hc_memory_at(address)) {
			struct hc_memory *memory = calloc(1, sizeof(*memory));
			if (!memory)
				return CUDA_ERROR_OUT_OF_MEMORY;
			*memory = (struct hc_memory){.kind = HC_MEMORY_GLOBAL,
						     .address = address,
						     .size = image->globals[i].size,
						     .context = context,
						     .device = context->device};
			if (hc_memory_add(memory) != CUDA_SUCCESS) {
				free(memory);
				return CUDA_ERROR_OUT_OF_MEMORY;
			}
		}
		if (dptr)
			*dptr = address;
		if (bytes)
			*bytes = image->globals[i].size;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_NOT_FOUND;
}

CUresult hc_cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
	struct hc_module *module = module_of(hmod);
	return module ? get_global(module->image, module->context, name, dptr, bytes) : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- libraries ---- */
static CUresult library_from(CUresult parsed, struct hc_image *image, CUlibrary *handle)
{
	HC_STATE_GUARD();
	if (parsed != CUDA_SUCCESS)
		return parsed;
	struct hc_library *library = calloc(1, sizeof(*library));
	struct hc_kernel *kernels = calloc(image->kernel_count, sizeof(*kernels));
	bool added = library && kernels && hc_handle_add(library, HC_LIBRARY);
	for (size_t i = 0; added && i < image->kernel_count; i++) {
		kernels[i] = (struct hc_kernel){library, &image->kernels[i], fresh};
		added = hc_handle_add(&kernels[i], HC_KERNEL);
	}
	if (!added) {
		hc_handle_remove(library);
		for (size_t i = 0; kernels && i < image->kernel_count; i++)
			hc_handle_remove(&kernels[i]);
		free(kernels);
		free(library);
		hc_image_unref(image);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*library = (struct hc_library){image, kernels, libraries};
	libraries = library;
	*handle = (CUlibrary)library;
	return CUDA_SUCCESS;
}

CUresult hc_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions, void **jitOptionsValues,
			      unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
			      unsigned int numLibraryOptions)
{
	struct hc_image *image = NULL;
	(void)jitOptions, (void)jitOptionsValues, (void)numJitOptions;
	(void)libraryOptions, (void)libraryOptionValues, (void)numLibraryOptions;
	if (!library || !code)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = hc_image_parse(code, &image);
	return library_from(result, image, library);
}

CUresult hc_cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
				  void **jitOptionsValues, unsigned int numJitOptions, CUlibraryOption *libraryOptions,
				  void **libraryOptionValues, unsigned int numLibraryOptions)
{
	struct hc_image *image = NULL;
	(void)jitOptions, (void)jitOptionsValues, (void)numJitOptions;
	(void)libraryOptions, (void)libraryOptionValues, (void)numLibraryOptions;
	if (!library || !fileName)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = hc_image_parse_file(fileName, &image);
	return library_from(result, image, library);
}

/* The module that represents a library in a context; it is made on first use. */
static CUresult library_module(struct hc_library *library, struct hc_context *context,
			       struct hc_module **module) HC_STATE_HELD
{
	for (*module = context->modules; *module; *module = (*module)->next)
		if ((*module)->library == library)
			return CUDA_SUCCESS;
	return make_module(library->image, context, library, module);
}

/* Destroys the library's module in a context that may have one. */
static void drop_modules(struct hc_library *library, struct hc_context *context) HC_STATE_HELD
{
	for (struct hc_module *module = context->modules, *next; module; module = next) {
		next = module->next;
		if (module->library == library)
			hc_module_destroy(module);
	}
}

void hc_library_drop_context(struct hc_context *context)
{
	HC_STATE_GUARD();
	for (struct hc_library *library = libraries; library; library = library->next)
		drop_modules(library, context);
}

CUresult hc_cuLibraryUnload(CUlibrary handle)
{
	struct hc_library *library = library_of(handle);
	if (!library)
		return CUDA_ERROR_INVALID_HANDLE;
	struct hc_context *current = hc_context_home();
	if (current && !current->dead)
		hc_context_drain(current);
	HC_STATE_GUARD();
	for (int i = 0; i < hc_device_count; i++)
		if (hc_devices[i].primary)
			drop_modules(library, hc_devices[i].primary);
	if (current && !current->dead)
		drop_modules(library, current);
	struct hc_library **link = &libraries;
	while (*link != library)
		link = &(*link)->next;
	*link = library->next;
	hc_handle_remove(library);
	for (size_t i = 0; i < library->image->kernel_count; i++)
		hc_handle_remove(&library->kernels[i]);
	forget_globals(library->image);
	hc_image_unref(library->image);
	free(library->kernels);
	free(library);
	return CUDA_SUCCESS;
}

CUresult hc_cuLibraryGetKernel(CUkernel *pKernel, CUlibrary handle, const char *name)
{
	HC_STATE_GUARD();
	struct hc_library *library = library_of(handle);
	size_t at;
	if (!pKernel || !name)
		return CUDA_ERROR_INVALID_VALUE;
	if (!library)
		return CUDA_ERROR_INVALID_HANDLE;
	HC_TRY(find_kernel(library->image, name, &at));
	*pKernel = (CUkernel)&library->kernels[at];
	return CUDA_SUCCESS;
}

CUresult hc_cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib)
{
	HC_STATE_GUARD();
	struct hc_library *library = library_of(lib);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	if (!library)
		return CUDA_ERROR_INVALID_HANDLE;
	*count = (unsigned)library->image->kernel_count;
	return CUDA_SUCCESS;
}

CUresult hc_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
	HC_STATE_GUARD();
	struct hc_library *library = library_of(lib);
	if (!kernels)
		return CUDA_ERROR_INVALID_VALUE;
	if (!library)
		return CUDA_ERROR_INVALID_HANDLE;
	for (size_t i = 0; i < numKernels && i < library->image->kernel_count; i++)
		kernels[i] = (CUkernel)&library->kernels[i];
	return CUDA_SUCCESS;
}

CUresult hc_cuLibraryGetModule(CUmodule *pMod, CUlibrary handle)
{
	HC_STATE_GUARD();
	struct hc_library *library = library_of(handle);
	struct hc_module *module;
	if (!pMod)
		return CUDA_ERROR_INVALID_VALUE;
	if (!library)
		return CUDA_ERROR_INVALID_HANDLE;
	HC_TRY(library_module(library, hc_context_home(), &module));
	*pMod = (CUmodule)module;
	return CUDA_SUCCESS;
}

CUresult hc_cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary handle, const char *name)
{
	struct hc_library *library = library_of(handle);
	return library ? get_global(library->image, hc_context_home(), name, dptr, bytes) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult hc_function_resolve(CUfunction handle, struct hc_function **function)
{
	enum hc_kind kind = hc_handle_kind(handle);
	if (kind == HC_FUNCTION) {
		*function = (struct hc_function *)handle;
		return CUDA_SUCCESS;
	}
	if (kind != HC_KERNEL)
		return CUDA_ERROR_INVALID_HANDLE;
	struct hc_kernel *kernel = (struct hc_kernel *)handle;
	struct hc_module *module;
	HC_TRY(library_module(kernel->library, hc_context_home(), &module));
	*function = &module->functions[kernel - kernel->library->kernels];
	return CUDA_SUCCESS;
}
