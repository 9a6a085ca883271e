/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs that are not deterministic. */
#ifndef MD_CAPTURE_PROBE_SPREAD_H
#define MD_CAPTURE_PROBE_SPREAD_H

#include "capture/probe/probe.h"

/* The tolerance that the user accepts (MEDUSA_NONDETERMINISTIC). */
struct md_tolerance md_capture_tolerance(void);
/* True if a clean replay may leave these bytes in the span. While the spread is learned, the replay is a clean one. */
bool md_capture_spread_judge(const struct md_capture_probe *probe, struct md_probe_span *span, const uint8_t *now,
			     struct md_error *err);
/* After the first replay: makes clean replays until their spread is known. */
enum md_status md_capture_spread_gather(struct md_capture_probe *probe, struct md_error *err);

#endif
