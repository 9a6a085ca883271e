/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that wait for room on a GPU claim it, in the order of age: who comes later and is smaller cannot pass them for
 * ever. The first claim of a GPU is served first.
 */
#ifndef MD_SCHEDULER_CORE_CLAIMS_H
#define MD_SCHEDULER_CORE_CLAIMS_H

#include "scheduler/core/state.h"

/* What the function lacks there, with the KV cache of its first request. */
uint64_t md_needed_bytes(const struct medusa_sched *s, uint32_t function, uint32_t gpu);
/* Lets the function claim memory on the GPU: the older its first request, the earlier its turn. False: out of memory. */
bool md_claim_put(struct medusa_sched *s, uint32_t function, uint32_t gpu);
void md_claim_drop(struct medusa_sched *s, uint32_t function);
/*
 * Puts that claim first which is served next, if the queueing policy wants another order than that of age. After every
 * MD_OLDEST_TURN starts the oldest one is next until it has run, and as the first claim it ends what keeps it waiting, in
 * the end: others could go before a claim of much memory for ever.
 */
void md_claims_rank(struct medusa_sched *s, uint32_t gpu);

#endif
