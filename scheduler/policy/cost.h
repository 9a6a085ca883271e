/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates that policies share, in ns. */
#ifndef MD_SCHEDULER_POLICY_COST_H
#define MD_SCHEDULER_POLICY_COST_H

#include "scheduler/core/state.h"

uint64_t md_first_token_ns(const struct medusa_sched *s, uint32_t function, uint32_t batch);
/*
 * The start time of a batch of one on gpu, with artifacts where they are now and idle links; copies come from peer (or
 * NONE).
 */
uint64_t md_start_ns(const struct medusa_sched *s, uint32_t function, uint32_t gpu, uint32_t peer);
/* The time to bring one artifact to gpu from the nearest other place, as if it were not on gpu. */
uint64_t md_reload_ns(const struct medusa_sched *s, uint32_t artifact, uint32_t gpu);
/* requests per second of all functions that need it */
double md_artifact_rate(struct medusa_sched *s, uint32_t artifact);
/*
 * Of the GPUs that are linked to gpu, the one that holds most of the weights that function lacks there (of equals, the
 * one with the fastest link); or NONE.
 */
uint32_t md_best_peer(const struct medusa_sched *s, uint32_t function, uint32_t gpu);
bool md_all_there(const struct medusa_sched *s, uint32_t function, uint32_t gpu); /* on the GPU, or being loaded */
bool md_has_copy(const struct medusa_sched *s, uint32_t function);                /* some GPU has its weights */
uint64_t md_missing_bytes(const struct medusa_sched *s, uint32_t function, uint32_t gpu);
/* When its first token must come, so that its SLO and its deadline are met. UINT64_MAX: they do not bound it. */
uint64_t md_deadline(const struct medusa_sched *s, uint32_t request);

#endif
