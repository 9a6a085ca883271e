/* SPDX-License-Identifier: Apache-2.0 */
/* Requests, their queues, and batches. */
#ifndef MD_SCHEDULER_CORE_REQUEST_H
#define MD_SCHEDULER_CORE_REQUEST_H

#include "scheduler/core/state.h"

uint32_t md_request_create(struct medusa_sched *s, uint64_t id, uint32_t function);
void md_request_wait(struct medusa_sched *s, uint32_t request);
void md_request_reject(struct medusa_sched *s, uint32_t request, enum medusa_sched_reason reason); /* one that waits */
void md_request_end(struct medusa_sched *s, uint32_t request);
void md_request_count(struct medusa_sched *s, uint32_t request, bool met); /* for the SLO */
uint32_t md_waiting(const struct medusa_sched *s, uint32_t function);
uint32_t md_first_waiting(const struct medusa_sched *s, uint32_t function); /* in time before late; NONE: none */
void md_sort_late(struct medusa_sched *s, uint32_t function);
uint32_t md_batch_create(struct medusa_sched *s, uint32_t function, uint32_t gpu);
/* Moves up to count waiting requests into the batch, in time before late; their KV memory must be free. */
void md_batch_take(struct medusa_sched *s, uint32_t batch, uint32_t count);
void md_batch_end(struct medusa_sched *s, uint32_t batch);
void md_batch_fail(struct medusa_sched *s, uint32_t batch, enum medusa_sched_reason reason);
uint32_t md_batch_find(const struct medusa_sched *s, uint64_t id, bool *never);

#endif
