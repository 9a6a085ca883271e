/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of the modules that a graph's kernels are of. */
#ifndef MD_CAPTURE_PROBE_PROBE_VARIABLES_H
#define MD_CAPTURE_PROBE_PROBE_VARIABLES_H

#include "capture/probe/probe.h"

bool md_capture_probe_reads_image(const struct md_capture_graph *graph, uint32_t image) MD_CAPTURE_HELD;
enum md_status md_capture_probe_put_variables(struct md_capture_probe *probe, struct md_error *err);
/* After the first replay: marks the variables that it has changed. */
enum md_status md_capture_probe_find_written(struct md_capture_probe *probe, struct md_error *err);
/* Writes the changed variables to the trace. */
void md_capture_probe_say_written(const struct md_capture_probe *probe,
				  const struct md_capture_graph *graph) MD_CAPTURE_HELD;

#endif
