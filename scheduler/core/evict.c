/* SPDX-License-Identifier: Apache-2.0 */
/* Makes room on a GPU or in host memory by evicting idle artifacts, and determines whether that would be enough. */
#include "base/cleanup.h"
#include "scheduler/core/backbone.h"
#include "scheduler/core/books.h"
#include "scheduler/core/company.h"
#include "scheduler/core/evict.h"
#include "scheduler/core/join.h"
#include "scheduler/core/replicas.h"
#include "scheduler/core/request.h"
#include "scheduler/core/state.h"
#include "scheduler/core/transfer.h"
#include "scheduler/policy/cost.h"
#include "scheduler/policy/offloading.h"
#include "scheduler/policy/policies.h"

#define MD_PATIENCE 5000000000ull

/* ---- whether it fits ---- */

bool md_fits_empty(const struct medusa_sched *s, uint32_t function, uint32_t gpu, uint64_t kv_bytes)
{
	uint64_t bytes = kv_bytes;
	for (int kind = 0; kind < MEDUSA_SCHED_CLASS_LIBRARY; kind++) {
		uint32_t artifact = s->functions[function].artifacts[kind];
		bytes += artifact == NONE ? 0 : s->artifacts[artifact].bytes;
	}
	return kv_bytes <= s->gpus[gpu].limit && bytes <= s->gpus[gpu].limit; /* the sum may overflow */
}

bool md_fits_somewhere(const struct medusa_sched *s, uint32_t function, uint64_t kv_bytes)
{
	uint32_t home = s->functions[function].home;
	if (s->placement->bound)
		return home != NONE && md_fits_empty(s, function, home, kv_bytes);
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		if (md_fits_empty(s, function, gpu, kv_bytes))
			return true;
	}
	return false;
}

static bool is_of(const struct medusa_sched *s, uint32_t artifact, uint32_t function)
{
	if (function == NONE)
		return false;
	const uint32_t *artifacts = s->functions[function].artifacts;
	for (int kind = 0; kind < MD_FUNCTION_ARTIFACTS; kind++) {
		if (artifacts[kind] == artifact)
			return true;
	}
	return false;
}

/* Idle bytes of the keeper on this GPU: they are needed, and do not count as room. */
static uint64_t kept_bytes(const struct medusa_sched *s, uint32_t gpu, uint32_t keeper)
{
	uint64_t bytes = 0;
	for (int kind = 0; keeper != NONE && kind < MEDUSA_SCHED_CLASS_LIBRARY; kind++) {
		uint32_t artifact = s->functions[keeper].artifacts[kind];
		if (artifact == NONE)
			continue;
		const struct md_copy *copy = md_copy_at(s, artifact, gpu);
		bytes += copy->state == MD_THERE && !md_held(copy) ? s->artifacts[artifact].bytes : 0;
	}
	return bytes;
}

uint64_t md_patience(const struct medusa_sched *s)
{
	return s->options.max_wait_ns / 16 < MD_PATIENCE ? s->options.max_wait_ns / 16 : MD_PATIENCE;
}

uint64_t md_claim_age(const struct medusa_sched *s, uint32_t gpu)
{
	const struct md_gpu *g = &s->gpus[gpu];
	uint64_t since = s->functions[g->claims[0]].claimed_at;
	since = g->served_at > since ? g->served_at : since; /* what another one has just loaded is used for a while */
	return s->now - since;
}

bool md_claim_is_old(const struct medusa_sched *s, uint32_t gpu)
{
	return md_claim_age(s, gpu) >= md_patience(s);
}

/*
 * Functions that claim memory here come first. After a while nothing else starts, so that the memory they need becomes
 * idle.
 */
static bool claims_allow(const struct medusa_sched *s, uint32_t function, uint32_t gpu, bool more_memory)
{
	const struct md_gpu *g = &s->gpus[gpu];
	if (!g->claim_count || s->functions[function].claim == gpu)
		return true;
	return !more_memory && !md_claim_is_old(s, gpu);
}

/* What a function finds on a GPU. */
struct found {
	uint64_t missing, idle; /* bytes: what it lacks there, and what is there and nobody uses */
	bool usable;            /* its copies can be used, or can be loaded */
};

