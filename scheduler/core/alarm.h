/* SPDX-License-Identifier: Apache-2.0 */
/* Times at which a request or a transfer needs attention: deadlines, ends that do not come, waits that raise priority. */
#ifndef MD_SCHEDULER_CORE_ALARM_H
#define MD_SCHEDULER_CORE_ALARM_H

#include "scheduler/core/state.h"

bool md_alarms_reserve(struct medusa_sched *s); /* for all requests and transfers; false: out of memory */
void md_alarm_request(struct medusa_sched *s, uint32_t request);   /* sets or removes its alarm, as its state demands */
void md_alarm_transfer(struct medusa_sched *s, uint32_t transfer); /* when it has begun */
void md_alarms_ring(struct medusa_sched *s);                       /* attends to all whose time has come */
uint64_t md_alarms_next(const struct medusa_sched *s);             /* UINT64_MAX: none */

/*
 * When the end of a running request is late: `start_ns` until its first token (0: that has come), and then its tokens,
 * both with a large margin, or the caller's option.
 */
uint64_t md_run_expires(const struct medusa_sched *s, uint32_t request, uint64_t start_ns);

#endif
