/* SPDX-License-Identifier: Apache-2.0 */
/* Words for the values of scheduler.h's enums, for logs. */
#include "base/export.h"
#include "medusa/scheduler.h"

MD_EXPORT const char *medusa_sched_action_name(enum medusa_sched_action_type type)
{
	switch (type) {
	case MEDUSA_SCHED_ACTION_RUN:
		return "run";
	case MEDUSA_SCHED_ACTION_SWAP_IN:
		return "swap in";
	case MEDUSA_SCHED_ACTION_PRELOAD:
		return "preload";
	case MEDUSA_SCHED_ACTION_EVICT:
		return "evict";
	case MEDUSA_SCHED_ACTION_OFFLOAD:
		return "offload";
	case MEDUSA_SCHED_ACTION_REJECT:
		return "reject";
	case MEDUSA_SCHED_ACTION_SET_TIMER:
		return "set timer";
	case MEDUSA_SCHED_ACTION_ABORT:
		return "abort";
	case MEDUSA_SCHED_ACTION_JOIN:
		return "join";
	}
	return "unknown action";
}

MD_EXPORT const char *medusa_sched_reason_name(enum medusa_sched_reason reason)
{
	switch (reason) {
	case MEDUSA_SCHED_REASON_NEVER_FITS:
		return "never fits";
	case MEDUSA_SCHED_REASON_QUEUE_FULL:
		return "queue full";
	case MEDUSA_SCHED_REASON_WAITED_TOO_LONG:
		return "waited too long";
	case MEDUSA_SCHED_REASON_UNREGISTERED:
		return "unregistered";
	case MEDUSA_SCHED_REASON_FAILED:
		return "failed";
	case MEDUSA_SCHED_REASON_CANCELLED:
		return "cancelled";
	case MEDUSA_SCHED_REASON_LOAD_FAILED:
		return "load failed";
	case MEDUSA_SCHED_REASON_DEADLINE:
		return "deadline";
	case MEDUSA_SCHED_REASON_TIMED_OUT:
		return "timed out";
	case MEDUSA_SCHED_REASON_NO_ROOM:
		return "no room";
	case MEDUSA_SCHED_REASON_QUOTA:
		return "quota";
	}
	return "unknown reason";
}

MD_EXPORT const char *medusa_sched_class_name(enum medusa_sched_class artifact)
{
	switch (artifact) {
	case MEDUSA_SCHED_CLASS_BACKBONE:
		return "backbone";
	case MEDUSA_SCHED_CLASS_WEIGHTS:
		return "weights";
	case MEDUSA_SCHED_CLASS_CONTEXT:
		return "context";
	case MEDUSA_SCHED_CLASS_LIBRARY:
		return "library";
	}
	return "unknown class";
}

MD_EXPORT const char *medusa_sched_source_name(enum medusa_sched_source source)
{
	switch (source) {
	case MEDUSA_SCHED_SOURCE_HOST:
		return "from host";
	case MEDUSA_SCHED_SOURCE_PEER:
		return "from peer";
	case MEDUSA_SCHED_SOURCE_COLD:
		return "from cold";
	case MEDUSA_SCHED_SOURCE_MADE:
		return "made";
	}
	return "unknown source";
}

MD_EXPORT const char *medusa_sched_event_name(enum medusa_sched_event_type type)
{
	switch (type) {
	case MEDUSA_SCHED_EVENT_ARRIVAL:
		return "arrival";
	case MEDUSA_SCHED_EVENT_CANCEL:
		return "cancel";
	case MEDUSA_SCHED_EVENT_STARTED:
		return "started";
	case MEDUSA_SCHED_EVENT_FIRST_TOKEN:
		return "first token";
	case MEDUSA_SCHED_EVENT_DONE:
		return "done";
	case MEDUSA_SCHED_EVENT_BATCH_FAILED:
		return "batch failed";
	case MEDUSA_SCHED_EVENT_TRANSFER_DONE:
		return "transfer done";
	case MEDUSA_SCHED_EVENT_TRANSFER_FAILED:
		return "transfer failed";
	case MEDUSA_SCHED_EVENT_EVICTED:
		return "evicted";
	case MEDUSA_SCHED_EVENT_MEMORY_REPORT:
		return "memory report";
	case MEDUSA_SCHED_EVENT_MEMORY_LIMIT:
		return "memory limit";
	case MEDUSA_SCHED_EVENT_GPU_LOST:
		return "GPU lost";
	case MEDUSA_SCHED_EVENT_GPU_BACK:
		return "GPU back";
	case MEDUSA_SCHED_EVENT_BACKBONE_FAILED:
		return "backbone failed";
	case MEDUSA_SCHED_EVENT_FUNCTION_GONE:
		return "function gone";
	case MEDUSA_SCHED_EVENT_TIMER:
		return "timer";
	case MEDUSA_SCHED_EVENT_FUNCTION_FAILED:
		return "function failed";
	case MEDUSA_SCHED_EVENT_KV_CHANGED:
		return "KV changed";
	case MEDUSA_SCHED_EVENT_GPU_DRAIN:
		return "GPU drain";
	case MEDUSA_SCHED_EVENT_RESIDENT:
		return "resident";
	case MEDUSA_SCHED_EVENT_RUNNING:
		return "running";
	case MEDUSA_SCHED_EVENT_SHARED:
		return "shared";
	}
	return "unknown event";
}

MD_EXPORT const char *medusa_sched_goal_name(enum medusa_sched_goal goal)
{
	switch (goal) {
	case MEDUSA_SCHED_GOAL_COMPLETION:
		return "completion";
	case MEDUSA_SCHED_GOAL_FIRST_TOKEN:
		return "first token";
	}
	return "unknown goal";
}

MD_EXPORT const char *medusa_sched_kind_name(enum medusa_sched_kind kind)
{
	switch (kind) {
	case MEDUSA_SCHED_KIND_QUEUEING:
		return "queueing";
	case MEDUSA_SCHED_KIND_PLACEMENT:
		return "placement";
	case MEDUSA_SCHED_KIND_EVICTION:
		return "eviction";
	case MEDUSA_SCHED_KIND_BATCHING:
		return "batching";
	case MEDUSA_SCHED_KIND_PRELOADING:
		return "preloading";
	case MEDUSA_SCHED_KINDS:
		break;
	}
	return "unknown kind";
}

MD_EXPORT const char *medusa_sched_latency_name(enum medusa_sched_latency latency)
{
	switch (latency) {
	case MEDUSA_SCHED_LATENCY_WAITING:
		return "waiting";
	case MEDUSA_SCHED_LATENCY_FIRST_TOKEN:
		return "first token";
	case MEDUSA_SCHED_LATENCY_COMPLETION:
		return "completion";
	}
	return "unknown latency";
}

MD_EXPORT const char *medusa_sched_result_name(enum medusa_sched_result result)
{
	switch (result) {
	case MEDUSA_SCHED_OK:
		return "ok";
	case MEDUSA_SCHED_ERR_INVALID:
		return "invalid argument";
	case MEDUSA_SCHED_ERR_NO_MEMORY:
		return "out of memory";
	case MEDUSA_SCHED_ERR_NOT_FOUND:
		return "not found";
	}
	return "unknown result";
}
