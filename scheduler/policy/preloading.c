/* SPDX-License-Identifier: Apache-2.0 */
/* Preloading: plans what to load ahead of requests, by the knapsack of knapsack.h, and loads it piece by piece. */
#include <stdlib.h>
#include <string.h>

#include "scheduler/core/backbone.h"
#include "scheduler/core/books.h"
#include "scheduler/core/company.h"
#include "scheduler/core/replicas.h"
#include "scheduler/core/state.h"
#include "scheduler/core/transfer.h"
#include "scheduler/policy/cost.h"
#include "scheduler/policy/policies.h"
#include "scheduler/policy/preloading.h"
#include "scheduler/knapsack/knapsack.h"

#define MOST_FUNCTIONS 96 /* the functions that are called most are planned for; the others load on demand */

#define PLAN_WORK 1000 /* places that one plan examines: a step takes some tens of microseconds */
#define IDLE_PART 10   /* this part of a GPU is not filled ahead of requests */

/* ---- the problem, as the knapsack knows it ----------------------------------------------------------------------- */

struct problem {
	struct md_knapsack knapsack;
	struct md_knapsack_place *places; /* the GPUs in order, then host memory */
	struct md_knapsack_function *functions;
	struct md_knapsack_artifact *artifacts;
	struct md_knapsack_placement *held;
	uint32_t *chosen;    /* functions, by the problem's number */
	uint32_t *ours;      /* artifacts, by the problem's number */
	uint32_t *backbones; /* ours -> the problem's number, or NONE */
};

static void problem_finish(struct problem *p)
{
	free(p->places);
	free(p->functions);
	free(p->artifacts);
	free(p->held);
	free(p->chosen);
	free(p->ours);
	free(p->backbones);
}

static bool problem_init(const struct medusa_sched *s, struct problem *p)
{
	size_t functions = s->function_count < MOST_FUNCTIONS ? s->function_count : MOST_FUNCTIONS;
	size_t artifacts = 3 * functions + s->backbone_count + 1, places = s->gpu_count + 1;
	*p = (struct problem){
	    .places = calloc(places, sizeof(*p->places)),
	    .functions = calloc(functions + 1, sizeof(*p->functions)),
	    .artifacts = calloc(artifacts, sizeof(*p->artifacts)),
	    .held = calloc(artifacts * 2 + (size_t)s->backbone_count * places, sizeof(*p->held)),
	    .chosen = calloc(functions + 1, sizeof(*p->chosen)),
	    .ours = calloc(artifacts, sizeof(*p->ours)),
	    .backbones = malloc((s->backbone_count + 1) * sizeof(*p->backbones)),
	};
	return p->places && p->functions && p->artifacts && p->held && p->chosen && p->ours && p->backbones;
}

/*
 * Nothing is loaded ahead of a function that is gone or failed a short while ago, and with ours of one that was not called for
 * keep_alive_ns. xLoRA loads by predicted rates alone, which is what its experiments show.
 */
static bool left_alone(const struct medusa_sched *s, uint32_t function)
{
	const struct md_function *f = &s->functions[function];
	return f->gone || (f->let_go && s->preloading->heeds_keep_alive) || s->now < f->preload_after;
}

/* Calls a second, as far as they count. */
static double wanted(const struct medusa_sched *s, uint32_t function)
{
	return left_alone(s, function) ? 0 : md_rate_per_s(&s->functions[function].rate, s->now);
}

struct called {
	double rate;
	uint32_t function;
};

/* Keeps the ones that are called most, the first of equals first. */
static void keep_called(struct called *called, uint32_t *count, struct called next)
{
	uint32_t at = *count;
	while (at && called[at - 1].rate < next.rate)
		at--;
	if (at == MOST_FUNCTIONS)
		return;
	*count += *count < MOST_FUNCTIONS;
	memmove(&called[at + 1], &called[at], (*count - 1 - at) * sizeof(*called));
	called[at] = next;
}

