/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the GPUs that have a function, against its max_replicas. */
#include "scheduler/core/replicas.h"

#include "scheduler/core/backbone.h"

/* What leaves is there until it has left. What a dead process has left behind serves nobody. */
static bool is_here(const struct md_copy *copy)
{
	return copy->state != MD_ABSENT && copy->state != MD_SUSPENDED && !copy->failed;
}

bool md_replica_at(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	const struct md_function *f = &s->functions[function];
	for (int kind = MEDUSA_SCHED_CLASS_WEIGHTS; kind <= MEDUSA_SCHED_CLASS_CONTEXT; kind++)
		if (f->artifacts[kind] != NONE && is_here(md_copy_at(s, f->artifacts[kind], gpu)))
			return true;
	for (uint32_t b = f->first_batch; b != NONE; b = s->batches[b].own_older)
		if (s->batches[b].gpu == gpu)
			return true;
	return false;
}

bool md_replica_may(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	uint32_t most = s->functions[function].spec.max_replicas, others = 0;
	if (!md_backbone_may(s, s->functions[function].spec.backbone, gpu))
		return false;
	if (!most || most >= s->gpu_count || md_replica_at(s, function, gpu))
		return true;
	for (uint32_t other = 0; other < s->gpu_count && others < most; other++)
		others += md_gpu_open(s, other) && md_replica_at(s, function, other);
	return others < most;
}
