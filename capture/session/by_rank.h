/* SPDX-License-Identifier: Apache-2.0 */
/* What a launcher's ranks record, each by itself: below one medusa-capture, they have the same environment. */
#ifndef MD_CAPTURE_SESSION_BY_RANK_H
#define MD_CAPTURE_SESSION_BY_RANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "ranks/rank.h"

/*
 * With MEDUSA_BY_RANK, a process that is one of several ranks has files and settings of its own: PATH.rank-N-of-RANKS, and the N-th
 * of the numbers in MEDUSA_KV_BYTES. *ranks is 0 for every other process. An error names the variable that says no rank.
 */
enum md_status md_capture_rank(uint32_t *rank, uint32_t *ranks, struct md_error *err);
/*
 * This process, if it is a rank that meets others (ranks/rank.h); NULL: it is none, or, as is logged once, it cannot meet
 * them. A graph that communicates is then replayed in no test.
 */
const struct md_rank *md_capture_together(void);
/* Whether a launcher's variables say that this process is one of several ranks, whether it meets them or not. */
bool md_capture_is_rank(void);
/* The path in the variable, this rank's own. False: there is none, or it is too long, or this process does not know its rank. */
bool md_capture_path(const char *variable, char *out, size_t room);
/* The number in MEDUSA_KV_BYTES, as text; NULL: there is none. */
const char *md_capture_kv_text(char *out, size_t room);

#endif
