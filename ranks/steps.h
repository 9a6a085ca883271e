/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that all ranks of a job take at the same time, as when they launch what communicates. */
#ifndef MD_RANKS_STEPS_H
#define MD_RANKS_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "ranks/rounds.h"

struct md_step {
	const char *text;              /* what this rank does: the same words in all ranks */
	bool yes;                      /* its answer to a question that the text asks */
	uint64_t patience_ns;          /* when that passes, nothing more is done together */
	bool (*connected)(void *user); /* as of struct md_vote */
	void *user;
};

/*
 * Says what this rank does in step number (0, 1, 2 ...), and waits until all ranks have. MD_OK: all have said the same, and
 * all get MD_OK; *all_yes is whether each of them has answered yes. MD_ERR_MISMATCH and not md_rounds_ended: they have said
 * different things, none gets MD_OK, and the next step may follow. Otherwise nothing more is done together, and the error
 * names the rank that is gone or late.
 */
enum md_status md_rounds_step(struct md_rounds *rounds, uint32_t number, const struct md_step *step, bool *all_yes,
			      struct md_error *err);

#endif
