/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Company: with which functions a function may be loaded. The others leave before, from all GPUs; it waits for those that are
 * in use, and they for it, after a time.
 */
#ifndef MD_SCHEDULER_CORE_COMPANY_H
#define MD_SCHEDULER_CORE_COMPANY_H

#include "scheduler/core/state.h"

/* Whether any function has such a rule: without, nothing below is asked. */
static inline bool md_company_ruled(const struct medusa_sched *s)
{
	return s->company.rules > 0;
}

/*
 * Whether the function must wait for others before it runs: for those that must leave before it is loaded, of which the idle
 * ones are evicted here; or for one that has waited for this function to leave. It is tried again at each dispatch.
 */
bool md_company_waits(struct medusa_sched *s, uint32_t function);
/* Likewise, for a function that is to be loaded ahead of requests: it waits for nothing, and nobody for it. */
bool md_company_clears(struct medusa_sched *s, uint32_t function);
/* Whether nothing that would have to leave before is there, if something of the function is to be loaded on the GPU. */
bool md_company_fits(const struct medusa_sched *s, uint32_t function, uint32_t gpu);
/* Whether requests of the function, which is there, leave the turn to a function that waits for it to leave. */
bool md_company_yields(const struct medusa_sched *s, uint32_t function);
void md_company_left(struct medusa_sched *s, uint32_t function); /* it runs, or has no requests: it waits no more */
void md_company_again(struct medusa_sched *s);                   /* those that wait may be tried again */
void md_company_drop(struct medusa_sched *s, uint32_t function); /* it is unregistered */
bool md_company_reserve(struct medusa_sched *s, uint32_t functions);
void md_company_destroy(struct medusa_sched *s);

#endif
