/* SPDX-License-Identifier: Apache-2.0 */
/* Unbound memory that carries a value from graph to graph, or between a graph and the engine. */
#ifndef MD_CAPTURE_PROBE_HANDED_H
#define MD_CAPTURE_PROBE_HANDED_H

#include "capture/probe/probe.h"

struct md_capture_touch { /* a copy or a set that the engine made outside of graphs */
	const char *call; /* static */
	uint64_t address, size;
	uint64_t last;    /* sequence of the last time */
	uint64_t checked; /* sequence of the last time, when the touch was looked at */
	bool writes;
};

/* NULL past the end; lock held. */
struct md_capture_touch *md_capture_touch_at(size_t index) MD_CAPTURE_HELD;

/*
 * After a graph's poison test: notes every part of private
 * memory that the graph reads, which is what the test has kept.
 */
void md_capture_handed_learn(const struct md_capture_probe *probe, uint64_t graph) MD_CAPTURE_HELD;
/*
 * Finds the graphs that write memory which other graphs read or the engine has copied from, by replaying every graph of
 * the session's context that has not been asked yet, and writes them to the trace. The context is current.
 */
void md_capture_handed_check(struct md_probe_session *session, CUcontext context) MD_CAPTURE_HELD;

#endif
