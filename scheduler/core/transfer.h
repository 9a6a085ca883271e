/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of artifacts on their way in and out. */
#ifndef MD_SCHEDULER_CORE_TRANSFER_H
#define MD_SCHEDULER_CORE_TRANSFER_H

#include "scheduler/core/state.h"

/*
 * Sends for an artifact; room for its bytes must be free. gpu NONE: into host memory. False: out of memory, and nothing
 * has changed.
 */
bool md_send_for(struct medusa_sched *s, uint32_t artifact, uint32_t gpu, uint32_t peer, bool preload);
bool md_transfer_out(struct medusa_sched *s, uint32_t artifact, uint32_t gpu, uint64_t freed, bool offload,
		     bool at_once);
/* Fills the fields of an action that say of which artifact it is, and where. */
void md_transfer_describe(const struct medusa_sched *s, struct medusa_sched_action *action, uint32_t artifact,
			  uint32_t gpu);
void md_transfer_orphan(struct medusa_sched *s, uint32_t transfer); /* the GPU that it reads from is lost */
void md_transfer_done(struct medusa_sched *s, uint32_t transfer);
void md_transfer_drop(struct medusa_sched *s, uint32_t transfer); /* it will not arrive; its bytes leave the books */
uint32_t md_transfer_find(const struct medusa_sched *s, uint64_t id, bool *never);

#endif
