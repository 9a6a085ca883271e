/* SPDX-License-Identifier: Apache-2.0 */
/* Context, kernel image and launches of the reference engine. */
#include "models/llama/device.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

#define MAX_IMAGE_BYTES (64l << 20)
#define MAX_KERNELS 256

static const char *const kernel_names[LLAMA_KERNEL_COUNT] = {
    [LLAMA_EMBED] = "llama_embed",
    [LLAMA_RMS_NORM] = "llama_rms_norm",
    [LLAMA_ROPE_STORE] = "llama_rope_store",
    [LLAMA_ATTENTION] = "llama_attention",
    [LLAMA_SILU_MUL] = "llama_silu_mul",
    [LLAMA_ADD] = "llama_add",
    [LLAMA_SAMPLE] = "llama_sample",
    [LLAMA_FILL] = "llama_fill",
    [LLAMA_GATHER] = "llama_gather",
    [LLAMA_ADAPTED_NORM] = "llama_adapted_norm",
    [LLAMA_ADAPTED_ROPE] = "llama_adapted_rope",
    [LLAMA_ADAPTED_ATTENTION] = "llama_adapted_attention",
    [LLAMA_ADAPTED_SILU] = "llama_adapted_silu",
    [LLAMA_ADAPTED_GATHER] = "llama_adapted_gather",
};

/* The image lies beside the program. It is read, not mapped, so that its bytes lie in anonymous memory. */
static enum md_status read_image(struct llama_device *device, struct md_error *err)
{
	char path[PATH_MAX + 64];
	ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
	if (length <= 0)
		return md_error_set(err, MD_ERR_IO, "/proc/self/exe: %s", strerror(errno));
	path[length] = 0;
	char *slash = strrchr(path, '/');
	char *name = slash ? slash + 1 : path;
	snprintf(name, (size_t)(path + sizeof(path) - name), "%s",
		 device->on_host ? "llama_kernels.host.so" : "llama_kernels.fatbin");
	struct md_file_bytes file;
	MD_FORWARD(md_file_read(path, MAX_IMAGE_BYTES, &file, err));
	device->image = file.data;
	return MD_OK;
}

/* A static CUDA kernel carries a mangled name, which holds the plain one. */
static enum md_status match_kernel(struct llama_device *device, CUkernel kernel, struct md_error *err)
{
	const char *name;
	MD_FORWARD(md_cuda_call(err, cuKernelGetName, &name, kernel));
	for (unsigned i = 0; i < LLAMA_KERNEL_COUNT; i++) {
		if (!device->kernels[i] && strstr(name, kernel_names[i]))
			return md_cuda_call(err, cuKernelGetFunction, &device->kernels[i], kernel);
	}
	return MD_OK;
}

static enum md_status find_kernels(struct llama_device *device, struct md_error *err)
{
	CUkernel kernels[MAX_KERNELS];
	unsigned count = 0;
	MD_FORWARD(md_cuda_call(err, cuLibraryGetKernelCount, &count, device->library));
	if (count > MAX_KERNELS)
		return md_error_set(err, MD_ERR_TOO_LARGE, "the image holds %u kernels", count);
	MD_FORWARD(md_cuda_call(err, cuLibraryEnumerateKernels, kernels, count, device->library));
	for (unsigned i = 0; i < count; i++)
		MD_FORWARD(match_kernel(device, kernels[i], err));
	for (unsigned i = 0; i < LLAMA_KERNEL_COUNT; i++)
		if (!device->kernels[i])
			return md_error_set(err, MD_ERR_NOT_FOUND, "the image holds no kernel %s", kernel_names[i]);
	return MD_OK;
}

static enum md_status open_context(struct llama_device *device, int ordinal, struct md_error *err)
{
	MD_FORWARD(md_cuda_load(err));
	MD_FORWARD(md_cuda_call(err, cuInit, 0));
	MD_FORWARD(md_cuda_call(err, cuDeviceGet, &device->device, ordinal));
	MD_FORWARD(md_cuda_call(err, cuDeviceGetName, device->name, (int)sizeof(device->name), device->device));
	device->on_host = strstr(device->name, "hostcuda") != NULL;
	MD_FORWARD(md_cuda_call(err, cuDevicePrimaryCtxRetain, &device->context, device->device));
	return md_cuda_call(err, cuCtxSetCurrent, device->context);
}