static void choose_functions(struct medusa_sched *s, struct problem *p)
{
	struct called called[MOST_FUNCTIONS];
	uint32_t count = 0;
	for (uint32_t f = 0; f < s->function_count; f++) {
		double rate = wanted(s, f);
		if (rate > 0)
			keep_called(called, &count, (struct called){rate, f});
	}
	for (uint32_t i = 0; i < count; i++) {
		p->chosen[i] = called[i].function;
		p->functions[i].rate = called[i].rate;
	}
	p->knapsack.function_count = count;
}

static void hold(const struct medusa_sched *s, struct problem *p, uint32_t number, uint32_t artifact)
{
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	bool once = a->kind != MEDUSA_SCHED_CLASS_BACKBONE, counted = false;
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		int state = md_copy_at(s, artifact, gpu)->state;
		if (state != MD_THERE && state != MD_LOADING)
			continue;
		/* a second copy is not part of the plan: it only takes room */
		if (once && counted)
			p->places[gpu].bytes -= a->bytes < p->places[gpu].bytes ? a->bytes : p->places[gpu].bytes;
		else
			p->held[p->knapsack.held_count++] = (struct md_knapsack_placement){number, gpu};
		counted = true;
	}
	if (a->host != MD_ABSENT)
		p->held[p->knapsack.held_count++] = (struct md_knapsack_placement){number, s->gpu_count};
}

static void add_artifact(const struct medusa_sched *s, struct problem *p, uint32_t artifact, uint32_t owner)
{
	static const enum md_knapsack_class classes[] = {
	    [MEDUSA_SCHED_CLASS_BACKBONE] = MD_KNAPSACK_BACKBONE,
	    [MEDUSA_SCHED_CLASS_WEIGHTS] = MD_KNAPSACK_ADAPTER,
	    [MEDUSA_SCHED_CLASS_CONTEXT] = MD_KNAPSACK_KERNELS,
	    [MEDUSA_SCHED_CLASS_LIBRARY] = MD_KNAPSACK_LIBRARY,
	};
	if (artifact == NONE)
		return;
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	double cold = (double)a->cold_ns * 1e-9, copy = (double)a->bytes / s->host_bytes_per_s;
	if (a->kind == MEDUSA_SCHED_CLASS_CONTEXT)
		copy = (double)s->functions[a->owner].spec.context_ns * 1e-9;
	if (a->kind == MEDUSA_SCHED_CLASS_LIBRARY)
		copy = 0;
	uint32_t number = p->knapsack.artifact_count++;
	p->ours[number] = artifact;
	p->artifacts[number] = (struct md_knapsack_artifact){
	    .class = classes[a->kind],
	    .owner = owner,
	    .bytes = a->bytes,
	    .container_s = a->kind == MEDUSA_SCHED_CLASS_CONTEXT ? 0 : cold,
	    .gpu_s = cold + copy,
	};
	hold(s, p, number, artifact);
}

static void add_artifacts(struct medusa_sched *s, struct problem *p)
{
	for (uint32_t b = 0; b < s->backbone_count; b++)
		p->backbones[b] = NONE;
	for (uint32_t i = 0; i < p->knapsack.function_count; i++) {
		const struct md_function *f = &s->functions[p->chosen[i]];
		uint32_t backbone = f->spec.backbone;
		p->functions[i].backbone = MD_KNAPSACK_NONE;
		if (backbone != NONE) {
			if (p->backbones[backbone] == NONE) {
				p->backbones[backbone] = p->knapsack.backbone_count++;
				add_artifact(s, p, s->backbones[backbone].artifact, p->backbones[backbone]);
			}
			p->functions[i].backbone = p->backbones[backbone];
		}
		add_artifact(s, p, f->artifacts[MEDUSA_SCHED_CLASS_LIBRARY], i);
		add_artifact(s, p, f->artifacts[MEDUSA_SCHED_CLASS_WEIGHTS], i);
		add_artifact(s, p, f->artifacts[MEDUSA_SCHED_CLASS_CONTEXT], i);
	}
}

