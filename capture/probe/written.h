/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes of private memory a graph writes. */
#ifndef MD_CAPTURE_PROBE_WRITTEN_H
#define MD_CAPTURE_PROBE_WRITTEN_H

#include "capture/probe/probe.h"

/*
 * After a replay with all of private memory poisoned that left
 * the outputs right: notes the bytes that the replay wrote.
 */
enum md_status md_capture_written_look(struct md_capture_probe *probe, struct md_error *err);
void md_capture_written_drop(struct md_capture_probe *probe); /* forgets the bytes that were noted so far */
/* Writes the noted bytes to the trace, if they are known; the graph keeps them. */
void md_capture_written_put(const struct md_capture_probe *probe, struct md_capture_graph *graph) MD_CAPTURE_HELD;
void md_capture_written_release(struct md_capture_probe *probe);

#endif
