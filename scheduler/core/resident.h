/* SPDX-License-Identifier: Apache-2.0 */
/* Books that begin with what is there already: for a node loop that was restarted while its engines went on. */
#ifndef MD_SCHEDULER_CORE_RESIDENT_H
#define MD_SCHEDULER_CORE_RESIDENT_H

#include "scheduler/core/state.h"

/* The artifact that an event names by artifact, function or backbone, which can be on its GPU. These return a result code. */
int md_find_artifact(struct medusa_sched *s, const struct medusa_sched_event *e, uint32_t *artifact);
int md_resident(struct medusa_sched *s, const struct medusa_sched_event *e);
int md_already_running(struct medusa_sched *s, const struct medusa_sched_event *e);

#endif
