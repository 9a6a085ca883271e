/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants: whose turn it is, what each has had of the GPUs' time, and what its limits hold back. */
#ifndef MD_SCHEDULER_CORE_TENANT_H
#define MD_SCHEDULER_CORE_TENANT_H

#include "scheduler/core/state.h"

/* Whether there are others than the default tenant. If not, turns are all equal, and nothing is held back. */
static inline bool md_has_tenants(const struct medusa_sched *s)
{
	return s->tenant_count > 1;
}

bool md_tenants_create(struct medusa_sched *s); /* the default tenant; false: out of memory */
/* Of the function's first request: the least goes first. */
double md_tenant_turn(const struct medusa_sched *s, uint32_t function);
uint32_t md_first_tenant(const struct medusa_sched *s,
			 uint32_t function); /* of its first request, which there must be */
/* Puts the waiting requests that are next in front, one of the tenant whose turn it is first. */
void md_tenants_arrange(struct medusa_sched *s, uint32_t function);
/* A request begins to wait. True: its tenant has as many in queues and batches as may run, and it is held back. */
bool md_tenant_waits(struct medusa_sched *s, uint32_t request);
/* A request no longer waits; true: it was held back. */
bool md_tenant_unwaits(struct medusa_sched *s, uint32_t request);
/* The tenant's limit has become lower, or more run than it let start: the youngest requests beyond it leave their queues. */
void md_tenant_hold_back(struct medusa_sched *s, uint32_t tenant);
/* Requests that were held back go to their function's queue, as far as limits allow. */
void md_tenants_release(struct medusa_sched *s);
/* To be called before the number of a batch's requests changes: divides the time since the last change among them. */
void md_tenant_divide(struct medusa_sched *s, uint32_t batch);
void md_tenant_runs(struct medusa_sched *s, uint32_t request);  /* it came into its batch */
void md_tenant_stops(struct medusa_sched *s, uint32_t request); /* it leaves its batch: its share is known now */
/* The last `count` requests of the batch begin together: what they will take is charged to their tenants ahead. */
void md_tenants_charge(struct medusa_sched *s, uint32_t batch, uint32_t count);

#endif
