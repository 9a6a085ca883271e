/* SPDX-License-Identifier: Apache-2.0 */
/* Traces that the ranks of a launcher have written: TRACE.rank-N-of-RANKS, see capture/session/by_rank.h. */
#ifndef MD_TOOLS_CAPTURE_RANKS_H
#define MD_TOOLS_CAPTURE_RANKS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "ranks/rank.h"

struct md_rank_traces {
	uint32_t ranks;            /* how many there are, as they say; 0: no process has said that it is one */
	bool there[MD_RANKS_MOST]; /* this rank has a trace, or has begun one */
};

/* MD_ERR_MISMATCH: they do not say the same number. */
enum md_status md_rank_traces_find(const char *trace, struct md_rank_traces *out, struct md_error *err);
void md_rank_trace(const char *trace, uint32_t rank, uint32_t ranks, char path[PATH_MAX]);
/* Removes them all, for another run. */
void md_rank_traces_remove(const char *trace);
/* True if this command is itself one of several ranks: what it starts is that rank, as it is without a bundle. */
bool md_rank_is_own(void);

#endif
