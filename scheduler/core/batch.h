/* SPDX-License-Identifier: Apache-2.0 */
/* Batches: requests that run together on a GPU. */
#ifndef MD_SCHEDULER_CORE_BATCH_H
#define MD_SCHEDULER_CORE_BATCH_H

#include "scheduler/core/state.h"

uint32_t md_batch_create(struct medusa_sched *s, uint32_t function, uint32_t gpu); /* NONE: out of memory */
/* The live batch of this number, or NONE; *never: no action has ever named it. */
uint32_t md_batch_find(const struct medusa_sched *s, uint64_t id, bool *never);
/* How many of `most` waiting requests have room for their KV caches in `room` bytes, and what these take. */
uint32_t md_count_that_fit(const struct medusa_sched *s, uint32_t function, uint32_t most, int64_t room,
			   uint64_t *kv_bytes);
/* Moves up to count waiting requests into the batch, those in time before late ones; their KV memory must be free. */
void md_batch_take(struct medusa_sched *s, uint32_t batch, uint32_t count);
/* A request that is in no list runs in the batch from now on; its first token is expected in start_ns (0: it has one). */
void md_batch_add(struct medusa_sched *s, uint32_t batch, uint32_t request, uint64_t start_ns);
/* The running request leaves its batch, and its KV memory is free. */
void md_batch_leave(struct medusa_sched *s, uint32_t request);
/* The KV memory of a running request changes. */
void md_batch_grow(struct medusa_sched *s, uint32_t request, uint64_t kv_bytes);
/* While KV caches have outgrown the GPU, aborts the youngest requests that can be aborted, until the others fit. */
void md_batches_shrink(struct medusa_sched *s, uint32_t gpu);
void md_batch_end(struct medusa_sched *s, uint32_t batch);
/* Whose fault a failure is: a request may be tried again for the node's, even if the caller wants no retries. */
enum md_blame { MD_BLAME_BATCH, MD_BLAME_NODE };
/* To be called when a request has left: the batch ends with its last one, and hangs if it has only strays. */
void md_batch_settle(struct medusa_sched *s, uint32_t batch);
/* A request that is in no list waits again, or is rejected for this reason. */
void md_give_back(struct medusa_sched *s, uint32_t request, enum medusa_sched_reason reason, enum md_blame blame);
/* Ends the batch; its requests wait again, or are rejected for this reason. */
void md_batch_fail(struct medusa_sched *s, uint32_t batch, enum medusa_sched_reason reason, enum md_blame blame);

#endif
