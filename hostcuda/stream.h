/* SPDX-License-Identifier: Apache-2.0 */
/* Streams by their handles. */
#ifndef HOSTCUDA_STREAM_H
#define HOSTCUDA_STREAM_H

#include "hostcuda/device_state.h"

CUresult hc_stream_resolve(CUstream handle, struct hc_stream **stream); /* takes the state lock */

#endif