static struct found look(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	const struct md_function *f = &s->functions[function];
	struct found found = {.usable = true};
	for (int kind = 0; kind < MEDUSA_SCHED_CLASS_LIBRARY; kind++) {
		uint32_t artifact = f->artifacts[kind];
		if (artifact == NONE)
			continue;
		const struct md_copy *copy = md_copy_at(s, artifact, gpu);
		uint64_t bytes = s->artifacts[artifact].bytes;
		found.usable &= copy->state != MD_LEAVING && !copy->draining;
		found.idle += copy->state == MD_THERE && !copy->pins ? bytes : 0;
		if (copy->state == MD_SUSPENDED)
			found.missing += bytes - f->spec.residue_bytes;
		else if (copy->state == MD_ABSENT || copy->state == MD_LEAVING)
			found.missing += bytes;
	}
	return found;
}

static bool evictable(const struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	const struct md_copy *copy = md_copy_at(s, artifact, gpu);
	return copy->state == MD_THERE && !copy->pins;
}

/* Of the adapters on the function's backbone, the idle one that was used longest ago. NONE: there is none. */
static uint32_t oldest_adapter(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	for (uint32_t a = s->gpus[gpu].oldest; a != NONE; a = md_copy_at(s, a, gpu)->newer) {
		const struct md_sched_artifact *artifact = &s->artifacts[a];
		if (artifact->kind == MEDUSA_SCHED_CLASS_WEIGHTS && evictable(s, a, gpu) &&
		    s->functions[artifact->owner].spec.backbone == s->functions[function].spec.backbone)
			return a;
	}
	return NONE;
}

bool md_fits(struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	const struct md_gpu *g = &s->gpus[gpu];
	if (!md_gpu_open(s, gpu) || g->grown || !md_replica_may(s, function, gpu))
		return false;
	if (md_company_ruled(s) && !md_company_fits(s, function, gpu))
		return false;
	if (!md_backbone_room(s, function, gpu) ||
	    (!md_adapter_has_place(s, function, gpu, false) && oldest_adapter(s, function, gpu) == NONE))
		return false;
	struct found found = look(s, function, gpu);
	uint32_t first = md_first_waiting(s, function);
	uint64_t kv = first == NONE ? 0 : s->requests[first].kv_bytes;
	if (!found.usable || md_join_batch(s, function, gpu) != NONE || md_join_hangs(s, function, gpu) ||
	    !claims_allow(s, function, gpu, found.missing > 0))
		return false;
	int64_t bytes = (int64_t)(found.missing + kv), free = md_free_bytes(s, gpu);
	if (bytes == 0 || bytes <= free)
		return true;
	if (!s->eviction->rank || (g->claim_count && s->functions[function].claim != gpu))
		return false;
	return bytes <= free + md_idle_bytes(s, gpu) - (int64_t)found.idle;
}

/* ---- room on a GPU ---- */

/* The GPU loses the copy: at once, or when the transfer out has ended. */
static bool evict_one(struct medusa_sched *s, uint32_t artifact, uint32_t gpu, bool offload)
{
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	uint64_t residue = 0, takes = 0;
	if (a->kind == MEDUSA_SCHED_CLASS_BACKBONE) {
		takes = s->backbones[a->owner].spec.evict_ns;
	} else {
		const struct medusa_sched_function *spec = &s->functions[a->owner].spec;
		takes = spec->evict_ns;
		residue = a->kind == MEDUSA_SCHED_CLASS_CONTEXT && !offload ? spec->residue_bytes : 0;
	}
	return md_transfer_out(s, artifact, gpu, a->bytes - residue, offload, takes == 0);
}

static void evict_if_there(struct medusa_sched *s, uint32_t artifact, uint32_t gpu, bool offload)
{
	if (artifact != NONE && evictable(s, artifact, gpu))
		evict_one(s, artifact, gpu, offload);
}

/* Evicts a copy, and what is of no use without it. */
static bool evict(struct medusa_sched *s, uint32_t artifact, uint32_t gpu, bool offload)
{
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	if (!s->gpus[gpu].present)
		return false; /* everything in it goes with it */
	if (a->kind == MEDUSA_SCHED_CLASS_BACKBONE) {
		for (uint32_t f = s->backbones[a->owner].first_user; f != NONE; f = s->functions[f].next_user) {
			evict_if_there(s, s->functions[f].artifacts[MEDUSA_SCHED_CLASS_CONTEXT], gpu, offload);
			evict_if_there(s, s->functions[f].artifacts[MEDUSA_SCHED_CLASS_WEIGHTS], gpu, offload);
		}
	} else if (a->kind == MEDUSA_SCHED_CLASS_WEIGHTS) {
		evict_if_there(s, s->functions[a->owner].artifacts[MEDUSA_SCHED_CLASS_CONTEXT], gpu, offload);
	}
	return evict_one(s, artifact, gpu, offload);
}

