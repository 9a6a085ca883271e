/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that a graph has kept in its test only because an earlier graph needs it. */
#ifndef MD_CAPTURE_PROBE_KNOWN_H
#define MD_CAPTURE_PROBE_KNOWN_H

#include "capture/probe/handed_trial.h"

/* An engine that ends may have freed memory of a graph that it has not destroyed: a replay would fault. */
bool md_capture_has_its_memory(const struct md_capture_graph *graph) MD_CAPTURE_HELD;
/*
 * Finds out which of these places the graph needs itself: one test poisons each of them alone. In doubt, the graph needs
 * the place.
 */
void md_capture_known_ask(struct md_probe_session *session, const struct md_capture_graph *graph,
			  struct md_interest *const *places, size_t count, bool *needed) MD_CAPTURE_HELD;

#endif
