/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs and bound memory: what a replay changes of them, and the comparison after it. */
#ifndef MD_CAPTURE_PROBE_SPANS_H
#define MD_CAPTURE_PROBE_SPANS_H

#include "capture/probe/probe.h"

/*
 * After the first replay: makes spans of what it has changed and of the windows of sampled state; puts everything back.
 */
enum md_status md_capture_probe_find_spans(struct md_capture_probe *probe, struct md_error *err);
/* Adds one, and keeps its bytes as the first replay has left them: in `after`, or, if that is NULL, on the device. */
enum md_status md_capture_probe_add_span(struct md_capture_probe *probe, struct md_probe_span new, const uint8_t *after,
					 struct md_error *err);
void md_capture_probe_drop_spans(struct md_capture_probe *probe);
/* Compares all spans with those after the first replay, and puts them back. */
enum md_status md_capture_probe_compare_spans(struct md_capture_probe *probe, bool *equal, struct md_error *err);
/* Compares all outputs once, and puts back those that changed; sets strayed if any did. */
enum md_status md_capture_probe_check_outputs(struct md_capture_probe *probe, struct md_error *err);

#endif
