/* SPDX-License-Identifier: Apache-2.0 */
/* Which function runs next, and where. */
#ifndef MD_SCHEDULER_CORE_DISPATCH_H
#define MD_SCHEDULER_CORE_DISPATCH_H

#include "scheduler/core/state.h"

#define MD_LONG_WAIT                                                                                                   \
	5000000000ull     /* ns: who has waited longer gets a turn now and then, whatever the policy says ... */
#define MD_OLDEST_TURN 16 /* ... every so many starts */

/* puts it where it belongs among those that may run */
void md_function_changed(struct medusa_sched *s, uint32_t function);
/* Puts it among functions that may run: by its first request's priority, then as the queueing policy says. */
void md_function_ready(struct medusa_sched *s, uint32_t function);
/* The function stands nowhere, until md_function_changed or md_claim_put. */
void md_function_step_aside(struct medusa_sched *s, uint32_t function);
void md_dispatch(struct medusa_sched *s);
/* Whether the GPU has, or may get, memory for it: for its first request, if one waits. */
bool md_has_place(const struct medusa_sched *s, uint32_t function, uint32_t gpu);
static inline bool md_slot_free(const struct medusa_sched *s, uint32_t gpu)
{
	return md_gpu_open(s, gpu) && s->gpus[gpu].running < s->gpus[gpu].slots;
}

/* Whether its library is in host memory, on its way there, or has room there: idle ones are evicted for it. */
bool md_library_ready(struct medusa_sched *s, uint32_t function);
/*
 * Sends for all that the function lacks on the GPU, from the peer if it has that; ahead of requests, or for a run. False:
 * out of memory, or its library has no room in host memory.
 */
bool md_send_missing(struct medusa_sched *s, uint32_t function, uint32_t gpu, uint32_t peer, bool ahead);

#endif
