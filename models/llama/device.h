/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's device: primary context, the image of its kernels (found by enumeration, some are hidden), launches. */
#ifndef LLAMA_DEVICE_H
#define LLAMA_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "driver/cuda_driver.h"

enum llama_kernel {
	LLAMA_EMBED,
	LLAMA_RMS_NORM,
	LLAMA_ROPE_STORE,
	LLAMA_ATTENTION,
	LLAMA_SILU_MUL,
	LLAMA_ADD,
	LLAMA_SAMPLE,
	LLAMA_FILL,
	LLAMA_GATHER,
	LLAMA_ADAPTED_NORM,
	LLAMA_ADAPTED_ROPE,
	LLAMA_ADAPTED_ATTENTION,
	LLAMA_ADAPTED_SILU,
	LLAMA_ADAPTED_GATHER,
	LLAMA_KERNEL_COUNT
};

struct llama_buffer {
	CUdeviceptr address;
	size_t bytes;
};

struct llama_device {
	CUdevice device;
	CUcontext context;
	char name[256];
	bool on_host;      /* hostcuda: images are for the processor */
	bool programmatic; /* kernels wait for those before them by themselves */
	void *image;       /* malloc'd, lies in no file: like a kernel that a JIT compiler made */
	CUlibrary library;
	CUfunction kernels[LLAMA_KERNEL_COUNT];
};

/* Loads the driver, takes the primary context of the device and makes it current, loads the kernels. */
enum md_status llama_device_open(struct llama_device *device, int ordinal, struct md_error *err);
void llama_device_close(struct llama_device *device); /* also on a zeroed one */

struct llama_grid {
	unsigned x, y, block;
	unsigned shared_bytes;
};

/* parameters: pointers to the kernel's parameters, in the order of kernels.h. Asynchronous. */
enum md_status llama_launch(const struct llama_device *device, enum llama_kernel kernel, struct llama_grid grid,
			    CUstream stream, void **parameters, struct md_error *err);
/* The same through cuLaunchKernelEx with a launch priority, which a captured node keeps as an attribute. */
enum md_status llama_launch_priority(const struct llama_device *device, enum llama_kernel kernel,
				     struct llama_grid grid, CUstream stream, int priority, void **parameters,
				     struct md_error *err);

/*
 * The same as a programmatic dependent launch, where the kernels were compiled for it: the kernel begins when all blocks
 * of the one before have begun, and waits for its end by itself.
 */
enum md_status llama_launch_early(const struct llama_device *device, enum llama_kernel kernel, struct llama_grid grid,
				  CUstream stream, void **parameters, struct md_error *err);

/* Lets a kernel use so much dynamic shared memory; needed beyond 48 KiB. */
enum md_status llama_device_allow_shared(const struct llama_device *device, enum llama_kernel kernel, size_t bytes,
					 struct md_error *err);

#endif
