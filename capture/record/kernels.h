/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: from a function handle to the kernel's index in the trace. */
#ifndef MD_CAPTURE_RECORD_KERNELS_H
#define MD_CAPTURE_RECORD_KERNELS_H

#include "capture/capture.h"

/* Index of the kernel in the trace, put there when new; func or kern may be NULL. MD_NONE on failure. */
uint32_t md_capture_kernel_find(CUfunction func, CUkernel kern) MD_CAPTURE_HELD;
/* The same for a graph node: function state is read again, for it may have been changed since. */
uint32_t md_capture_kernel_find_fresh(CUfunction func, CUkernel kern) MD_CAPTURE_HELD;
const struct md_kernel *md_capture_kernel_get(uint32_t index) MD_CAPTURE_HELD; /* valid until the next find */
/* Forgets the kernels of an unloaded module or library, or, if both are NULL, all: handles may come again. */
void md_capture_kernels_forget(CUmodule module, CUlibrary library) MD_CAPTURE_HELD;
/* Whether the handle belonged to another kernel, or to one that is gone, at that time. */
bool md_capture_kernel_unloaded_since(CUfunction func, CUkernel kern, uint64_t sequence) MD_CAPTURE_HELD;

#endif