/* The idle copy with the least rank. busy: instead, one in use that is not draining yet. NONE: there is none. */
static uint32_t choose_victim(struct medusa_sched *s, uint32_t gpu, uint32_t keeper, bool busy)
{
	uint32_t best = NONE;
	struct md_key least = {0};
	for (uint32_t a = s->gpus[gpu].oldest; a != NONE; a = md_copy_at(s, a, gpu)->newer) {
		const struct md_copy *copy = md_copy_at(s, a, gpu);
		bool candidate = busy ? copy->state == MD_THERE && copy->pins && !copy->draining && !copy->keeps
				      : evictable(s, a, gpu);
		if (!candidate || is_of(s, a, keeper) || (!busy && s->eviction->may && !s->eviction->may(s, a, gpu)))
			continue;
		struct md_key rank = s->eviction->rank(s, a, gpu);
		if (best == NONE || md_key_less(rank, least)) {
			best = a;
			least = rank;
		}
	}
	return best;
}

static uint32_t oldest_residue(const struct medusa_sched *s, uint32_t gpu, uint32_t keeper)
{
	for (uint32_t a = s->gpus[gpu].oldest; a != NONE; a = md_copy_at(s, a, gpu)->newer) {
		if (md_copy_at(s, a, gpu)->state == MD_SUSPENDED && !is_of(s, a, keeper))
			return a;
	}
	return NONE;
}

/* Evicts what a policy chooses all at once. */
static void evict_together(struct medusa_sched *s, uint32_t gpu, uint64_t bytes, uint32_t keeper)
{
	uint32_t count = 0;
	MD_AUTO_FREE uint32_t *victims = md_offload_choose(s, gpu, bytes, keeper, &count);
	for (uint32_t i = 0; victims && i < count; i++) {
		if (evictable(s, victims[i], gpu) && !evict(s, victims[i], gpu, false))
			return;
	}
}

bool md_make_room(struct medusa_sched *s, uint32_t gpu, uint64_t bytes, uint32_t keeper)
{
	int64_t needed = (int64_t)bytes;
	if (needed <= md_free_bytes(s, gpu))
		return true;
	if (!s->eviction->rank)
		return false;
	if (needed > md_free_bytes(s, gpu) + (int64_t)s->gpus[gpu].leaving + md_idle_bytes(s, gpu) -
			 (int64_t)kept_bytes(s, gpu, keeper))
		return false;
	if (s->eviction->solve && needed > md_soon_free_bytes(s, gpu))
		evict_together(s, gpu, (uint64_t)(needed - md_soon_free_bytes(s, gpu)), keeper);
	while (needed > md_soon_free_bytes(s, gpu)) {
		uint32_t victim = choose_victim(s, gpu, keeper, false);
		bool offload = victim == NONE;
		victim = offload ? oldest_residue(s, gpu, keeper) : victim;
		if (victim == NONE || !evict(s, victim, gpu, offload))
			return false;
	}
	return needed <= md_free_bytes(s, gpu);
}

bool md_make_place(struct medusa_sched *s, uint32_t gpu, uint32_t function)
{
	while (!md_adapter_has_place(s, function, gpu, true)) {
		uint32_t victim = oldest_adapter(s, function, gpu);
		if (victim == NONE || !evict(s, victim, gpu, false))
			return false;
	}
	return md_adapter_has_place(s, function, gpu, false);
}

void md_drain_for(struct medusa_sched *s, uint32_t gpu, uint64_t bytes, uint32_t keeper)
{
	const struct md_gpu *g = &s->gpus[gpu];
	/* running batches will free their KV memory: keeping others from starting would gain nothing */
	int64_t soon = md_free_bytes(s, gpu) + md_idle_bytes(s, gpu) + (int64_t)g->kv - (int64_t)g->shared_busy;
	for (uint32_t a = g->oldest; a != NONE; a = md_copy_at(s, a, gpu)->newer) {
		const struct md_copy *copy = md_copy_at(s, a, gpu);
		soon += copy->draining && md_held(copy) ? (int64_t)s->artifacts[a].bytes : 0;
	}
	while (soon < (int64_t)bytes) {
		uint32_t victim = choose_victim(s, gpu, keeper, true);
		if (victim == NONE)
			return;
		md_copy_at(s, victim, gpu)->draining = true;
		s->gpus[gpu].draining = true;
		soon += (int64_t)s->artifacts[victim].bytes;
	}
}

