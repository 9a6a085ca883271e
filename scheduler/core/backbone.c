/* SPDX-License-Identifier: Apache-2.0 */
/* Backbones: registered and changed; their limits, and when one leaves that nobody uses. */
#include "scheduler/core/backbone.h"

#include <stdlib.h>

#include "base/array.h"
#include "scheduler/core/evict.h"
#include "scheduler/core/registry.h"
#include "scheduler/core/stuck.h"

/* ---- limits ------------------------------------------------------------------------------------------------------ */

static bool is_here(const struct medusa_sched *s, uint32_t backbone, uint32_t gpu)
{
	const struct md_copy *copy = md_copy_at(s, s->backbones[backbone].artifact, gpu);
	return copy->state != MD_ABSENT && !copy->failed;
}

bool md_backbone_may(const struct medusa_sched *s, uint32_t backbone, uint32_t gpu)
{
	uint32_t most = backbone == NONE ? 0 : s->backbones[backbone].spec.max_replicas, others = 0;
	if (!most || most >= s->gpu_count || is_here(s, backbone, gpu))
		return true;
	for (uint32_t other = 0; other < s->gpu_count && others < most; other++)
		others += md_gpu_open(s, other) && is_here(s, backbone, other);
	return others < most;
}

uint32_t md_backbone_room(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	uint32_t backbone = s->functions[function].spec.backbone;
	uint32_t most = backbone == NONE ? 0 : s->backbones[backbone].spec.max_batch;
	if (!most)
		return UINT32_MAX;
	uint32_t running = s->backbones[backbone].gpus[gpu].running;
	return running < most ? most - running : 0;
}

void md_backbone_runs(struct medusa_sched *s, uint32_t function, uint32_t gpu, int64_t more)
{
	uint32_t backbone = s->functions[function].spec.backbone;
	if (backbone != NONE)
		s->backbones[backbone].gpus[gpu].running += (uint32_t)more;
}

/* NULL: the artifact is no adapter. */
static struct md_backbone_gpu *adapters_of(struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	uint32_t backbone = a->kind == MEDUSA_SCHED_CLASS_WEIGHTS ? s->functions[a->owner].spec.backbone : NONE;
	return backbone == NONE ? NULL : &s->backbones[backbone].gpus[gpu];
}

void md_adapter_counted(struct medusa_sched *s, uint32_t artifact, uint32_t gpu, int by)
{
	struct md_backbone_gpu *counts = adapters_of(s, artifact, gpu);
	if (counts)
		counts->adapters += (uint32_t)by;
}

void md_adapter_leaves(struct medusa_sched *s, uint32_t artifact, uint32_t gpu, int by)
{
	struct md_backbone_gpu *counts = adapters_of(s, artifact, gpu);
	if (counts)
		counts->leaving += (uint32_t)by;
}

bool md_adapter_has_place(const struct medusa_sched *s, uint32_t function, uint32_t gpu, bool soon)
{
	const struct md_function *f = &s->functions[function];
	uint32_t weights = f->artifacts[MEDUSA_SCHED_CLASS_WEIGHTS], backbone = f->spec.backbone;
	uint32_t slots = backbone == NONE ? 0 : s->backbones[backbone].spec.adapter_slots;
	if (!slots || weights == NONE)
		return true;
	int state = md_copy_at(s, weights, gpu)->state;
	const struct md_backbone_gpu *counts = &s->backbones[backbone].gpus[gpu];
	return state == MD_THERE || state == MD_LOADING || counts->adapters - (soon ? counts->leaving : 0) < slots;
}

/* ---- one that nobody uses ---------------------------------------------------------------------------------------- */

void md_backbone_unused(struct medusa_sched *s, uint32_t backbone)
{
	if (backbone == NONE)
		return;
	for (uint32_t f = s->backbones[backbone].first_user; f != NONE; f = s->functions[f].next_user)
		if (!s->functions[f].gone || s->functions[f].first_batch != NONE)
			return;
	md_sweep_backbone(s, backbone, true);
}

void md_backbone_let_go(struct medusa_sched *s, uint32_t backbone)
{
	uint64_t wanted = backbone == NONE ? 0 : s->backbones[backbone].spec.keep_alive_ns;
	if (!wanted || s->backbones[backbone].waiting)
		return;
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++)
		if (s->now - md_copy_at(s, s->backbones[backbone].artifact, gpu)->used < wanted)
			return;
	md_sweep_backbone(s, backbone, false);
}

/* ---- registering ------------------------------------------------------------------------------------------------- */

static int take_backbone(struct medusa_sched *s, const char *name, const struct medusa_sched_backbone *given,
			 struct medusa_sched_backbone *spec)
{
	if (!md_take_struct(given, sizeof(*spec), spec))
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "%s->size is not that of a struct medusa_sched_backbone, or fields that this "
			       "library does not know are set",
			       name);
	if (!spec->bytes || spec->bytes > MD_MOST_BYTES)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "%s: bytes is %llu: give 1 to 2^60", name,
			       (unsigned long long)spec->bytes);
	return MEDUSA_SCHED_OK;
}

MD_EXPORT int medusa_sched_add_backbone(struct medusa_sched *s, const struct medusa_sched_backbone *given,
					uint32_t *index)
{
	struct medusa_sched_backbone spec;
	if (!s || !given || !index)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "%s is NULL", !s ? "sched" : !given ? "backbone" : "index");
	int code = take_backbone(s, "backbone", given, &spec);
	if (code)
		return code;
	if (s->host_limit && spec.in_host && s->host_used + spec.bytes > s->host_limit)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "backbone: in_host needs %llu bytes, and host memory has %llu left",
			       (unsigned long long)spec.bytes, (unsigned long long)(s->host_limit - s->host_used));
	struct md_backbone_gpu *gpus = calloc(s->gpu_count, sizeof(*gpus));
	if (!gpus || !md_artifacts_reserve(s, 1) ||
	    !MD_ARRAY_GROW(s->backbones, s->backbone_count, s->backbone_capacity)) {
		free(gpus);
		return md_fail(s, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for a backbone");
	}
	*index = s->backbone_count++;
	s->backbones[*index] = (struct md_backbone){
	    .spec = spec,
	    .gpus = gpus,
	    .artifact = md_artifact_add(s, MEDUSA_SCHED_CLASS_BACKBONE, *index, spec.bytes,
					md_cold_time(s, spec.bytes, spec.cold_ns), spec.in_host),
	    .first_user = NONE,
	};
	return MEDUSA_SCHED_OK;
}

MD_EXPORT int medusa_sched_change_backbone(struct medusa_sched *s, uint32_t backbone,
					   const struct medusa_sched_backbone *given)
{
	struct medusa_sched_backbone spec;
	if (!s || !given)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "%s is NULL", s ? "changed" : "sched");
	if (backbone >= s->backbone_count)
		return md_fail(s, MEDUSA_SCHED_ERR_NOT_FOUND, "backbone %u is not registered", backbone);
	struct md_backbone *b = &s->backbones[backbone];
	int code = take_backbone(s, "changed", given, &spec);
	if (code)
		return code;
	if (spec.bytes != b->spec.bytes || !spec.in_host != !b->spec.in_host)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "%s cannot change: register another backbone",
			       spec.bytes != b->spec.bytes ? "bytes" : "in_host");
	b->spec = spec;
	s->artifacts[b->artifact].cold_ns = md_cold_time(s, spec.bytes, spec.cold_ns);
	md_stuck_stir(s, s->now);
	return MEDUSA_SCHED_OK;
}
