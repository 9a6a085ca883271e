/* SPDX-License-Identifier: Apache-2.0 */
/* Stream captures. */
#ifndef HOSTCUDA_STREAM_CAPTURE_H
#define HOSTCUDA_STREAM_CAPTURE_H

#include "hostcuda/device_state.h"

/* What an unsafe call does to captures; CUDA_SUCCESS when it may go on. */
CUresult hc_capture_unsafe(void);
/* Work for stream: true with *result set when it was captured (or refused), false when it must run. */
bool hc_capture_active(struct hc_stream *stream, CUresult *result);
CUresult hc_capture_append(struct hc_stream *stream, struct hc_node *node, bool programmatic);
void hc_capture_invalidate(struct hc_capture *capture);
void hc_capture_drop_stream(struct hc_stream *stream);
void hc_front_clear(struct hc_front *front);
bool hc_front_add(struct hc_front *front, struct hc_node *node, const CUgraphEdgeData *data);

CUresult hc_event_capture_wait(struct hc_stream *stream, struct hc_event *event);

#endif
