/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers, functions, tenants and policies for tests of the scheduler; `random_state` is the seed. */
#ifndef MD_TESTS_SCHEDULER_DRAWS_H
#define MD_TESTS_SCHEDULER_DRAWS_H

#include "medusa/scheduler.h"

#define SECOND 1000000000ull
#define GB 1000000000ull

static uint64_t random_state;

static inline uint64_t draw(uint64_t below)
{
	random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
	return (random_state >> 33) % below;
}

static inline const char *any_policy(enum medusa_sched_kind kind)
{
	size_t count;
	const struct medusa_sched_policy *policies = medusa_sched_policies(kind, &count);
	return policies[draw(count)].name;
}

static inline struct medusa_sched_tenant any_tenant(void)
{
	return (struct medusa_sched_tenant){sizeof(struct medusa_sched_tenant),
					    0.5 * (double)draw(8),
					    (uint32_t)draw(50),
					    (uint32_t)draw(9),
					    !draw(8),
					    !draw(16)};
}

/* Of one of the first three backbones, or of none. */
static inline struct medusa_sched_function any_function(void)
{
	struct medusa_sched_function f = {.size = sizeof(f),
					  .backbone = draw(2) ? (uint32_t)draw(3) : MEDUSA_SCHED_NONE,
					  .weight_bytes = 1 + draw(draw(2) ? GB : 30 * GB),
					  .context_bytes = draw(3) ? draw(2 * GB) : 0,
					  .library_bytes = draw(2) ? draw(2 * GB) : 0,
					  .kv_bytes = draw(GB),
					  .context_ns = draw(2 * SECOND),
					  .cold_ns = draw(5 * SECOND),
					  .evict_ns = draw(2) ? draw(SECOND) : 0,
					  .keep_alive_ns = draw(3) ? 0 : draw(20 * SECOND),
					  .in_host = draw(2) != 0,
					  .t0_ns = 1 + draw(100000000),
					  .alpha_ns = draw(10000000),
					  .max_batch = (uint32_t)draw(16),
					  .max_parallel = (uint32_t)draw(4),
					  .max_replicas = draw(2) ? (uint32_t)draw(3) : 0,
					  .min_replicas = draw(8) ? 0 : 1,
					  .pinned = draw(16) == 0,
					  .slo_ns = draw(4) ? 1 + draw(SECOND) : 0,
					  .slo_goal =
					      draw(2) ? MEDUSA_SCHED_GOAL_FIRST_TOKEN : MEDUSA_SCHED_GOAL_COMPLETION,
					  .abortable = draw(2) != 0,
					  .continuous = draw(3) == 0};
	f.residue_bytes = draw(2) ? f.context_bytes / 2 : 0;
	return f;
}

/* As those of an engine. */
static inline void any_limits(struct medusa_sched_backbone *b)
{
	b->load_ns = draw(2) ? draw(3 * SECOND) : 0;
	b->evict_ns = draw(2) ? draw(SECOND) : 0;
	b->max_replicas = draw(2) ? (uint32_t)draw(3) : 0;
	b->adapter_slots = draw(2) ? (uint32_t)draw(4) : 0;
	b->max_batch = draw(2) ? (uint32_t)draw(12) : 0;
	b->keep_alive_ns = draw(2) ? draw(20 * SECOND) : 0;
}

#endif
