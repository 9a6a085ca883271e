/* SPDX-License-Identifier: Apache-2.0 */
/* The meeting of a job's ranks: the first one that comes waits at a socket for the others, and notices when one ends. */
#ifndef MD_RANKS_MEETING_H
#define MD_RANKS_MEETING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "ranks/rank.h"

struct md_question {
	uint64_t name, with, bundle; /* as of struct md_vote */
	const char *why_not;         /* NULL: this rank can */
	uint64_t deadline_ns;        /* how long the caller waits */
};

/*
 * Comes to the meeting, if this process has not, and asks whether all ranks can do it, in the order of these calls. MD_OK:
 * all of them get MD_OK. Otherwise none does, and the error names a rank; *over is set if that holds for all that will
 * be asked. Calls of several threads wait for each other.
 */
enum md_status md_ranks_ask(const struct md_rank *rank, const struct md_question *question, bool *over,
			    struct md_error *err);
/*
 * Comes to the meeting likewise, and waits until all ranks have said what they do. MD_OK: the same, and all of them get
 * MD_OK; *yes becomes whether it was true in each of them. Otherwise none does; *over is set if they do nothing more
 * together.
 */
enum md_status md_ranks_step(const struct md_rank *rank, const char *text, bool *yes, bool *over, struct md_error *err);
/* Goes away; the others take that for the end of this rank. Nothing is asked afterwards. */
void md_ranks_leave(void);

#endif