void md_drained(struct medusa_sched *s, uint32_t gpu)
{
	bool left = false;
	uint32_t newer;
	for (uint32_t a = s->gpus[gpu].oldest; s->gpus[gpu].draining && a != NONE; a = newer) {
		const struct md_copy *copy = md_copy_at(s, a, gpu);
		newer = copy->newer;
		if (!copy->draining)
			continue;
		/* evicting a backbone evicts others and changes the list: the rest is done next time */
		left = true;
		if (evictable(s, a, gpu) && evict(s, a, gpu, copy->failed))
			return;
	}
	s->gpus[gpu].draining = left;
}

void md_undrain(struct medusa_sched *s, uint32_t gpu)
{
	for (uint32_t a = s->gpus[gpu].oldest; a != NONE; a = md_copy_at(s, a, gpu)->newer) {
		struct md_copy *copy = md_copy_at(s, a, gpu);
		copy->draining = copy->failed;
	}
}

void md_shrink(struct medusa_sched *s, uint32_t gpu)
{
	while (md_soon_free_bytes(s, gpu) < 0) {
		uint32_t victim = NONE;
		for (uint32_t a = s->gpus[gpu].oldest; a != NONE && victim == NONE; a = md_copy_at(s, a, gpu)->newer)
			victim = md_copy_at(s, a, gpu)->state == MD_SUSPENDED || evictable(s, a, gpu) ? a : NONE;
		if (victim == NONE || !evict(s, victim, gpu, true))
			return;
	}
}

void md_empty(struct medusa_sched *s, uint32_t gpu)
{
	uint32_t victim;
	do {
		victim = NONE;
		for (uint32_t a = s->gpus[gpu].oldest; a != NONE && victim == NONE; a = md_copy_at(s, a, gpu)->newer)
			victim = md_copy_at(s, a, gpu)->state == MD_SUSPENDED || evictable(s, a, gpu) ? a : NONE;
	} while (victim != NONE && evict(s, victim, gpu, true));
}

/* A process whose context is on a GPU cannot be evicted. */
static bool host_evictable(const struct medusa_sched *s, uint32_t artifact)
{
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	if (a->host_pins)
		return false;
	if (a->kind != MEDUSA_SCHED_CLASS_LIBRARY)
		return true;
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		uint32_t context = s->functions[a->owner].artifacts[MEDUSA_SCHED_CLASS_CONTEXT];
		if (context != NONE && md_copy_at(s, context, gpu)->state != MD_ABSENT)
			return false;
	}
	return true;
}

static void sweep_gpu(struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	if (md_copy_at(s, artifact, gpu)->state == MD_SUSPENDED || evictable(s, artifact, gpu))
		evict(s, artifact, gpu, true);
}

/* Releases an artifact that was kept in host memory as long as its function was registered. */
static void host_unfix(struct medusa_sched *s, uint32_t artifact)
{
	struct md_sched_artifact *a = &s->artifacts[artifact];
	if (!a->host_fixed)
		return;
	a->host_fixed = false;
	md_host_enter(s, artifact);
}

void md_sweep(struct medusa_sched *s, uint32_t function)
{
	const struct md_function *f = &s->functions[function];
	for (int kind = MEDUSA_SCHED_CLASS_CONTEXT; kind >= MEDUSA_SCHED_CLASS_WEIGHTS; kind--) {
		for (uint32_t gpu = 0; f->artifacts[kind] != NONE && gpu < s->gpu_count; gpu++)
			sweep_gpu(s, f->artifacts[kind], gpu);
	}
	for (int kind = MEDUSA_SCHED_CLASS_WEIGHTS; kind <= MEDUSA_SCHED_CLASS_LIBRARY; kind++) {
		uint32_t artifact = f->artifacts[kind];
		if (artifact == NONE || s->artifacts[artifact].host != MD_THERE)
			continue;
		if (s->artifacts[artifact].host_fixed && !f->gone)
			continue;
		host_unfix(s, artifact);
		if (host_evictable(s, artifact))
			md_transfer_out(s, artifact, NONE, s->artifacts[artifact].bytes, true, true);
	}
}

