/* SPDX-License-Identifier: Apache-2.0 */
/* Policies by name. */
#include <string.h>

#include "scheduler/core/registry.h"
#include "scheduler/core/state.h"
#include "scheduler/policy/policies.h"

#define MOST 8 /* policies of one kind */

struct described {
	struct medusa_sched_policy policies[MOST];
	size_t count;
};

/* Every ops struct begins with name and summary. */
struct named {
	const char *name, *summary;
};

static const void *const *tables(enum medusa_sched_kind kind)
{
	switch (kind) {
	case MEDUSA_SCHED_KIND_QUEUEING:
		return (const void *const *)md_queueings;
	case MEDUSA_SCHED_KIND_PLACEMENT:
		return (const void *const *)md_placements;
	case MEDUSA_SCHED_KIND_EVICTION:
		return (const void *const *)md_evictions;
	case MEDUSA_SCHED_KIND_BATCHING:
		return (const void *const *)md_batchings;
	case MEDUSA_SCHED_KIND_PRELOADING:
		return (const void *const *)md_preloadings;
	case MEDUSA_SCHED_KINDS:
		break;
	}
	return NULL;
}

MD_EXPORT const struct medusa_sched_policy *medusa_sched_policies(enum medusa_sched_kind kind, size_t *count)
{
	/* one per thread, so that threads share nothing */
	static _Thread_local struct described known[MEDUSA_SCHED_KINDS];
	size_t unasked;
	count = count ? count : &unasked;
	*count = 0;
	if ((unsigned)kind >= MEDUSA_SCHED_KINDS)
		return NULL;
	struct described *d = &known[kind];
	const void *const *table = tables(kind);
	for (d->count = 0; table[d->count] && d->count < MOST; d->count++) {
		const struct named *policy = table[d->count];
		d->policies[d->count] = (struct medusa_sched_policy){policy->name, policy->summary};
	}
	*count = d->count;
	return d->policies;
}

static int choose(struct medusa_sched *s, enum medusa_sched_kind kind, const char *kind_name, const char *name,
		  const void **chosen)
{
	const void *const *table = tables(kind);
	for (int i = 0; table[i]; i++) {
		if (!name || !strcmp(((const struct named *)table[i])->name, name)) {
			*chosen = table[i];
			return MEDUSA_SCHED_OK;
		}
	}
	return md_fail(s, MEDUSA_SCHED_ERR_NOT_FOUND, "no %s policy is called %.64s", kind_name, name);
}

int md_policies_choose(struct medusa_sched *s, const struct medusa_sched_options *o)
{
	const void *chosen[MEDUSA_SCHED_KINDS];
	const char *const kinds[] = {"queueing", "placement", "eviction", "batching", "preloading"};
	const char *const names[] = {o->queueing, o->placement, o->eviction, o->batching, o->preloading};
	for (int kind = 0; kind < MEDUSA_SCHED_KINDS; kind++) {
		int code = choose(s, (enum medusa_sched_kind)kind, kinds[kind], names[kind], &chosen[kind]);
		if (code)
			return code;
	}
	s->queueing = chosen[MEDUSA_SCHED_KIND_QUEUEING];
	s->placement = chosen[MEDUSA_SCHED_KIND_PLACEMENT];
	s->eviction = chosen[MEDUSA_SCHED_KIND_EVICTION];
	s->batching = chosen[MEDUSA_SCHED_KIND_BATCHING];
	s->preloading = chosen[MEDUSA_SCHED_KIND_PRELOADING];
	return MEDUSA_SCHED_OK;
}
