/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that fit nowhere at the moment. They are tried again 5 ms later if anything happens, and else after twice as long
 * each time, up to 1 s: by time alone nothing changes but the process's own memory, and what a policy lets go for its age.
 */
#ifndef MD_SCHEDULER_CORE_STUCK_H
#define MD_SCHEDULER_CORE_STUCK_H

#include "scheduler/core/state.h"

/* Puts it among those that are held, until it is tried again. */
void md_stuck_put(struct medusa_sched *s, uint32_t function);
/* Something has happened: all are tried again soon, at `from` or later. */
void md_stuck_stir(struct medusa_sched *s, uint64_t from);

#endif
