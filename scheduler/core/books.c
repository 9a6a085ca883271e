/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of GPUs and host: what is free, who holds what, and in which order copies were last used. */
#include "scheduler/core/books.h"
#include "scheduler/core/shares.h"
#include "scheduler/core/state.h"

bool md_held(const struct md_copy *copy)
{
	return copy->state == MD_LOADING || copy->state == MD_LEAVING || (copy->state == MD_THERE && copy->pins);
}

void md_held_changed(struct medusa_sched *s, uint32_t artifact, uint32_t gpu, bool was)
{
	bool is = md_held(md_copy_at(s, artifact, gpu));
	if (is && !was)
		s->gpus[gpu].held += s->artifacts[artifact].bytes;
	else if (was && !is)
		s->gpus[gpu].held -= s->artifacts[artifact].bytes;
	md_shares_follow(s, artifact, gpu);
}

void md_copy_enter(struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	struct md_gpu *g = &s->gpus[gpu];
	struct md_copy *copy = md_copy_at(s, artifact, gpu);
	copy->older = g->newest;
	copy->newer = NONE;
	if (g->newest != NONE)
		md_copy_at(s, g->newest, gpu)->newer = artifact;
	else
		g->oldest = artifact;
	g->newest = artifact;
}

void md_copy_leave(struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	struct md_gpu *g = &s->gpus[gpu];
	struct md_copy *copy = md_copy_at(s, artifact, gpu);
	if (copy->older != NONE)
		md_copy_at(s, copy->older, gpu)->newer = copy->newer;
	else
		g->oldest = copy->newer;
	if (copy->newer != NONE)
		md_copy_at(s, copy->newer, gpu)->older = copy->older;
	else
		g->newest = copy->older;
	copy->older = copy->newer = NONE;
}

void md_host_enter(struct medusa_sched *s, uint32_t artifact)
{
	struct md_sched_artifact *a = &s->artifacts[artifact];
	if (a->host_fixed)
		return;
	a->host_older = s->host_newest;
	a->host_newer = NONE;
	if (s->host_newest != NONE)
		s->artifacts[s->host_newest].host_newer = artifact;
	else
		s->host_oldest = artifact;
	s->host_newest = artifact;
}

void md_host_leave(struct medusa_sched *s, uint32_t artifact)
{
	struct md_sched_artifact *a = &s->artifacts[artifact];
	if (a->host_fixed)
		return;
	if (a->host_older != NONE)
		s->artifacts[a->host_older].host_newer = a->host_newer;
	else
		s->host_oldest = a->host_newer;
	if (a->host_newer != NONE)
		s->artifacts[a->host_newer].host_older = a->host_older;
	else
		s->host_newest = a->host_older;
	a->host_older = a->host_newer = NONE;
}

static void copy_used(struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	struct md_copy *copy = md_copy_at(s, artifact, gpu);
	copy->used = s->now;
	if (copy->state != MD_THERE)
		return;
	md_copy_leave(s, artifact, gpu);
	md_copy_enter(s, artifact, gpu);
}

static void host_used(struct medusa_sched *s, uint32_t artifact)
{
	if (s->artifacts[artifact].host != MD_THERE)
		return;
	md_host_leave(s, artifact);
	md_host_enter(s, artifact);
}

/* by: 1 or -1. */
static void pin_by(struct medusa_sched *s, uint32_t function, uint32_t gpu, int by)
{
	const uint32_t *artifacts = s->functions[function].artifacts;
	for (int kind = 0; kind < MEDUSA_SCHED_CLASS_LIBRARY; kind++) {
		if (artifacts[kind] == NONE)
			continue;
		struct md_copy *copy = md_copy_at(s, artifacts[kind], gpu);
		bool was = md_held(copy);
		copy->pins += (uint32_t)by;
		md_held_changed(s, artifacts[kind], gpu, was);
		copy_used(s, artifacts[kind], gpu);
	}
	uint32_t library = artifacts[MEDUSA_SCHED_CLASS_LIBRARY];
	if (library != NONE) {
		s->artifacts[library].host_pins += (uint32_t)by;
		host_used(s, library);
	}
}

void md_pin(struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	pin_by(s, function, gpu, 1);
}

void md_unpin(struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	pin_by(s, function, gpu, -1);
}
