/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and fills, as nodes and as work on a stream. */
#ifndef HOSTCUDA_COPY_H
#define HOSTCUDA_COPY_H

#include "hostcuda/device_state.h"

CUresult hc_copy_make(const CUDA_MEMCPY3D *params, struct hc_copy *copy);
/* Whether mapped memory at both ends lets the device reach it. */
bool hc_copy_reaches(const struct hc_device *device, const struct hc_copy *copy) HC_STATE_HELD;
CUresult hc_fill_make(const CUDA_MEMSET_NODE_PARAMS *params, struct hc_fill *fill);
/* Queues or captures the copy; wait: returns when it is done. */
CUresult hc_copy_submit(const CUDA_MEMCPY3D *params, CUstream stream, bool wait);
/*
 * The same, where the device of each end's context must reach that end; NULL: the stream's context. Without such contexts
 * the driver makes copies between devices that do not reach each other for its own allocations alone, not for mapped memory.
 */
CUresult hc_copy_submit_between(const CUDA_MEMCPY3D *params, const struct hc_context *to, const struct hc_context *from,
				CUstream stream, bool wait);
CUresult hc_fill_submit(uint64_t to, size_t pitch, unsigned value, unsigned element, size_t width, size_t height,
			CUstream stream);

#endif
