/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA contexts of this process, and which of them may reach each other's memory. */
#ifndef MD_SWAP_CONTEXTS_H
#define MD_SWAP_CONTEXTS_H

#include <stdbool.h>
#include <stddef.h>

#include "driver/cuda_driver.h"

#define MD_SWAP_CONTEXTS_MOST 256

struct md_swap_context {
	CUcontext context;
	CUdevice device;
	bool primary;
};

/* The context that is current, which is remembered, or the primary one that it is a part of (green contexts); CUDA_ERROR_INVALID_CONTEXT if there is none. */
CUresult md_swap_context_current(CUcontext *context, CUdevice *device);
/* The same of a stream; one that is no handle has the current context. */
CUresult md_swap_context_of_stream(CUstream stream, CUcontext *context, CUdevice *device);
/* Any context on a device, its primary one if that is known, or NULL. */
CUcontext md_swap_context_on(CUdevice device);
/* Copies what is known; the number of contexts, at most `room`. */
size_t md_swap_contexts_list(struct md_swap_context *contexts, size_t room);
CUresult md_swap_context_device(CUcontext context, CUdevice *device);
/* Waits for all work of a context of this process, whichever is current. */
CUresult md_swap_context_drain(CUcontext context);

#endif
