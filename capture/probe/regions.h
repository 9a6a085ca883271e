/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that a graph can reach, and its copies. */
#ifndef MD_CAPTURE_PROBE_REGIONS_H
#define MD_CAPTURE_PROBE_REGIONS_H

#include "capture/probe/probe.h"

/*
 * Lists the memory that the graph can reach, and copies it. MD_ERR_TOO_LARGE beyond the limits; MD_ERR_NOT_FOUND when
 * no output is known that the engine reads.
 */
enum md_status md_capture_probe_collect(struct md_capture_probe *probe, const struct md_capture_graph *graph,
					struct md_error *err) MD_CAPTURE_HELD;
void md_capture_probe_release(struct md_capture_probe *probe);

#endif
