/* SPDX-License-Identifier: Apache-2.0 */
/* Replays one graph to see which unbound memory it writes that others read. */
#ifndef MD_CAPTURE_PROBE_HANDED_TRIAL_H
#define MD_CAPTURE_PROBE_HANDED_TRIAL_H

#include "capture/probe/probe.h"
#include "capture/record/graphs.h"

/*
 * What somebody reads: a graph, whose poison test found it; or the engine, which has copied from there. Graphs that
 * were tested later than one that needs a part keep it without a test: `known`, until it matters.
 */
struct md_interest {
	uint64_t address, size;
	uint64_t graph; /* 0: the engine's */
	uint64_t sequence;
	const char *call;
	bool known;
};

/* All interests; valid until one is added. */
const struct md_interest *md_capture_interests(size_t *count) MD_CAPTURE_HELD;

/* A part of an interest that lies in private memory of the graph. */
struct md_handed_spot {
	size_t interest;
	uint64_t address, size;
	uint8_t *before, *written; /* owned; a byte of written for each byte */
};

struct md_handed_trial {
	struct md_capture_probe probe;
	struct md_handed_spot *spots; /* owned */
	size_t spot_count;
	bool *own;       /* units that the graph itself needs; owned, with: */
	size_t *cluster; /* of each unit: which of the spots that lie in one another it belongs to */
	size_t cluster_count;
};

struct md_handed_trial md_handed_trial_new(struct md_probe_session *session, const struct md_capture_graph *graph);
void md_handed_trial_finish(struct md_handed_trial *trial);
/* Cuts the memory that the graph can reach into units; units that the graph itself needs are kept. */
enum md_status md_handed_trial_collect(struct md_handed_trial *trial, const struct md_capture_graph *graph,
				       struct md_error *err) MD_CAPTURE_HELD;
/* Spots: what others read and the graph has not been asked for; and which bytes of them it writes. */
enum md_status md_handed_trial_find_written(struct md_handed_trial *trial, const struct md_capture_graph *graph,
					    struct md_error *err) MD_CAPTURE_HELD;
/* The same of all private memory that it reaches, of a graph that need not have stood a test. */
enum md_status md_handed_trial_find_all(struct md_handed_trial *trial, const struct md_capture_graph *graph,
					struct md_error *err) MD_CAPTURE_HELD;

static inline bool md_handed_overlap(uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size)
{
	return a < b + b_size && b < a + a_size;
}

#endif
