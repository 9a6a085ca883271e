/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays of a test that all ranks launch together: one rank alone would wait for the others in its kernels for ever, or write
 * where they do not expect it.
 */
#ifndef MD_RANKS_LOCKSTEP_H
#define MD_RANKS_LOCKSTEP_H

#include <stdbool.h>

#include "base/status.h"
#include "ranks/rank.h"

/*
 * One test, which takes the same course in all ranks. When one of them does not come to a replay, fails, or takes another
 * course, the test fails in all, and none of them launches anything more for it.
 */
struct md_lockstep {
	/* Not owned. NULL: the graph does not communicate, and nothing of this takes place. */
	const struct md_rank *rank;
	char what[160]; /* "the poison test of graph reduced/1" */
	unsigned replays;
	struct md_error lost; /* why they do not go on */
};

/* rank: of this process, which meets others. */
enum md_status md_lockstep_begin(struct md_lockstep *lockstep, const struct md_rank *rank, const char *test,
				 const char *label, unsigned batch, struct md_error *err);
/* Before a launch. Memory of this rank is in place, and nothing runs on the device. kind: what the replay is for. */
enum md_status md_lockstep_replay(struct md_lockstep *lockstep, const char *kind, struct md_error *err);
/* The launch has ended, well or not. MD_OK: in all ranks, and none of them has touched its memory since. */
enum md_status md_lockstep_replayed(struct md_lockstep *lockstep, enum md_status status, struct md_error *err);
/* *holds becomes whether it is true in all ranks, or in any of them: the test goes on by that, so it does the same in each. */
enum md_status md_lockstep_all(struct md_lockstep *lockstep, const char *what, bool *holds, struct md_error *err);
enum md_status md_lockstep_any(struct md_lockstep *lockstep, const char *what, bool *holds, struct md_error *err);
/*
 * The outcome in this rank, with the reason in *err. MD_OK: the same in all ranks. A rank's own failure stays its reason;
 * the others get one that names it.
 */
enum md_status md_lockstep_end(struct md_lockstep *lockstep, enum md_status status, struct md_error *err);

#endif
