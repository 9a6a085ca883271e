/* SPDX-License-Identifier: Apache-2.0 */
/* Holds functions that fit nowhere at the moment, and tries them again: soon when something has happened, ever more rarely else. */
#include "scheduler/core/stuck.h"

#define RETRY 5000000u         /* ns until it is tried again, if something happens ... */
#define PATIENCE 1000000000ull /* ... and at the latest */

void md_stuck_put(struct medusa_sched *s, uint32_t function)
{
	struct md_function *f = &s->functions[function];
	bool still = f->stuck_ns && f->stuck_stirs == s->stuck.stirs;
	uint64_t ns = still ? f->stuck_ns * 2 : RETRY;
	f->stuck_ns = ns < PATIENCE ? ns : PATIENCE;
	f->stuck_stirs = s->stuck.stirs;
	f->stuck_at = s->now;
	f->stuck = true;
	s->stuck.patient |= still;
	md_priority_put(&s->holding, function, (struct md_key){0, s->now + f->stuck_ns});
}

/* When it would be tried next, if it were tried each 5 ms. */
static uint64_t next_try(const struct md_function *f, uint64_t from)
{
	uint64_t tries = from > f->stuck_at ? (from - f->stuck_at + RETRY - 1) / RETRY : 0;
	return f->stuck_at + (tries ? tries : 1) * RETRY;
}

void md_stuck_stir(struct medusa_sched *s, uint64_t from)
{
	uint32_t count = 0;
	s->stuck.stirs++;
	if (!s->stuck.patient)
		return;
	s->stuck.patient = false;
	for (uint32_t i = 0; i < s->holding.count; i++)
		if (s->functions[s->holding.items[i].index].stuck)
			s->blocked[count++] = s->holding.items[i].index;
	while (count > 0) {
		uint32_t function = s->blocked[--count];
		uint64_t at = next_try(&s->functions[function], from);
		md_priority_put(&s->holding, function, (struct md_key){0, at});
	}
}
