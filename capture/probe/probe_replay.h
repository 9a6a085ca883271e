/* SPDX-License-Identifier: Apache-2.0 */
/* Replays of the poison test. */
#ifndef MD_CAPTURE_PROBE_PROBE_REPLAY_H
#define MD_CAPTURE_PROBE_PROBE_REPLAY_H

#include "capture/probe/probe.h"

/*
 * One replay with memory as it is, which all ranks make if the graph communicates (kind: what it is for); and the placing before a
 * replay: host memory, variables, and private memory as below.
 */
enum md_status md_capture_probe_launch(struct md_capture_probe *probe, const char *kind, struct md_error *err);
enum md_status md_capture_probe_place(struct md_capture_probe *probe, size_t from, size_t to, struct md_error *err);
enum md_status md_capture_probe_first_replay(struct md_capture_probe *probe, struct md_error *err);
/*
 * Replays with the units of [from, to) poisoned, except kept
 * ones. Afterwards outputs are put back, private memory is not.
 */
enum md_status md_capture_probe_replay(struct md_capture_probe *probe, size_t from, size_t to, bool *equal,
				       struct md_error *err);
/*
 * Ends the test: memory is as it was before the first replay, and sampled state is as one live replay leaves it.
 * status, err: the outcome of the test; an error is not replaced.
 */
enum md_status md_capture_probe_settle(struct md_capture_probe *probe, enum md_status status, struct md_error *err);

#endif
