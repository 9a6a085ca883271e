/* SPDX-License-Identifier: Apache-2.0 */
/* Images, modules and libraries: hidden kernels, lazy loading, parameters, attributes, globals, refusals. */
#include "tests/hostcuda_fixture.h"

TestSuite(hostcuda_module, .init = device_open, .fini = device_close);

static CUlibrary load_library(void)
{
	CUlibrary library;
	size_t size;
	char *data = image_read(&size);
	ok(md_cuda.cuLibraryLoadData(&library, data, NULL, NULL, 0, NULL, NULL, 0));
	free(data);
	return library;
}

/* A PTX text that carries the first bytes of an image, which says that its program headers lie far behind them. */
Test(hostcuda_module, should_fail_an_image_that_reaches_behind_its_ptx)
{
	only_on_hostcuda("a real driver compiles PTX");
	uint64_t far = (uint64_t)1 << 32;
	size_t size, room = 4096, at;
	char *data = image_read(&size), *text = malloc(room);
	CUmodule module;
	memcpy(data + 32, &far, sizeof(far)); /* e_phoff */
	at = (size_t)snprintf(text, room, ".version 8.0\n.target sm_80\n.address_size 64\n.b8 hostcuda_image[64] = {");
	for (int i = 0; i < 64; i++)
		at += (size_t)snprintf(text + at, room - at, "%s%d", i ? "," : "", (unsigned char)data[i]);
	snprintf(text + at, room - at, "};\n");
	refused(CUDA_ERROR_INVALID_PTX, md_cuda.cuModuleLoadData(&module, text));
	free(data);
	free(text);
}

