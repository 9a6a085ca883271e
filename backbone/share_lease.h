/* SPDX-License-Identifier: Apache-2.0 */
/* What a process that shares says to medusa-backbone, and hears. */
#ifndef MD_BACKBONE_SHARE_LEASE_H
#define MD_BACKBONE_SHARE_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "backbone/share_list.h"
#include "base/status.h"

/*
 * Connects, and asks for the memory of a busy one. When it is there: its id, bytes, memory, fills, and if it is filled
 * hash. MD_ERR_NOT_FOUND: there is no broker; MD_ERR_TIMEOUT: it is still being filled at the deadline (md_clock_ns).
 * With 0 as deadline the call does not wait for another process: MD_ERR_BUSY instead, and MD_ERR_TIMEOUT if the broker
 * does not answer.
 */
enum md_status md_share_attach(struct md_share *share, uint64_t deadline, struct md_error *err);
/* Says that the memory is filled, with share->hash. now: the caller cannot wait long for the answer. */
enum md_status md_share_say_commit(struct md_share *share, bool now, struct md_error *err);
/* The error of an answer that is not ok. */
enum md_status md_share_read_refusal(const struct md_swap_message *answer, struct md_error *err);
/*
 * Gives the memory of a busy one to a broker that has been started since. MD_ERR_NOT_FOUND, MD_ERR_TIMEOUT,
 * MD_ERR_TRUNCATED, MD_ERR_IO: later, perhaps; others: that broker does not want it.
 */
enum md_status md_share_hold(struct md_share *share, struct md_error *err);

/* Gives memory whose broker has gone to the next one, from a thread that is there from now on. */
void md_share_watch(void);

#endif
