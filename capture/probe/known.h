/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that a graph has kept in its test only because an earlier graph needs it: whether the graph needs it, too. */
#ifndef MD_CAPTURE_PROBE_KNOWN_H
#define MD_CAPTURE_PROBE_KNOWN_H

#include "capture/probe/handed_trial.h"

/*
 * Tests all such memory of the graph together: what it needs is no longer `known`, and the rest is no interest any more.
 * In doubt the graph needs it. A graph that cannot be replayed is left as it is.
 */
void md_capture_known_settle(struct md_probe_session *session, const struct md_capture_graph *graph) MD_CAPTURE_HELD;

#endif
