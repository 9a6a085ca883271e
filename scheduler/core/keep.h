/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that stay on GPUs while they are idle, and are brought there ahead of requests: min_replicas and pinned. */
#ifndef MD_SCHEDULER_KEEP_H
#define MD_SCHEDULER_KEEP_H

#include "scheduler/core/state.h"

/* Makes room for what is kept of the function. False: out of memory. */
bool md_keep_reserve(struct medusa_sched *s, uint32_t function);
void md_keep_changed(struct medusa_sched *s, uint32_t function); /* fewer replicas may be kept than before, or none */
/* On this GPU nothing is kept any more that uses the artifact (NONE: any) and is of the function (NONE: any). */
void md_keep_drop(struct medusa_sched *s, uint32_t gpu, uint32_t artifact, uint32_t function);
/* Keeps what is there whole, before anything else can have its memory. */
void md_keep_whole(struct medusa_sched *s);
void md_keep_next(struct medusa_sched *s); /* sends for what lacks; what is on its way is kept, too */
/* While a scheduler is told what a node holds that goes on: what lacks may be there already, and nothing is sent for at once. */
void md_keep_told(struct medusa_sched *s);
void md_keep_failed(struct medusa_sched *s);       /* a copy has failed: no other one is sent for at once */
uint64_t md_keep_at(const struct medusa_sched *s); /* when the next one may be; UINT64_MAX: nothing waits for that */
/* Bytes on the GPU that are kept for others than the function: no request of it can have them. */
uint64_t md_keep_beside(const struct medusa_sched *s, uint32_t function, uint32_t gpu);

#endif