Test(hostcuda_module, hidden_kernels_are_listed_but_not_found)
{
	CUmodule module = load_module();
	CUfunction function;
	refused(CUDA_ERROR_NOT_FOUND, md_cuda.cuModuleGetFunction(&function, module, "bias"));
	refused(CUDA_ERROR_NOT_FOUND, md_cuda.cuModuleGetFunction(&function, module, "no_such_kernel"));
	CUdeviceptr x = device_ints(1, 100);
	int count = 100;
	void *params[] = {&x, &count};
	ok(md_cuda.cuLaunchKernel(hidden_function(module, "bias"), 2, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
	assert_ints(x, 100, 6);
	ok(md_cuda.cuMemFree_v2(x));
	ok(md_cuda.cuModuleUnload(module));
	if (on_hostcuda()) /* a real driver may crash on stale handles */
		refused(CUDA_ERROR_INVALID_HANDLE, md_cuda.cuModuleUnload(module));
}

Test(hostcuda_module, parameters_are_known)
{
	static const size_t offsets[] = {0, 8, 16, 24}, sizes[] = {8, 8, 8, 4};
	CUmodule module = load_module(), of_function;
	CUfunction add = function_named(module, "add");
	size_t offset, size;
	for (size_t i = 0; i < 4; i++) {
		ok(md_cuda.cuFuncGetParamInfo(add, i, &offset, &size));
		cr_assert(offset == offsets[i] && size == sizes[i], "parameter %zu: %zu bytes at %zu", i, size, offset);
	}
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuFuncGetParamInfo(add, 4, &offset, &size));
	ok(md_cuda.cuFuncGetModule(&of_function, add));
	cr_assert_eq(of_function, module);
	ok(md_cuda.cuModuleUnload(module));
}

Test(hostcuda_module, code_is_loaded_when_first_needed)
{
	only_on_hostcuda("a real driver is free to load a small image at once, and an H200's does");
	CUmoduleLoadingMode mode;
	CUfunctionLoadingState state;
	CUmodule module = load_module();
	ok(md_cuda.cuModuleGetLoadingMode(&mode));
	if (mode != CU_MODULE_LAZY_LOADING)
		skip("this driver loads eagerly");
	CUfunction scale = function_named(module, "scale");
	ok(md_cuda.cuFuncIsLoaded(&state, scale));
	cr_assert_eq(state, CU_FUNCTION_LOADING_STATE_UNLOADED);
	ok(md_cuda.cuFuncLoad(scale));
	ok(md_cuda.cuFuncIsLoaded(&state, scale));
	cr_assert_eq(state, CU_FUNCTION_LOADING_STATE_LOADED);
	ok(md_cuda.cuModuleUnload(module));
}

Test(hostcuda_module_eager, code_is_loaded_at_once)
{
	CUfunctionLoadingState state;
	CUmoduleLoadingMode mode;
	setenv("CUDA_MODULE_LOADING", "EAGER", 1);
	device_open();
	CUmodule module = load_module();
	ok(md_cuda.cuModuleGetLoadingMode(&mode));
	cr_assert_eq(mode, CU_MODULE_EAGER_LOADING);
	ok(md_cuda.cuFuncIsLoaded(&state, function_named(module, "scale")));
	cr_assert_eq(state, CU_FUNCTION_LOADING_STATE_LOADED);
	ok(md_cuda.cuModuleUnload(module));
	device_close();
}

Test(hostcuda_module, a_library_serves_kernels_and_functions)
{
	CUlibrary library = load_library(), of_kernel;
	CUkernel scale, kernels[16];
	CUfunction function;
	CUmodule module, of_function;
	const char *name;
	unsigned count;
	ok(md_cuda.cuLibraryGetKernel(&scale, library, "scale"));
	refused(CUDA_ERROR_NOT_FOUND, md_cuda.cuLibraryGetKernel(&kernels[0], library, "bias"));
	ok(md_cuda.cuLibraryGetKernelCount(&count, library));
	cr_assert_eq(count, 6);
	ok(md_cuda.cuLibraryEnumerateKernels(kernels, count, library));
	ok(md_cuda.cuKernelGetName(&name, kernels[count - 1]));
	ok(md_cuda.cuKernelGetFunction(&function, scale));
	ok(md_cuda.cuFuncGetName(&name, function));
	cr_assert_str_eq(name, "scale");
	ok(md_cuda.cuLibraryGetModule(&module, library));
	ok(md_cuda.cuFuncGetModule(&of_function, function));
	cr_assert_eq(of_function, module);
	if (md_cuda.cuKernelGetLibrary) {
		ok(md_cuda.cuKernelGetLibrary(&of_kernel, scale));
		cr_assert_eq(of_kernel, library);
	}
	CUdeviceptr x = device_ints(2, 64);
	ok(launch_scale(function, NULL, x, 3, 64));
	ok(launch_scale((CUfunction)scale, NULL, x, 5, 64));
	assert_ints(x, 64, 30);
	ok(md_cuda.cuMemFree_v2(x));
	ok(md_cuda.cuLibraryUnload(library));
}

Test(hostcuda_module, handles_die_with_the_module)
{
	only_on_hostcuda("a real driver may crash on stale handles");
	CUmodule module = load_module();
	CUfunction scale = function_named(module, "scale");
	CUdeviceptr x = device_ints(2, 64);
	const char *name;
	ok(md_cuda.cuModuleUnload(module));
	refused(CUDA_ERROR_INVALID_HANDLE, launch_scale(scale, NULL, x, 3, 64));
	refused(CUDA_ERROR_INVALID_HANDLE, md_cuda.cuFuncGetName(&name, scale));
	ok(md_cuda.cuMemFree_v2(x));
}

Test(hostcuda_module, globals_reach_the_kernels)
{
	CUmodule module = load_module();
	CUdeviceptr bias, x = device_ints(1, 64);
	size_t size;
	int value, count = 64;
	ok(md_cuda.cuModuleGetGlobal_v2(&bias, &size, module, "arith_bias"));
	cr_assert_eq(size, 4);
	ok(md_cuda.cuMemcpyDtoH_v2(&value, bias, 4));
	cr_assert_eq(value, 5);
	ok(md_cuda.cuMemsetD32_v2(bias, 41, 1));
	void *params[] = {&x, &count};
	ok(md_cuda.cuLaunchKernel(hidden_function(module, "bias"), 1, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
	assert_ints(x, 64, 42);
	refused(CUDA_ERROR_NOT_FOUND, md_cuda.cuModuleGetGlobal_v2(&bias, &size, module, "nothing"));
	ok(md_cuda.cuMemFree_v2(x));
	ok(md_cuda.cuModuleUnload(module));
}

Test(hostcuda_module, two_copies_of_an_image_have_their_own_globals)
{
	CUmodule one = load_module(), two = load_module();
	CUdeviceptr a, b;
	ok(md_cuda.cuModuleGetGlobal_v2(&a, NULL, one, "arith_bias"));
	ok(md_cuda.cuModuleGetGlobal_v2(&b, NULL, two, "arith_bias"));
	cr_assert_neq(a, b);
	ok(md_cuda.cuModuleUnload(one));
	ok(md_cuda.cuMemsetD32_v2(b, 9, 1));
	assert_ints(b, 1, 9);
	ok(md_cuda.cuModuleUnload(two));
}

static CUresult launch_sum(CUfunction function, CUdeviceptr out, int count, unsigned shared)
{
	void *params[] = {&out, &count};
	return md_cuda.cuLaunchKernel(function, 8, 1, 1, 1, 1, 1, shared, NULL, params, NULL);
}

Test(hostcuda_module, much_shared_memory_must_be_allowed_first)
{
	CUmodule module = load_module();
	CUfunction sum = function_named(module, "shared_sum");
	CUdeviceptr out = device_ints(0, 8);
	int allowed, most;
	ok(launch_sum(sum, out, 1000, 4000));
	assert_ints(out, 8, 499500);
	refused(CUDA_ERROR_INVALID_VALUE, launch_sum(sum, out, 20000, 80000));
	ok(md_cuda.cuFuncSetAttribute(sum, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 80000));
	ok(md_cuda.cuFuncGetAttribute(&allowed, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, sum));
	cr_assert_eq(allowed, 80000);
	ok(launch_sum(sum, out, 20000, 80000));
	assert_ints(out, 8, 199990000);
	ok(md_cuda.cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0));
	refused(CUDA_ERROR_INVALID_VALUE,
		md_cuda.cuFuncSetAttribute(sum, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most + 1));
	ok(md_cuda.cuMemFree_v2(out));
	ok(md_cuda.cuModuleUnload(module));
}

Test(hostcuda_module, arguments_come_by_extra_too)
{
	struct {
		CUdeviceptr x;
		int factor, count;
	} arguments = {device_ints(3, 64), 7, 64};
	size_t size = sizeof(arguments), small = 8;
	CUmodule module = load_module();
	CUfunction scale = function_named(module, "scale");
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &arguments, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			 CU_LAUNCH_PARAM_END};
	ok(md_cuda.cuLaunchKernel(scale, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, extra));
	assert_ints(arguments.x, 64, 21);
	extra[3] = &small;
	if (on_hostcuda()) /* a real driver reads on */
		refused(CUDA_ERROR_INVALID_VALUE,
			md_cuda.cuLaunchKernel(scale, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, extra));
	ok(md_cuda.cuMemFree_v2(arguments.x));
	ok(md_cuda.cuModuleUnload(module));
}

Test(hostcuda_module, should_fail_bad_shapes)
{
	CUmodule module = load_module();
	CUfunction scale = function_named(module, "scale");
	CUdeviceptr x = device_ints(0, 1);
	int one = 1;
	void *params[] = {&x, &one, &one};
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuLaunchKernel(scale, 0, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuLaunchKernel(scale, 1, 1, 1, 1025, 1, 1, 0, NULL, params, NULL));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuLaunchKernel(scale, 1, 70000, 1, 1, 1, 1, 0, NULL, params, NULL));
	ok(md_cuda.cuMemFree_v2(x));
	ok(md_cuda.cuModuleUnload(module));
}

Test(hostcuda_module, should_fail_what_is_no_image)
{
	static char nonsense[256] = "this is no image";
	CUmodule module;
	CUlibrary library;
	size_t size;
	only_on_hostcuda("a real driver would read on as PTX");
	refused(CUDA_ERROR_INVALID_IMAGE, md_cuda.cuModuleLoadData(&module, nonsense));
	refused(CUDA_ERROR_INVALID_IMAGE, md_cuda.cuLibraryLoadData(&library, nonsense, NULL, NULL, 0, NULL, NULL, 0));
	refused(CUDA_ERROR_FILE_NOT_FOUND, md_cuda.cuModuleLoad(&module, "/nonexistent"));
	refused(CUDA_ERROR_INVALID_IMAGE, md_cuda.cuModuleLoad(&module, "/proc/self/exe"));
	char *data = image_read(&size);
	data[18] ^= 0x55; /* the machine */
	refused(CUDA_ERROR_INVALID_IMAGE, md_cuda.cuModuleLoadData(&module, data));
	free(data);
	ok(md_cuda.cuModuleLoad(&module, image_path()));
	ok(md_cuda.cuModuleUnload(module));
}
