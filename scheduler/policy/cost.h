/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates that policies share, in ns. */
#ifndef MD_SCHEDULER_POLICY_COST_H
#define MD_SCHEDULER_POLICY_COST_H

#include "scheduler/core/state.h"

uint64_t md_first_token_ns(const struct medusa_sched *s, uint32_t function, uint32_t batch);
/* The start time of a batch of one on gpu, with artifacts where they are, copied from peer (or NONE); links idle. */
uint64_t md_start_ns(const struct medusa_sched *s, uint32_t function, uint32_t gpu, uint32_t peer);
/* The time to bring one artifact to gpu from the nearest other place, if it were not there. */
uint64_t md_reload_ns(const struct medusa_sched *s, uint32_t artifact, uint32_t gpu);
double md_artifact_rate(struct medusa_sched *s, uint32_t artifact); /* requests/s of all who need it */
/* The GPU with a link to gpu that holds most of the weights that function lacks there, the fastest such; or NONE. */
uint32_t md_best_peer(const struct medusa_sched *s, uint32_t function, uint32_t gpu);
bool md_all_there(const struct medusa_sched *s, uint32_t function, uint32_t gpu); /* or loading; on a GPU */
uint64_t md_missing_bytes(const struct medusa_sched *s, uint32_t function, uint32_t gpu);
uint64_t md_deadline(const struct medusa_sched *s, uint32_t request); /* UINT64_MAX: none */

#endif
