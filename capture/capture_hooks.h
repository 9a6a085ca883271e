/* SPDX-License-Identifier: Apache-2.0 */
/* Shape of a hook: the real call, then a note if recording; prototypes come from the list of entry points. */
#ifndef MD_CAPTURE_CAPTURE_HOOKS_H
#define MD_CAPTURE_CAPTURE_HOOKS_H

#include "capture/capture.h"
#define MD_HOOK_LIBRARY_CAPTURE 1
#include "driver/hooks.h"

/* The real entry point; a driver that lacks it answers as a driver without it would. */
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

#endif
