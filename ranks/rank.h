/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank of which job this process is, by what the environment says. */
#ifndef MD_RANKS_RANK_H
#define MD_RANKS_RANK_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define MD_RANKS_MOST 256u

struct md_rank {
	bool meets;            /* it has other ranks, and a folder to meet them in; the rest is set if so */
	uint32_t rank, ranks;  /* rank < ranks */
	uint64_t job;          /* hash of all that tells the job from others */
	uint64_t patience_ns;  /* how long one rank waits for another */
	char folder[PATH_MAX]; /* absolute */
};

/*
 * What MEDUSA_RANK and MEDUSA_RANKS or a launcher's variables say; *ranks is 0 where nothing says it. An error names the
 * variable.
 */
enum md_status md_rank_said(uint32_t *rank, uint32_t *ranks, struct md_error *err);
/*
 * Ranks meet if MEDUSA_RANKS_FOLDER is set, and MEDUSA_RANK and MEDUSA_RANKS or a launcher's variables say that there
 * are several (medusa(7)). An error names the variable; the process must not restore alone then.
 */
enum md_status md_rank_read(struct md_rank *out, struct md_error *err);

#endif
