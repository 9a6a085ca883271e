/* SPDX-License-Identifier: Apache-2.0 */
/* Requests, and the lists in which they wait or run. */
#ifndef MD_SCHEDULER_CORE_REQUEST_H
#define MD_SCHEDULER_CORE_REQUEST_H

#include "scheduler/core/state.h"

void md_list_append(struct medusa_sched *s, struct md_list *list, uint32_t request);
bool md_goes_before(const struct md_request *a, const struct md_request *b); /* by priority, then by arrival */
/* In that order. */
void md_list_insert(struct medusa_sched *s, struct md_list *list, uint32_t request);
/* Both are in the list. */
void md_list_move_before(struct medusa_sched *s, struct md_list *list, uint32_t request, uint32_t before);
void md_list_remove(struct medusa_sched *s, struct md_list *list, uint32_t request);

uint32_t md_request_create(struct medusa_sched *s, uint64_t id, uint32_t function);
void md_request_wait(struct medusa_sched *s, uint32_t request);
/* A request that waits already, but was held back, comes into its function's queue. */
void md_request_queue(struct medusa_sched *s, uint32_t request);
void md_request_unqueue(struct medusa_sched *s, uint32_t request); /* the reverse: it goes on waiting */
void md_request_unwait(struct medusa_sched *s, uint32_t request);  /* removes it from the lists of waiting requests */
/* rejects a waiting request */
void md_request_reject(struct medusa_sched *s, uint32_t request, enum medusa_sched_reason reason);
void md_request_raise(struct medusa_sched *s, uint32_t request); /* a waiting request gets the highest priority */
void md_request_end(struct medusa_sched *s, uint32_t request);
void md_request_free(struct medusa_sched *s, uint32_t request); /* of a stray, whose number may be in use elsewhere */
void md_request_count(struct medusa_sched *s, uint32_t request, bool met); /* counts it for the SLO */
void md_request_missed(struct medusa_sched *s, uint32_t request); /* counts it as missed, unless it is counted */
uint32_t md_waiting(const struct medusa_sched *s, uint32_t function);
/* The highest priority first; of equals, in time before late, then by arrival. NONE: none waits. */
uint32_t md_first_waiting(const struct medusa_sched *s, uint32_t function);
uint32_t md_sooner(const struct medusa_sched *s, uint32_t in_time, uint32_t late); /* which is served first */
bool md_is_late(const struct medusa_sched *s, uint32_t request); /* a waiting one that can no longer meet its SLO */
/* Puts those that are next first, as far as that depends on the time: by tenant, or else in time before late. */
void md_sort_waiting(struct medusa_sched *s, uint32_t function);

#endif
