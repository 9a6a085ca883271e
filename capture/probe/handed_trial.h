/* SPDX-License-Identifier: Apache-2.0 */
/* Replays one graph to see which unbound memory it writes that others read. */
#ifndef MD_CAPTURE_PROBE_HANDED_TRIAL_H
#define MD_CAPTURE_PROBE_HANDED_TRIAL_H

#include "capture/probe/probe.h"
#include "capture/record/graphs.h"

/*
 * Memory that somebody reads: a graph, as its poison test found, or the engine, which has copied from there. If an
 * earlier graph needs a part, later graphs keep it without a test: it is `known`, until it matters.
 */
struct md_interest {
	uint64_t address, size;
	uint64_t graph; /* 0: the engine's */
	uint64_t sequence;
	const char *call;
	bool known;
	bool table; /* addresses of what ranks share, and nothing else: writing what is there changes nothing */
};

/* All interests; valid until one is added. */
const struct md_interest *md_capture_interests(size_t *count) MD_CAPTURE_HELD;

/* Private memory of the graph that interests lie in; no two spots overlap. */
struct md_handed_spot {
	uint32_t region;
	size_t staged; /* while it is read: where its bytes are in the session's staging memory */
	uint64_t address, size;
	uint8_t *before, *written; /* owned; a byte of written for each byte */
};

struct md_handed_trial {
	struct md_capture_probe probe;
	struct md_handed_spot *spots; /* owned */
	size_t spot_count, spot_room;
	bool *own;    /* units that the graph itself needs; owned, with: */
	size_t *code; /* per unit: the replays that poison it, a bit for each, by the spot that it lies in */
	unsigned code_bits;
};

struct md_handed_trial md_handed_trial_new(struct md_probe_session *session, const struct md_capture_graph *graph);
void md_handed_trial_finish(struct md_handed_trial *trial);
/* Cuts the memory that the graph can reach into units; units that the graph itself needs are kept. */
enum md_status md_handed_trial_collect(struct md_handed_trial *trial, const struct md_capture_graph *graph,
				       struct md_error *err) MD_CAPTURE_HELD;
/*
 * Lists the spots, which are interests that the graph has not
 * been asked about, and finds the bytes of them that it writes.
 */
enum md_status md_handed_trial_find_written(struct md_handed_trial *trial, const struct md_capture_graph *graph,
					    struct md_error *err) MD_CAPTURE_HELD;
/* The same for all private memory that the graph reaches; the graph need not have passed a test. */
enum md_status md_handed_trial_find_all(struct md_handed_trial *trial, const struct md_capture_graph *graph,
					struct md_error *err) MD_CAPTURE_HELD;

/* Whether the interest concerns the graph: bytes that the engine copied before the graph was made were not left by it. */
static inline bool md_handed_matters(const struct md_interest *interest, const struct md_capture_graph *graph)
{
	return interest->size && interest->graph != graph->id && (interest->graph || interest->sequence >= graph->made);
}

static inline bool md_handed_overlap(uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size)
{
	return a < b + b_size && b < a + a_size;
}

#endif