/* Room is what is free, and what the artifacts of the problem themselves occupy. */
static void measure_places(const struct medusa_sched *s, struct problem *p)
{
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		int64_t free = md_gpu_open(s, gpu) && !s->gpus[gpu].claim_count ? md_free_bytes(s, gpu) : 0;
		p->places[gpu] = (struct md_knapsack_place){free > 0 ? (uint64_t)free : 0, true};
	}
	uint64_t host = s->host_limit ? s->host_limit - s->host_used : UINT64_MAX / 4;
	p->places[s->gpu_count] = (struct md_knapsack_place){host, false};
}

static void add_held_room(const struct medusa_sched *s, struct problem *p)
{
	for (uint32_t i = 0; i < p->knapsack.held_count; i++)
		p->places[p->held[i].place].bytes += s->artifacts[p->ours[p->held[i].artifact]].bytes;
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

/* With room for as many placements more as there are backbones. */
struct plan {
	uint32_t count, next;
	struct md_knapsack_placement placements[]; /* our artifacts; place: a GPU, or NONE */
};

typedef enum md_status (*solver)(const struct md_knapsack *problem, struct md_knapsack_plan *plan);

static void keep_plan(struct medusa_sched *s, const struct problem *p, const struct md_knapsack_plan *plan)
{
	struct plan *kept = malloc(sizeof(*kept) + (plan->count + s->backbone_count) * sizeof(kept->placements[0]));
	s->preload_memory = kept;
	if (!kept)
		return;
	kept->count = plan->count;
	kept->next = 0;
	for (uint32_t i = 0; i < plan->count; i++) {
		uint32_t place = plan->placements[i].place;
		kept->placements[i] = (struct md_knapsack_placement){p->ours[plan->placements[i].artifact],
								     place < s->gpu_count ? place : NONE};
	}
}

static bool any_room(const struct medusa_sched *s)
{
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		/* memory that swapping leaves free is not idle: filling it would only cost copies */
		if (md_gpu_open(s, gpu) && md_free_bytes(s, gpu) > (int64_t)(s->gpus[gpu].limit / IDLE_PART))
			return true;
	}
	return s->host_limit && s->host_limit - s->host_used > s->host_limit / 10;
}

static void plan_with(struct medusa_sched *s, solver solve)
{
	struct problem p;
	struct md_knapsack_plan plan;
	free(s->preload_memory);
	s->preload_memory = NULL;
	if (!any_room(s))
		return;
	if (problem_init(s, &p)) {
		choose_functions(s, &p);
		measure_places(s, &p);
		add_artifacts(s, &p);
		add_held_room(s, &p);
		p.knapsack.places = p.places;
		p.knapsack.functions = p.functions;
		p.knapsack.artifacts = p.artifacts;
		p.knapsack.held = p.held;
		p.knapsack.place_count = s->gpu_count + 1;
		p.knapsack.work = PLAN_WORK;
		if (solve(&p.knapsack, &plan) == MD_OK) {
			keep_plan(s, &p, &plan);
			md_knapsack_plan_finish(&plan);
		}
	}
	problem_finish(&p);
}

/* ---- xlora: a standby of each backbone (section 4.4) -------------------------------------------------------------- */

/* GPUs that have the backbone, or will have it when the plan has been carried out. */
static uint32_t copies_planned(const struct medusa_sched *s, const struct plan *plan, uint32_t artifact)
{
	uint32_t count = 0;
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		int state = md_copy_at(s, artifact, gpu)->state;
		count += state == MD_THERE || state == MD_LOADING;
	}
	for (uint32_t i = 0; i < plan->count; i++)
		count += plan->placements[i].artifact == artifact && plan->placements[i].place != NONE;
	return count;
}

