/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out the preloading plan. */
#ifndef MD_SCHEDULER_POLICY_PRELOADING_H
#define MD_SCHEDULER_POLICY_PRELOADING_H

#include "scheduler/core/state.h"

/* sends for the next artifacts of the plan, where nothing is in their way */
void md_preload_next(struct medusa_sched *s);

#endif
