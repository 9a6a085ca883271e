/* SPDX-License-Identifier: Apache-2.0 */
/* Whose requests wait and run, by the test's own account, and whether tenants' limits are kept. */
#ifndef MD_TESTS_SCHEDULER_QUOTAS_H
#define MD_TESTS_SCHEDULER_QUOTAS_H

#include "tests/scheduler_reality.h"

#define QUOTAS_TENANTS 8

struct quotas {
	uint32_t count; /* the default tenant, too */
	struct medusa_sched_tenant specs[QUOTAS_TENANTS];
	uint32_t live[QUOTAS_TENANTS]; /* requests that wait or run */
	uint8_t *of;                   /* by request */
	uint64_t told;                 /* it ran already: no limit holds it back */
};

static inline uint32_t quotas_running(const struct quotas *q, const struct reality *r, uint32_t tenant)
{
	uint32_t running = 0;
	for (size_t i = 0; i < r->running_count; i++)
		running += q->of[r->running[i].request] == tenant;
	return running;
}

static inline uint32_t quotas_waiting(const struct quotas *q, const struct reality *r, uint32_t tenant)
{
	return q->live[tenant] - quotas_running(q, r, tenant);
}

/* A request arrives: true if its tenant has as many waiting as may. */
static inline bool quotas_arrive(struct quotas *q, const struct reality *r, uint64_t request, uint32_t tenant)
{
	uint32_t most = q->specs[tenant].max_waiting;
	bool full = q->specs[tenant].takes_none || (most && quotas_waiting(q, r, tenant) >= most);
	q->of[request] = (uint8_t)tenant;
	q->live[tenant]++;
	return full;
}

/* Requests have been started, which `r` holds already. */
static inline void quotas_start(const struct quotas *q, const struct reality *r, const struct medusa_sched_action *a)
{
	for (uint32_t i = 0; i < a->request_count; i++) {
		uint32_t tenant = q->of[a->requests[i]], running = quotas_running(q, r, tenant);
		uint32_t most = q->specs[tenant].max_running;
		bool may = !q->specs[tenant].starts_none && (!most || running <= most);
		cr_assert(may || a->requests[i] == q->told, "request %llu starts, and %u of tenant %u run, of %u",
			  (unsigned long long)a->requests[i], running, tenant, most);
	}
}

static inline void quotas_end(struct quotas *q, uint64_t request)
{
	q->live[q->of[request]]--;
}

/* The scheduler counts as the test does. */
static inline void quotas_compare(const struct quotas *q, const struct reality *r, const struct medusa_sched *sched)
{
	for (uint32_t i = 0; i < q->count; i++) {
		struct medusa_sched_tenant_state state = {.size = sizeof(state)};
		cr_assert_eq(medusa_sched_tenant_get(sched, i, &state), 0);
		uint32_t waiting = quotas_waiting(q, r, i), running = quotas_running(q, r, i);
		cr_assert(state.waiting == waiting && state.running == running,
			  "tenant %u: %u wait and %u run, the scheduler says %u and %u", i, waiting, running,
			  state.waiting, state.running);
	}
}

#endif