/* The GPU without the backbone where most memory is idle. NONE: it would fill a GPU. */
static uint32_t standby_gpu(const struct medusa_sched *s, uint32_t artifact)
{
	uint32_t best = NONE;
	int64_t most = 0, bytes = (int64_t)s->artifacts[artifact].bytes;
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		const struct md_gpu *g = &s->gpus[gpu];
		int64_t idle = md_free_bytes(s, gpu) - (int64_t)(g->limit / IDLE_PART);
		if (!md_gpu_open(s, gpu) || md_copy_at(s, artifact, gpu)->state != MD_ABSENT || idle < bytes ||
		    idle <= most)
			continue;
		best = gpu;
		most = idle;
	}
	return best;
}

/* Appends a second copy of each backbone that is in use and of which there is only one. */
static void plan_standbys(struct medusa_sched *s)
{
	struct plan *plan = s->preload_memory;
	if (!plan || s->gpu_count < 2)
		return;
	for (uint32_t b = 0; b < s->backbone_count; b++) {
		uint32_t artifact = s->backbones[b].artifact, gpu;
		if (copies_planned(s, plan, artifact) != 1 || md_artifact_rate(s, artifact) <= 0)
			continue;
		gpu = standby_gpu(s, artifact);
		if (gpu != NONE)
			plan->placements[plan->count++] = (struct md_knapsack_placement){artifact, gpu};
	}
}

static bool xlora_would_plan(const struct medusa_sched *s)
{
	return !s->preload.due && s->preload.seen != s->happened;
}

/*
 * While requests wait nothing may be sent, so the plan is made when they have started. If nothing has happened since the last
 * plan, that one still holds.
 */
static void xlora_plan(struct medusa_sched *s)
{
	s->preload.due = s->waiting > 0;
	if (s->preload.due || (s->preload_memory && s->preload.seen == s->happened))
		return;
	s->preload.seen = s->happened;
	plan_with(s, md_knapsack_greedy);
	plan_standbys(s);
}

/* Whether the backbone may come there for one of its functions at least. */
static bool backbone_wanted(const struct medusa_sched *s, uint32_t backbone, uint32_t gpu)
{
	uint32_t f = s->backbones[backbone].first_user;
	while (md_company_ruled(s) && f != NONE && !md_company_fits(s, f, gpu))
		f = s->functions[f].next_user;
	return f != NONE && md_backbone_may(s, backbone, gpu);
}

/* Whether the placement still makes sense, because the state has changed since the plan was made. */
static bool still_wanted(const struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	if (a->kind != MEDUSA_SCHED_CLASS_BACKBONE && left_alone(s, a->owner))
		return false;
	if (gpu == NONE)
		return a->host == MD_ABSENT && (!s->host_limit || s->host_used + a->bytes <= s->host_limit);
	const struct md_gpu *g = &s->gpus[gpu];
	if (!md_gpu_open(s, gpu) || g->claim_count || md_copy_at(s, artifact, gpu)->state != MD_ABSENT ||
	    (int64_t)a->bytes > md_free_bytes(s, gpu))
		return false;
	if (a->kind == MEDUSA_SCHED_CLASS_BACKBONE)
		return backbone_wanted(s, a->owner, gpu);
	if (a->kind == MEDUSA_SCHED_CLASS_WEIGHTS && !md_adapter_has_place(s, a->owner, gpu, false))
		return false;
	if (!md_replica_may(s, a->owner, gpu) || (md_company_ruled(s) && !md_company_fits(s, a->owner, gpu)))
		return false;
	uint32_t backbone = s->functions[a->owner].artifacts[MEDUSA_SCHED_CLASS_BACKBONE];
	return backbone == NONE || md_copy_at(s, backbone, gpu)->state == MD_THERE;
}

/* ---- medusa: bounded work, and only when the node is idle and something has changed ------------------------------- */