/* PTX of before sm_90, compiled by a newer driver, has no waits: its kernels must not begin early. */
static enum md_status look_at_code(struct llama_device *device, struct md_error *err)
{
	int version = 0;
	if (!device->on_host)
		MD_FORWARD(md_cuda_call(err, cuFuncGetAttribute, &version, CU_FUNC_ATTRIBUTE_PTX_VERSION,
					device->kernels[LLAMA_EMBED]));
	device->programmatic = device->on_host || version >= 90;
	return MD_OK;
}

enum md_status llama_device_open(struct llama_device *device, int ordinal, struct md_error *err)
{
	memset(device, 0, sizeof(*device));
	MD_FORWARD(open_context(device, ordinal, err));
	MD_FORWARD(read_image(device, err));
	MD_FORWARD(md_cuda_call(err, cuLibraryLoadData, &device->library, device->image, NULL, NULL, 0, NULL, NULL, 0));
	MD_FORWARD(find_kernels(device, err));
	return look_at_code(device, err);
}

void llama_device_close(struct llama_device *device)
{
	if (device->library)
		md_cuda_call(NULL, cuLibraryUnload, device->library);
	if (device->context)
		md_cuda_call(NULL, cuDevicePrimaryCtxRelease_v2, device->device);
	free(device->image);
	memset(device, 0, sizeof(*device));
}

enum md_status llama_launch(const struct llama_device *device, enum llama_kernel kernel, struct llama_grid grid,
			    CUstream stream, void **parameters, struct md_error *err)
{
	enum md_status status = md_cuda_call(err, cuLaunchKernel, device->kernels[kernel], grid.x, grid.y, 1,
					     grid.block, 1, 1, grid.shared_bytes, stream, parameters, NULL);
	return status == MD_OK ? MD_OK : md_error_prefix(err, "%s", kernel_names[kernel]);
}

static enum md_status launch_with(const struct llama_device *device, enum llama_kernel kernel, struct llama_grid grid,
				  CUstream stream, CUlaunchAttribute attribute, void **parameters, struct md_error *err)
{
	CUlaunchConfig config = {
	    .gridDimX = grid.x,
	    .gridDimY = grid.y,
	    .gridDimZ = 1,
	    .blockDimX = grid.block,
	    .blockDimY = 1,
	    .blockDimZ = 1,
	    .sharedMemBytes = grid.shared_bytes,
	    .hStream = stream,
	    .attrs = &attribute,
	    .numAttrs = 1,
	};
	enum md_status status = md_cuda_call(err, cuLaunchKernelEx, &config, device->kernels[kernel], parameters, NULL);
	return status == MD_OK ? MD_OK : md_error_prefix(err, "%s", kernel_names[kernel]);
}

enum md_status llama_launch_priority(const struct llama_device *device, enum llama_kernel kernel,
				     struct llama_grid grid, CUstream stream, int priority, void **parameters,
				     struct md_error *err)
{
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value = {.priority = priority}};
	return launch_with(device, kernel, grid, stream, attribute, parameters, err);
}

enum md_status llama_launch_early(const struct llama_device *device, enum llama_kernel kernel, struct llama_grid grid,
				  CUstream stream, void **parameters, struct md_error *err)
{
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
				       .value = {.programmaticStreamSerializationAllowed = 1}};
	if (!device->programmatic)
		return llama_launch(device, kernel, grid, stream, parameters, err);
	return launch_with(device, kernel, grid, stream, attribute, parameters, err);
}

enum md_status llama_device_allow_shared(const struct llama_device *device, enum llama_kernel kernel, size_t bytes,
					 struct md_error *err)
{
	if (bytes <= 40 << 10)
		return MD_OK;
	return md_cuda_call(err, cuFuncSetAttribute, device->kernels[kernel],
			    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes);
}
