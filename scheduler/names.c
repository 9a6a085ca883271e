/* SPDX-License-Identifier: Apache-2.0 */
/* Words for actions and reasons. */
#include "medusa/scheduler.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT const char *medusa_sched_action_name(enum medusa_sched_action_type type)
{
	switch (type) {
	case MEDUSA_SCHED_RUN:
		return "run";
	case MEDUSA_SCHED_SWAP_IN:
		return "swap in";
	case MEDUSA_SCHED_PRELOAD:
		return "preload";
	case MEDUSA_SCHED_EVICT:
		return "evict";
	case MEDUSA_SCHED_OFFLOAD:
		return "offload";
	case MEDUSA_SCHED_REJECT:
		return "reject";
	case MEDUSA_SCHED_SET_TIMER:
		return "set timer";
	}
	return "unknown action";
}

EXPORT const char *medusa_sched_reason_name(enum medusa_sched_reason reason)
{
	switch (reason) {
	case MEDUSA_SCHED_NEVER_FITS:
		return "never fits";
	case MEDUSA_SCHED_QUEUE_FULL:
		return "queue full";
	case MEDUSA_SCHED_WAITED_TOO_LONG:
		return "waited too long";
	case MEDUSA_SCHED_UNREGISTERED:
		return "unregistered";
	case MEDUSA_SCHED_FAILED:
		return "failed";
	case MEDUSA_SCHED_CANCELLED:
		return "cancelled";
	case MEDUSA_SCHED_LOAD_FAILED:
		return "load failed";
	}
	return "unknown reason";
}