#define SMALL 16 /* so many functions are planned for together; more are looked at in turn */
#define LOOK 128 /* functions that one step looks at */
#define BEST 4   /* of them, so many are loaded */

struct wish {
	double value; /* seconds of loading that are saved each second, for a byte */
	uint32_t function, gpu;
};

/* The GPU that lacks the least of the function, if that fits into idle memory. NONE: none, or some GPU has it all. */
static uint32_t cheapest_gpu(const struct medusa_sched *s, uint32_t function, uint64_t *missing)
{
	uint32_t best = NONE;
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		const struct md_gpu *g = &s->gpus[gpu];
		if (!g->present)
			continue;
		if (md_all_there(s, function, gpu))
			return NONE;
		uint64_t bytes = md_missing_bytes(s, function, gpu);
		if (g->claim_count || md_free_bytes(s, gpu) < (int64_t)(bytes + g->limit / IDLE_PART))
			continue;
		if (best == NONE || bytes < *missing) {
			best = gpu;
			*missing = bytes;
		}
	}
	return best;
}

static void keep_best(struct wish *wishes, struct wish wish)
{
	for (uint32_t i = 0; i < BEST; i++) {
		struct wish other = wishes[i];
		if (wish.value > other.value) {
			wishes[i] = wish;
			wish = other;
		}
	}
}

static void wish_for(struct medusa_sched *s, struct plan *plan, struct wish wish)
{
	static const enum medusa_sched_class order[] = {MEDUSA_SCHED_CLASS_LIBRARY, MEDUSA_SCHED_CLASS_BACKBONE,
							MEDUSA_SCHED_CLASS_WEIGHTS, MEDUSA_SCHED_CLASS_CONTEXT};
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		uint32_t artifact = s->functions[wish.function].artifacts[order[i]];
		if (artifact == NONE)
			continue;
		uint32_t gpu = order[i] == MEDUSA_SCHED_CLASS_LIBRARY ? NONE : wish.gpu;
		plan->placements[plan->count++] = (struct md_knapsack_placement){artifact, gpu};
	}
}

/* Looks at some functions, from where the last call stopped, and plans for the best of them. */
static void plan_some(struct medusa_sched *s)
{
	struct wish wishes[BEST] = {{0}};
	for (uint32_t i = 0; i < LOOK && i < s->function_count; i++) {
		uint32_t function = s->preload.next++ % s->function_count;
		double rate = wanted(s, function);
		uint64_t missing = 0;
		uint32_t gpu = rate > 0 ? cheapest_gpu(s, function, &missing) : NONE;
		if (gpu == NONE)
			continue;
		double saves = (double)md_start_ns(s, function, gpu, NONE) * rate;
		keep_best(wishes, (struct wish){saves / (double)(missing + 1), function, gpu});
	}
	struct plan *plan = malloc(sizeof(*plan) + BEST * MD_FUNCTION_ARTIFACTS * sizeof(plan->placements[0]));
	s->preload_memory = plan;
	if (!plan)
		return;
	plan->count = plan->next = 0;
	for (uint32_t i = 0; i < BEST && wishes[i].value > 0; i++)
		wish_for(s, plan, wishes[i]);
}

static bool loading(const struct medusa_sched *s)
{
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		if (s->gpus[gpu].transfers)
			return true;
	}
	return false;
}

static uint64_t changes(const struct medusa_sched *s)
{
	return s->generation + s->dispatches + s->function_count;
}

/* What a plan depends on: calls, and what has come and gone; once around after the last change, nothing is planned. */
static bool changed(struct medusa_sched *s)
{
	uint64_t now = changes(s);
	if (now != s->preload.seen)
		s->preload.left = s->function_count / LOOK + 1;
	s->preload.seen = now;
	if (!s->preload.left)
		return false;
	s->preload.left--;
	return true;
}

