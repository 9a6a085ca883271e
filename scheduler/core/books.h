/* SPDX-License-Identifier: Apache-2.0 */
/* Accounts for memory: what is free, who holds what, and in which order copies were last used. */
#ifndef MD_SCHEDULER_CORE_BOOKS_H
#define MD_SCHEDULER_CORE_BOOKS_H

#include "scheduler/core/state.h"

/* < 0: other processes use memory that the books count as ours */
static inline int64_t md_free_bytes(const struct medusa_sched *s, uint32_t gpu)
{
	const struct md_gpu *g = &s->gpus[gpu];
	return (int64_t)g->limit - (int64_t)(g->artifacts + g->residues + g->kv + g->foreign) + (int64_t)g->shared;
}

/* What is free once those have left that are on their way out. */
static inline int64_t md_soon_free_bytes(const struct medusa_sched *s, uint32_t gpu)
{
	const struct md_gpu *g = &s->gpus[gpu];
	return md_free_bytes(s, gpu) + (int64_t)g->leaving - (int64_t)(g->shared - g->shared_soon);
}

/* What becomes free at least if all leaves that is idle: of what sharers have in common, less than each of them counts. */
static inline int64_t md_idle_bytes(const struct medusa_sched *s, uint32_t gpu)
{
	const struct md_gpu *g = &s->gpus[gpu];
	return (int64_t)(g->artifacts - g->held + g->residues) - (int64_t)(g->shared - g->shared_busy);
}

void md_copy_enter(struct medusa_sched *s, uint32_t artifact, uint32_t gpu); /* enters the list of its GPU */
void md_copy_leave(struct medusa_sched *s, uint32_t artifact, uint32_t gpu);
void md_pin(struct medusa_sched *s, uint32_t function, uint32_t gpu);
void md_unpin(struct medusa_sched *s, uint32_t function, uint32_t gpu);
/* Code that changes a copy's state or pins calls md_held before the change and md_held_changed after it. */
bool md_held(const struct md_copy *copy);
void md_held_changed(struct medusa_sched *s, uint32_t artifact, uint32_t gpu, bool was);
void md_host_enter(struct medusa_sched *s, uint32_t artifact);
void md_host_leave(struct medusa_sched *s, uint32_t artifact);

#endif