void md_sweep_backbone(struct medusa_sched *s, uint32_t backbone, bool gone)
{
	uint32_t artifact = s->backbones[backbone].artifact;
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++)
		sweep_gpu(s, artifact, gpu);
	if (s->artifacts[artifact].host != MD_THERE || (s->artifacts[artifact].host_fixed && !gone))
		return;
	host_unfix(s, artifact);
	if (host_evictable(s, artifact))
		md_transfer_out(s, artifact, NONE, s->artifacts[artifact].bytes, true, true);
}

void md_sweep_gpu(struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	const struct md_function *f = &s->functions[function];
	for (int kind = MEDUSA_SCHED_CLASS_CONTEXT; kind >= MEDUSA_SCHED_CLASS_WEIGHTS; kind--)
		if (f->artifacts[kind] != NONE)
			sweep_gpu(s, f->artifacts[kind], gpu);
}

void md_evict_function(struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	const struct md_function *f = &s->functions[function];
	for (int kind = MEDUSA_SCHED_CLASS_WEIGHTS; kind <= MEDUSA_SCHED_CLASS_CONTEXT; kind++)
		if (f->artifacts[kind] != NONE && evictable(s, f->artifacts[kind], gpu))
			evict(s, f->artifacts[kind], gpu, false);
}

void md_evict_backbone(struct medusa_sched *s, uint32_t backbone, uint32_t gpu)
{
	uint32_t artifact = s->backbones[backbone].artifact;
	if (evictable(s, artifact, gpu))
		evict(s, artifact, gpu, false);
}

/* ---- host memory ---- */

/* A process that nobody uses, even if its context is still on GPUs. */
static bool process_idle(struct medusa_sched *s, uint32_t artifact)
{
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	if (a->kind != MEDUSA_SCHED_CLASS_LIBRARY || a->host_pins || !s->eviction->rank)
		return false;
	uint32_t context = s->functions[a->owner].artifacts[MEDUSA_SCHED_CLASS_CONTEXT];
	for (uint32_t gpu = 0; context != NONE && gpu < s->gpu_count; gpu++) {
		const struct md_copy *copy = md_copy_at(s, context, gpu);
		if (copy->state == MD_LOADING || (copy->state == MD_THERE && copy->pins) ||
		    (copy->state == MD_THERE && s->eviction->may && !s->eviction->may(s, context, gpu)))
			return false;
	}
	return true;
}

/* Evicts its context from the GPUs; the process itself can go after that. */
static void process_leave(struct medusa_sched *s, uint32_t artifact)
{
	uint32_t context = s->functions[s->artifacts[artifact].owner].artifacts[MEDUSA_SCHED_CLASS_CONTEXT];
	for (uint32_t gpu = 0; context != NONE && gpu < s->gpu_count; gpu++)
		sweep_gpu(s, context, gpu);
	if (host_evictable(s, artifact))
		md_transfer_out(s, artifact, NONE, s->artifacts[artifact].bytes, true, true);
}

bool md_host_room(struct medusa_sched *s, uint64_t bytes, uint32_t keeper)
{
	if (!s->host_limit || s->host_used + bytes <= s->host_limit)
		return true;
	uint64_t idle = 0;
	uint32_t next;
	for (uint32_t a = s->host_oldest; a != NONE; a = s->artifacts[a].host_newer) {
		bool may = !is_of(s, a, keeper) && (host_evictable(s, a) || process_idle(s, a));
		idle += may ? s->artifacts[a].bytes : 0;
	}
	if (s->host_used - idle + bytes > s->host_limit)
		return false; /* evict nothing if it would not be enough */
	for (uint32_t a = s->host_oldest; a != NONE && s->host_used + bytes > s->host_limit; a = next) {
		next = s->artifacts[a].host_newer;
		if (!is_of(s, a, keeper) && host_evictable(s, a))
			md_transfer_out(s, a, NONE, s->artifacts[a].bytes, true, true);
	}
	for (uint32_t a = s->host_oldest; a != NONE && s->host_used + bytes > s->host_limit; a = next) {
		next = s->artifacts[a].host_newer;
		if (!is_of(s, a, keeper) && process_idle(s, a))
			process_leave(s, a);
	}
	return s->host_used + bytes <= s->host_limit;
}
