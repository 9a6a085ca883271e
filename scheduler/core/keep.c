/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps replicas of functions on GPUs: sends for those that lack, and pins them as a batch would, from then on. */
#include "scheduler/core/keep.h"

#include <stdlib.h>

#include "base/array.h"
#include "scheduler/core/books.h"
#include "scheduler/core/company.h"
#include "scheduler/core/dispatch.h"
#include "scheduler/core/evict.h"
#include "scheduler/core/replicas.h"
#include "scheduler/policy/cost.h"

#define AFTER_FAILURE 5000000000ull /* ns */
#define AFTER_WORD 1000000000ull    /* ns: so soon after one word about a node that goes on comes the next */

static uint32_t most_kept(const struct medusa_sched *s, const struct md_function *f)
{
	return f->gone ? 0 : f->spec.pinned ? s->gpu_count : f->spec.min_replicas;
}

/* ---- what is kept ---- */

static void count_copies(struct medusa_sched *s, uint32_t function, uint32_t gpu, int by)
{
	for (int kind = 0; kind < MEDUSA_SCHED_CLASS_LIBRARY; kind++) {
		uint32_t artifact = s->functions[function].artifacts[kind];
		if (artifact == NONE)
			continue;
		struct md_copy *copy = md_copy_at(s, artifact, gpu);
		bool was = copy->keeps > 0;
		copy->keeps += (uint32_t)by;
		if (was != (copy->keeps > 0))
			s->gpus[gpu].kept += was ? -s->artifacts[artifact].bytes : s->artifacts[artifact].bytes;
	}
}

/* What is there stays, also if a policy had chosen it as a victim. What is on its way may be late: that is left as it is. */
static void spare(struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	for (int kind = 0; kind < MEDUSA_SCHED_CLASS_LIBRARY; kind++) {
		uint32_t artifact = s->functions[function].artifacts[kind];
		struct md_copy *copy = artifact == NONE ? NULL : md_copy_at(s, artifact, gpu);
		if (copy && copy->state == MD_THERE)
			copy->draining = copy->failed;
	}
}

static void keep(struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	md_pin(s, function, gpu);
	count_copies(s, function, gpu, 1);
	spare(s, function, gpu);
	s->functions[function].kept[gpu] = true;
	s->functions[function].kept_count++;
}

static void release(struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	count_copies(s, function, gpu, -1);
	md_unpin(s, function, gpu);
	s->functions[function].kept[gpu] = false;
	s->functions[function].kept_count--;
}

static bool is_whole(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	const uint32_t *artifacts = s->functions[function].artifacts;
	uint32_t library = artifacts[MEDUSA_SCHED_CLASS_LIBRARY];
	bool whole = library == NONE || s->artifacts[library].host == MD_THERE;
	for (int kind = 0; kind < MEDUSA_SCHED_CLASS_LIBRARY; kind++) {
		const struct md_copy *copy = artifacts[kind] == NONE ? NULL : md_copy_at(s, artifacts[kind], gpu);
		whole &= !copy || (copy->state == MD_THERE && !copy->failed);
	}
	return whole;
}

bool md_keep_reserve(struct medusa_sched *s, uint32_t function)
{
	struct md_function *f = &s->functions[function];
	if (f->kept || !most_kept(s, f))
		return true;
	if (!MD_ARRAY_GROW(s->keepers, s->keeper_count, s->keeper_capacity))
		return false;
	f->kept = calloc(s->gpu_count, sizeof(*f->kept));
	if (!f->kept)
		return false;
	s->keepers[s->keeper_count++] = function;
	return true;
}

void md_keep_changed(struct medusa_sched *s, uint32_t function)
{
	struct md_function *f = &s->functions[function];
	for (uint32_t gpu = s->gpu_count; f->kept_count > most_kept(s, f) && gpu-- > 0;)
		if (f->kept[gpu])
			release(s, function, gpu);
}

static bool uses(const struct md_function *f, uint32_t artifact)
{
	bool does = artifact == NONE;
	for (int kind = 0; kind < MD_FUNCTION_ARTIFACTS; kind++)
		does |= f->artifacts[kind] == artifact;
	return does;
}

void md_keep_drop(struct medusa_sched *s, uint32_t gpu, uint32_t artifact, uint32_t function)
{
	for (uint32_t i = 0; i < s->keeper_count; i++) {
		const struct md_function *f = &s->functions[s->keepers[i]];
		if (f->kept[gpu] && uses(f, artifact) && (function == NONE || function == s->keepers[i]))
			release(s, s->keepers[i], gpu);
	}
}

