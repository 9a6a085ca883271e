/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who watches is told which process has which memory, and decides whether a process may have memory of its own in the place
 * of what it has in common with others: whoever counts such memory once needs room for it first.
 */
#ifndef MD_BACKBONE_BROKER_WATCH_H
#define MD_BACKBONE_BROKER_WATCH_H

#include "backbone/broker_state.h"

/* The client watches from now on, and is told what there is. */
void md_broker_watch(const struct md_broker *b, struct md_broker_client *client);
/* What the process has now, or no longer; said to all who watch, unless it might have its own instead without asking. */
void md_broker_say_has(const struct md_broker *b, pid_t process, const struct md_broker_lease *lease, bool has);
/* The process wants memory of its own in the place of what the lease has: it is answered, or somebody is asked first. */
void md_broker_own(struct md_broker *b, struct md_broker_client *client, struct md_broker_lease *lease);
/* The answer of who watches. */
void md_broker_let(struct md_broker *b, uint64_t ask, bool may);
/* Who watches has gone: if nobody else does, what was asked is refused. */
void md_broker_watcher_left(struct md_broker *b);

#endif
