/* SPDX-License-Identifier: Apache-2.0 */
/* Events of requests. Those of a request that is not known, or not running, do nothing. */
#ifndef MD_SCHEDULER_CORE_REQUEST_EVENTS_H
#define MD_SCHEDULER_CORE_REQUEST_EVENTS_H

#include "scheduler/core/state.h"

/* A result code: the request waits, or is rejected by an action. */
int md_request_arrives(struct medusa_sched *s, const struct medusa_sched_event *e);
void md_request_cancelled(struct medusa_sched *s, const struct medusa_sched_event *e);
void md_request_first_token(struct medusa_sched *s, const struct medusa_sched_event *e);
void md_request_done(struct medusa_sched *s, const struct medusa_sched_event *e);
/* GPUs may use less memory than before: rejects what fits on none of them any more. */
void md_requests_refuse_too_large(struct medusa_sched *s);

#endif
