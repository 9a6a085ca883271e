/* SPDX-License-Identifier: Apache-2.0 */
/* What preloading still has to send for. */
#ifndef MD_SCHEDULER_POLICY_PRELOADING_H
#define MD_SCHEDULER_POLICY_PRELOADING_H

#include "scheduler/core/state.h"

void md_preload_next(struct medusa_sched *s); /* sends for what the plan has next, where nothing is in its way */

#endif
