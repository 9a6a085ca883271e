/* SPDX-License-Identifier: Apache-2.0 */
/* Offloading: the copies on a GPU as the knapsack knows them, and the knapsack's choice as a list of artifacts. */
#include "scheduler/policy/offloading.h"

#include <stdlib.h>

#include "scheduler/policy/policies.h"

struct contents {
	struct md_knapsack_resident *residents;
	uint32_t *artifacts; /* by resident */
	uint32_t *numbers;   /* artifact -> resident, or NONE */
	bool *gone;
	uint32_t count;
};

static void contents_finish(struct contents *contents)
{
	free(contents->residents);
	free(contents->artifacts);
	free(contents->numbers);
	free(contents->gone);
}

static uint32_t copies_on(const struct medusa_sched *s, uint32_t gpu)
{
	uint32_t count = 0;
	for (uint32_t a = s->gpus[gpu].oldest; a != NONE; a = md_copy_at(s, a, gpu)->newer)
		count += md_copy_at(s, a, gpu)->state == MD_THERE;
	return count;
}

static bool contents_init(const struct medusa_sched *s, uint32_t gpu, struct contents *contents)
{
	size_t room = (size_t)copies_on(s, gpu) + 1;
	*contents = (struct contents){
	    .residents = calloc(room, sizeof(*contents->residents)),
	    .artifacts = calloc(room, sizeof(*contents->artifacts)),
	    .numbers = calloc((size_t)s->artifact_count + 1, sizeof(*contents->numbers)),
	    .gone = calloc(room, sizeof(*contents->gone)),
	};
	return contents->residents && contents->artifacts && contents->numbers && contents->gone;
}

/* A second copy of a backbone that another GPU serves, for a policy that spares backbones otherwise. */
static bool standby(const struct medusa_sched *s, uint32_t artifact)
{
	return s->eviction->spares_backbones && s->artifacts[artifact].kind == MEDUSA_SCHED_CLASS_BACKBONE &&
	       s->artifacts[artifact].copies > 1;
}

static bool kept(const struct medusa_sched *s, uint32_t artifact, uint32_t keeper)
{
	for (int kind = 0; keeper != NONE && kind < MD_FUNCTION_ARTIFACTS; kind++) {
		if (s->functions[keeper].artifacts[kind] == artifact)
			return true;
	}
	return false;
}

static uint64_t bytes_of(const struct medusa_sched *s, uint32_t artifact)
{
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	return a->bytes - (a->kind == MEDUSA_SCHED_CLASS_CONTEXT ? s->functions[a->owner].spec.residue_bytes : 0);
}

static void list_residents(struct medusa_sched *s, uint32_t gpu, uint32_t keeper, bool backbones,
			   struct contents *contents)
{
	contents->count = 0;
	for (uint32_t a = 0; a < s->artifact_count; a++)
		contents->numbers[a] = NONE;
	for (uint32_t a = s->gpus[gpu].oldest; a != NONE; a = md_copy_at(s, a, gpu)->newer) {
		const struct md_copy *copy = md_copy_at(s, a, gpu);
		bool backbone = s->artifacts[a].kind == MEDUSA_SCHED_CLASS_BACKBONE;
		if (copy->state != MD_THERE || (backbone && !backbones && !standby(s, a)))
			continue;
		contents->numbers[a] = contents->count;
		contents->artifacts[contents->count] = a;
		contents->residents[contents->count++] = (struct md_knapsack_resident){
		    .bytes = bytes_of(s, a),
		    .value = standby(s, a) ? 0 : s->eviction->value(s, a, gpu),
		    .needs = MD_KNAPSACK_NONE,
		    .pinned = copy->pins || kept(s, a, keeper),
		};
	}
}

/* A context needs its function's weights, and weights, or a context without any, need the backbone. */
static void link_residents(const struct medusa_sched *s, struct contents *contents)
{
	for (uint32_t i = 0; i < contents->count; i++) {
		const struct md_sched_artifact *a = &s->artifacts[contents->artifacts[i]];
		for (int kind = (int)a->kind - 1; kind >= MEDUSA_SCHED_CLASS_BACKBONE; kind--) {
			uint32_t needed = s->functions[a->owner].artifacts[kind];
			if (needed == NONE || contents->numbers[needed] == NONE)
				continue;
			contents->residents[i].needs = contents->numbers[needed];
			break;
		}
	}
}

/* Contexts leave before their weights, and weights before their backbones. */
static uint32_t *list_gone(const struct medusa_sched *s, const struct contents *contents, uint32_t *count)
{
	uint32_t *list = malloc(((size_t)contents->count + 1) * sizeof(*list));
	*count = 0;
	for (int kind = MEDUSA_SCHED_CLASS_CONTEXT; list && kind >= MEDUSA_SCHED_CLASS_BACKBONE; kind--) {
		for (uint32_t i = 0; i < contents->count; i++) {
			if (contents->gone[i] && s->artifacts[contents->artifacts[i]].kind == kind)
				list[(*count)++] = contents->artifacts[i];
		}
	}
	return list;
}

uint32_t *md_offload_choose(struct medusa_sched *s, uint32_t gpu, uint64_t bytes, uint32_t keeper, uint32_t *count)
{
	struct contents contents;
	struct md_knapsack_loss loss = {0};
	uint32_t *list = NULL;
	if (!s->eviction->solve)
		return NULL;
	if (contents_init(s, gpu, &contents)) {
		enum md_status status = MD_OK;
		for (int all = !s->eviction->spares_backbones; all < 2 && status == MD_OK && !loss.enough; all++) {
			list_residents(s, gpu, keeper, all, &contents);
			link_residents(s, &contents);
			status = s->eviction->solve(contents.residents, contents.count, bytes, contents.gone, &loss);
		}
		list = status == MD_OK ? list_gone(s, &contents, count) : NULL;
	}
	contents_finish(&contents);
	return list;
}