/* While requests wait, or something is on its way, nothing may be sent: a plan would be made for nothing. */
static bool medusa_would_plan(const struct medusa_sched *s)
{
	return !s->waiting && !loading(s) && (s->preload.left || s->preload.seen != changes(s));
}

/* Whether an artifact that lies on no GPU, or in no container, could be sent for; a context only goes beside its weights. */
static bool artifact_fits(const struct medusa_sched *s, uint32_t artifact)
{
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	bool context = a->kind == MEDUSA_SCHED_CLASS_CONTEXT;
	uint32_t beside = context ? s->functions[a->owner].artifacts[MEDUSA_SCHED_CLASS_WEIGHTS] : NONE;
	if (!context && still_wanted(s, artifact, NONE))
		return true;
	if (a->copies || a->kind == MEDUSA_SCHED_CLASS_LIBRARY)
		return false;
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		if ((beside == NONE || md_copy_at(s, beside, gpu)->state == MD_THERE) && still_wanted(s, artifact, gpu))
			return true;
	}
	return false;
}

/* A plan may only fill memory that is idle: without anything that fits there, none is made. */
static bool anything_fits(const struct medusa_sched *s)
{
	for (uint32_t f = 0; f < s->function_count; f++) {
		const struct md_function *function = &s->functions[f];
		if (wanted(s, f) <= 0)
			continue;
		for (int kind = 0; kind < MD_FUNCTION_ARTIFACTS; kind++)
			if (function->artifacts[kind] != NONE && artifact_fits(s, function->artifacts[kind]))
				return true;
	}
	return false;
}

static void medusa_plan(struct medusa_sched *s)
{
	if (s->waiting || loading(s) || !changed(s))
		return;
	bool small = s->function_count <= SMALL;
	free(s->preload_memory);
	s->preload_memory = NULL;
	if (!any_room(s) || (small && !anything_fits(s)))
		return;
	if (small)
		plan_with(s, md_knapsack_bundles);
	else
		plan_some(s);
}

/* ---- piece by piece ---------------------------------------------------------------------------------------------- */

/* The fastest linked GPU that holds the artifact, or NONE; links that the node lacks have no speed. */
static uint32_t nearest_peer(const struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	uint32_t best = NONE;
	double fastest = 0;
	for (uint32_t peer = 0; gpu != NONE && s->artifacts[artifact].copies && peer < s->gpu_count; peer++) {
		double speed = peer == gpu ? 0 : s->peers[(size_t)peer * s->gpu_count + gpu];
		if (speed > fastest && md_copy_readable(s, artifact, peer)) {
			best = peer;
			fastest = speed;
		}
	}
	return best;
}

void md_preload_next(struct medusa_sched *s)
{
	if (s->preload.due && !s->waiting)
		s->preloading->plan(s);
	struct plan *plan = s->preload_memory;
	while (!s->waiting && plan && plan->next < plan->count) {
		struct md_knapsack_placement next = plan->placements[plan->next];
		/* requests come first: nothing is preloaded where something is on its way, or waits */
		if (next.place != NONE && s->gpus[next.place].transfers)
			return;
		plan->next++;
		if (still_wanted(s, next.artifact, next.place) &&
		    !md_send_for(s, next.artifact, next.place, nearest_peer(s, next.artifact, next.place), true))
			return;
	}
}

static const struct md_preloading none = {"none", "nothing before a request asks for it", NULL, NULL, true};
static const struct md_preloading xlora = {"xlora",
					   "greedy by value density into idle memory, with predicted rates, and "
					   "standby backbones (xLoRA, sections 4.1 and 4.4)",
					   xlora_plan, xlora_would_plan, false};
static const struct md_preloading medusa = {
    "medusa", "ours: when idle; few functions together by bundles at the prices of the dual, many a few at a time",
    medusa_plan, medusa_would_plan, true};

const struct md_preloading *const md_preloadings[] = {&medusa, &none, &xlora, NULL};
