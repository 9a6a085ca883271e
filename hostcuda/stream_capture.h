/* SPDX-License-Identifier: Apache-2.0 */
/* Stream captures. */
#ifndef HOSTCUDA_STREAM_CAPTURE_H
#define HOSTCUDA_STREAM_CAPTURE_H

#include "hostcuda/device_state.h"

/* Makes an unsafe call invalidate captures; CUDA_SUCCESS: the call may go on. */
CUresult hc_capture_unsafe(void);
/*
 * Whether work for the stream must not run: with CUDA_SUCCESS in *result it goes into the stream's capture, else it is
 * refused with that error. False: the work must run. The answer holds as long as the caller keeps the state lock.
 */
bool hc_capture_active(struct hc_stream *stream, CUresult *result) HC_STATE_HELD;
CUresult hc_capture_append(struct hc_stream *stream, struct hc_node *node, bool programmatic);
void hc_capture_invalidate(struct hc_capture *capture) HC_STATE_HELD;
void hc_capture_drop_stream(struct hc_stream *stream);
void hc_front_clear(struct hc_front *front);
bool hc_front_add(struct hc_front *front, struct hc_node *node, const CUgraphEdgeData *data);

CUresult hc_event_capture_wait(struct hc_stream *stream, struct hc_event *event);

#endif
