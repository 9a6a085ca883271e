/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to medusa-backbone that holds the leases of a process, however many: it ends, and they all end. */
#ifndef MD_BACKBONE_SHARE_KEEPER_H
#define MD_BACKBONE_SHARE_KEEPER_H

#include "backbone/share_list.h"
#include "base/status.h"

/*
 * Moves the lease of a busy one from its own connection to the common one. Where that cannot be (the broker sees no process
 * behind the connections, as that of another container), the lease stays with its own.
 */
void md_share_keep(struct md_share *share);
/* As md_share_say_commit, of a busy one that is kept. */
enum md_status md_share_keeper_commit(struct md_share *share, uint64_t deadline, struct md_error *err);
/*
 * Whether this process may have memory of its own in the place of a busy one, which others may have to make room for. *alone: nobody
 * else has it, or gets it any more. MD_ERR_BUSY and all others: it may not.
 */
enum md_status md_share_keeper_own(struct md_share *share, uint64_t deadline, bool *alone, struct md_error *err);
/* Gives back the lease of a busy one, if it is kept. */
void md_share_keeper_leave(struct md_share *share);

/* Whether the common connection that took this lease is still there. */
bool md_share_is_kept(const struct md_share *share);
/* Sees whether the broker has gone. Returns the descriptor to watch, or -1. */
int md_share_keeper_look(void);

#endif
