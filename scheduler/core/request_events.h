/* SPDX-License-Identifier: Apache-2.0 */
/* Events of requests. An event of a request that is unknown or not running does nothing. */
#ifndef MD_SCHEDULER_CORE_REQUEST_EVENTS_H
#define MD_SCHEDULER_CORE_REQUEST_EVENTS_H

#include "scheduler/core/state.h"

/* Returns a result code; the request then waits, or is rejected by an action. */
int md_request_arrives(struct medusa_sched *s, const struct medusa_sched_event *e);
void md_request_cancelled(struct medusa_sched *s, const struct medusa_sched_event *e);
void md_request_first_token(struct medusa_sched *s, const struct medusa_sched_event *e);
int md_request_kv_changed(struct medusa_sched *s, const struct medusa_sched_event *e);
void md_request_done(struct medusa_sched *s, const struct medusa_sched_event *e);
/* Called when GPUs may use less memory than before: rejects what no longer fits on any of them. */
void md_requests_refuse_too_large(struct medusa_sched *s);

#endif