uint64_t md_keep_beside(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	uint64_t bytes = s->gpus[gpu].kept;
	for (int kind = 0; bytes && kind < MEDUSA_SCHED_CLASS_LIBRARY; kind++) {
		uint32_t artifact = s->functions[function].artifacts[kind];
		if (artifact != NONE && md_copy_at(s, artifact, gpu)->keeps)
			bytes -= s->artifacts[artifact].bytes;
	}
	return bytes;
}

/* ---- what lacks ---- */

/* Whether something of it is on its way; then it is seen what comes of that. */
static bool is_coming(const struct medusa_sched *s, const struct md_function *f)
{
	bool coming = false;
	for (int kind = 0; kind < MEDUSA_SCHED_CLASS_LIBRARY; kind++)
		for (uint32_t gpu = 0; f->artifacts[kind] != NONE && gpu < s->gpu_count; gpu++)
			coming |= md_copy_at(s, f->artifacts[kind], gpu)->state == MD_LOADING;
	uint32_t library = f->artifacts[MEDUSA_SCHED_CLASS_LIBRARY];
	return coming || (library != NONE && s->artifacts[library].host == MD_LOADING);
}

/* Requests come first: where some have claimed memory, or copies are on their way, nothing is sent. */
static uint32_t gpu_for(struct medusa_sched *s, uint32_t function)
{
	uint32_t best = NONE;
	uint64_t least = 0;
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		uint64_t missing = md_missing_bytes(s, function, gpu);
		const struct md_gpu *g = &s->gpus[gpu];
		if (s->functions[function].kept[gpu] || g->transfers || !md_fits(s, function, gpu))
			continue;
		if (best != NONE &&
		    (missing > least || (missing == least && md_free_bytes(s, gpu) <= md_free_bytes(s, best))))
			continue;
		best = gpu;
		least = missing;
	}
	return best;
}

static bool lacks(const struct medusa_sched *s, const struct md_function *f)
{
	return !f->gone && f->kept_count < f->spec.min_replicas && f->kept_count < s->gpu_count;
}

/* Whether an empty GPU would have memory for it, beside what stays there. */
static bool has_place(const struct medusa_sched *s, uint32_t function)
{
	bool place = false;
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++)
		place |= md_gpu_open(s, gpu) &&
			 md_fits_empty(s, function, gpu, s->gpus[gpu].foreign + md_keep_beside(s, function, gpu));
	return place;
}

static void send(struct medusa_sched *s, uint32_t function)
{
	if (!lacks(s, &s->functions[function]) || is_coming(s, &s->functions[function]))
		return;
	if (md_company_ruled(s) && has_place(s, function) && !md_company_clears(s, function))
		return;
	uint32_t gpu = gpu_for(s, function);
	if (gpu != NONE && md_library_ready(s, function) &&
	    md_make_room(s, gpu, md_missing_bytes(s, function, gpu), function) && md_make_place(s, gpu, function) &&
	    md_send_missing(s, function, gpu, md_best_peer(s, function, gpu), true))
		keep(s, function, gpu);
}

void md_keep_failed(struct medusa_sched *s)
{
	s->keep_after = s->now + AFTER_FAILURE;
}

void md_keep_told(struct medusa_sched *s)
{
	uint64_t after = s->now + AFTER_WORD;
	s->keep_after = s->keep_after > after ? s->keep_after : after;
	s->next_preload = s->next_preload > after ? s->next_preload : after;
}

uint64_t md_keep_at(const struct medusa_sched *s)
{
	bool lack = false;
	for (uint32_t i = 0; s->keep_after > s->now && i < s->keeper_count; i++)
		lack |= lacks(s, &s->functions[s->keepers[i]]);
	return lack ? s->keep_after : UINT64_MAX;
}

void md_keep_whole(struct medusa_sched *s)
{
	for (uint32_t i = 0; i < s->keeper_count; i++) {
		uint32_t function = s->keepers[i];
		const struct md_function *f = &s->functions[function];
		for (uint32_t gpu = 0; f->kept_count < most_kept(s, f) && gpu < s->gpu_count; gpu++)
			if (md_gpu_open(s, gpu) && !f->kept[gpu] && is_whole(s, function, gpu))
				keep(s, function, gpu);
	}
}

void md_keep_next(struct medusa_sched *s)
{
	for (uint32_t i = 0; s->now >= s->keep_after && i < s->keeper_count; i++)
		send(s, s->keepers[i]);
}
