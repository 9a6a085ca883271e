/* SPDX-License-Identifier: Apache-2.0 */
/* Shape of a hook: the real call, then a note if recording; prototypes come from the list of entry points. */
#ifndef MD_CAPTURE_HOOKS_HOOK_H
#define MD_CAPTURE_HOOKS_HOOK_H

#include "capture/capture.h"
#define MD_HOOK_LIBRARY_CAPTURE 1
#include "driver/hooks.h"

/* Calls the real entry point. Without it the result is that of a driver without it. */
#define MD_REAL(symbol, args) (MD_HOOK_REAL(symbol) ? md_cuda.symbol args : CUDA_ERROR_NOT_FOUND)

/* A hook's whole body: `before` and `after` run only while recording, `after` only if the call succeeded. */
#define MD_HOOK(symbol, args, before, after)                                                                           \
	{                                                                                                              \
		bool recording_ = md_capture_enter();                                                                  \
		CUresult result_;                                                                                      \
		if (!recording_)                                                                                       \
			return MD_REAL(symbol, args);                                                                  \
		before;                                                                                                \
		result_ = MD_REAL(symbol, args);                                                                       \
		if (result_ == CUDA_SUCCESS) {                                                                         \
			after;                                                                                         \
		}                                                                                                      \
		md_capture_leave();                                                                                    \
		return result_;                                                                                        \
	}
#define MD_NOTHING (void)0

/* The null stream of a _ptsz entry point is the thread's own; CU_STREAM_PER_THREAD means it in every entry point. */
static inline CUstream md_hook_per_thread(CUstream stream)
{
	return stream ? stream : CU_STREAM_PER_THREAD;
}
#define MD_AS_GIVEN(stream) (stream)

static inline bool md_hook_in_capture(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	return atomic_load_explicit(&md_capture.capturing, memory_order_relaxed) &&
	       md_cuda.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
	       status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

#endif
