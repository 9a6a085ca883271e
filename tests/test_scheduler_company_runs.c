/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random nodes with random rules of company: nothing is loaded while a function is there that must leave before, by the
 * test's own account, and everyone has a turn.
 */
#include <stdlib.h>

#include <criterion/criterion.h>

#include "medusa/scheduler.h"
#include "tests/scheduler_draws.h"
#include "tests/scheduler_reality.h"

#define FUNCTIONS 14
#define REQUESTS 200000
#define COMPANIES 3
#define LIVE 40

struct pending {
	uint64_t at;
	struct medusa_sched_event event;
};

static struct world {
	struct medusa_sched *sched;
	struct reality reality;
	struct medusa_sched_function specs[FUNCTIONS];
	bool with[FUNCTIONS][COMPANIES][FUNCTIONS]; /* who may stay */
	uint32_t companies[FUNCTIONS];              /* 0: no rule */
	uint32_t gpus, functions, live;
	struct pending pending[4096];
	size_t count;
	uint64_t now, timer, requests, served, late, loads, checked;
	uint64_t kv[REQUESTS];
} w;

static void later(uint64_t in, struct medusa_sched_event event)
{
	cr_assert_lt(w.count, 4096);
	w.pending[w.count++] = (struct pending){w.now + in, event};
}

/* ---- the check -------------------------------------------------------------------------------------------------- */

static bool is_there(uint32_t function)
{
	for (uint32_t gpu = 0; gpu < w.gpus; gpu++)
		if (reality_has(&w.reality, gpu, &w.specs[function], function))
			return true;
	for (size_t i = 0; i < w.reality.running_count; i++)
		if (w.reality.running[i].function == function)
			return true;
	return false;
}

static bool may_be_there(uint32_t company, uint32_t function, uint32_t other)
{
	return other == function || w.with[function][company][other] || w.specs[other].min_replicas ||
	       w.specs[other].pinned || !is_there(other);
}

/* Something of the function's own begins to load. */
static void check_company(uint32_t function)
{
	bool allowed = !w.companies[function];
	for (uint32_t c = 0; c < w.companies[function]; c++) {
		bool all = true;
		for (uint32_t other = 0; other < w.functions; other++)
			all &= may_be_there(c, function, other);
		allowed |= all;
	}
	cr_assert(allowed, "function %u is loaded beside others that must leave before", function);
	w.checked += w.companies[function] > 0;
	w.loads++;
}

/* ---- a node that carries out actions ---------------------------------------------------------------------------- */

static void carry_out(const struct medusa_sched_action *a)
{
	uint64_t start = w.now;
	switch (a->type) {
	case MEDUSA_SCHED_ACTION_SWAP_IN:
	case MEDUSA_SCHED_ACTION_PRELOAD:
		if (a->gpu != MEDUSA_SCHED_NONE && a->artifact != MEDUSA_SCHED_CLASS_BACKBONE)
			check_company(a->function);
		reality_begin(&w.reality, a);
		later(draw(2 * SECOND),
		      (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_TRANSFER_DONE, .transfer = a->transfer});
		break;
	case MEDUSA_SCHED_ACTION_EVICT:
	case MEDUSA_SCHED_ACTION_OFFLOAD:
		reality_begin(&w.reality, a);
		if (a->transfer)
			later(draw(SECOND),
			      (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_EVICTED, .transfer = a->transfer});
		break;
	case MEDUSA_SCHED_ACTION_RUN:
	case MEDUSA_SCHED_ACTION_JOIN:
		reality_run(&w.reality, a, w.kv, true);
		for (size_t i = 0; i < w.count; i++)
			for (uint32_t t = 0; t < a->transfer_count; t++)
				if (w.pending[i].event.transfer == a->transfers[t] && w.pending[i].at > start)
					start = w.pending[i].at;
		for (uint32_t i = 0; i < a->request_count; i++)
			later(start - w.now + 1 + draw(draw(20) ? SECOND : 20 * SECOND),
			      (struct medusa_sched_event){
				  .type = MEDUSA_SCHED_EVENT_DONE, .request = a->requests[i], .batch = a->batch});
		break;
	case MEDUSA_SCHED_ACTION_REJECT:
		w.late += a->reason == MEDUSA_SCHED_REASON_WAITED_TOO_LONG;
		w.live--;
		break;
	case MEDUSA_SCHED_ACTION_SET_TIMER:
		w.timer = a->at;
		break;
	default:
		break;
	}
}

static void step(struct medusa_sched_event event)
{
	const struct medusa_sched_action *const *actions;
	size_t count;
	event.size = sizeof(event);
	event.now = w.now;
	cr_assert_eq(medusa_sched_step(w.sched, &event, &actions, &count), 0, "%s", medusa_sched_error(w.sched));
	for (size_t i = 0; i < count; i++)
		carry_out(actions[i]);
	cr_assert_eq(medusa_sched_audit(w.sched), 0, "%s", medusa_sched_error(w.sched));
}

static void happen(struct pending p)
{
	w.now = p.at > w.now ? p.at : w.now;
	if (p.event.type == MEDUSA_SCHED_EVENT_DONE) {
		w.served++;
		w.live--;
		reality_request_ends(&w.reality, p.event.request, p.event.batch);
	} else {
		reality_transfer_ends(&w.reality, p.event.transfer, false);
	}
	step(p.event);
}

/* The next thing that happens, up to then. False: there is none. */
static bool next_until(uint64_t until)
{
	size_t first = 0;
	for (size_t i = 1; i < w.count; i++)
		first = w.pending[i].at < w.pending[first].at ? i : first;
	bool rings = w.timer && (!w.count || w.timer < w.pending[first].at);
	if (rings ? w.timer > until : !w.count || w.pending[first].at > until)
		return false;
	if (rings) {
		w.now = w.timer > w.now ? w.timer : w.now;
		w.timer = 0;
		step((struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_TIMER});
		return true;
	}
	struct pending p = w.pending[first];
	w.pending[first] = w.pending[--w.count];
	happen(p);
	return true;
}

/* ---- worlds ----------------------------------------------------------------------------------------------------- */

static void create(uint64_t seed, const char *eviction)
{
	struct medusa_sched_gpu gpus[4];
	struct medusa_sched_options options = {.size = sizeof(options),
					       .seed = seed,
					       .queueing = any_policy(MEDUSA_SCHED_KIND_QUEUEING),
					       .placement = any_policy(MEDUSA_SCHED_KIND_PLACEMENT),
					       .eviction = eviction,
					       .batching = any_policy(MEDUSA_SCHED_KIND_BATCHING),
					       .preloading = any_policy(MEDUSA_SCHED_KIND_PRELOADING)};
	w.gpus = 1 + (uint32_t)draw(4);
	for (uint32_t i = 0; i < w.gpus; i++)
		gpus[i] = (struct medusa_sched_gpu){sizeof(gpus[i]), (40 + draw(100)) * GB, 0, 1 + (uint32_t)draw(4)};
	struct medusa_sched_node node = {
	    .size = sizeof(node), .gpus = gpus, .gpu_count = w.gpus, .host_bytes_per_s = 12e9};
	cr_assert_eq(medusa_sched_create(&node, &options, &w.sched), 0, "%s", medusa_sched_error(NULL));
}

static void add_functions(bool kept)
{
	uint32_t index, wanted = 2 + (uint32_t)draw(FUNCTIONS - 2);
	for (uint32_t b = 0; b < 3; b++) {
		struct medusa_sched_backbone backbone = {.size = sizeof(backbone), .bytes = 1 + draw(5 * GB)};
		cr_assert_eq(medusa_sched_add_backbone(w.sched, &backbone, &index), 0);
	}
	while (w.functions < wanted) {
		struct medusa_sched_function f = any_function();
		f.min_replicas = kept ? f.min_replicas : 0;
		f.pinned = kept && f.pinned;
		f.leave_cost = (uint32_t)draw(5);
		if (medusa_sched_add_function(w.sched, &f, &index))
			continue;
		w.reality.backbone_of[index] = f.backbone;
		w.reality.kv_of[index] = f.kv_bytes;
		w.specs[index] = f;
		w.functions++;
	}
}

/* Of a function, perhaps while the node serves: what is there already stays until something is loaded. */
static void give_rule(uint32_t function)
{
	struct medusa_sched_company companies[COMPANIES];
	uint32_t members[COMPANIES][FUNCTIONS], often = 1 + (uint32_t)draw(4);
	w.companies[function] = (uint32_t)draw(COMPANIES + 1);
	for (uint32_t c = 0; c < w.companies[function]; c++) {
		companies[c] = (struct medusa_sched_company){.size = sizeof(companies[c]), .functions = members[c]};
		for (uint32_t other = 0; other < w.functions; other++) {
			w.with[function][c][other] = draw(often) == 0;
			if (w.with[function][c][other])
				members[c][companies[c].count++] = other;
		}
	}
	cr_assert_eq(medusa_sched_set_company(w.sched, function, companies, w.companies[function]), 0, "%s",
		     medusa_sched_error(w.sched));
}

static void arrive(uint32_t busiest)
{
	w.live++;
	step((struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_ARRIVAL,
					 .request = w.requests++,
					 .function = draw(2) ? busiest : (uint32_t)draw(w.functions),
					 .priority = draw(8) ? 0 : (int32_t)draw(3)});
}

static void play(uint64_t seed, uint64_t requests)
{
	memset(&w, 0, sizeof(w));
	random_state = seed * 0x9e3779b97f4a7c15ull + 1;
	bool kept = draw(3) == 0;
	const char *eviction = any_policy(MEDUSA_SCHED_KIND_EVICTION);
	create(seed, eviction);
	add_functions(kept);
	for (uint32_t f = 0; f < w.functions; f++)
		give_rule(f);
	while (w.requests < requests) {
		if (w.live < LIVE && draw(3))
			arrive((uint32_t)(w.requests / 100 % w.functions));
		else if (draw(100) == 0)
			give_rule((uint32_t)draw(w.functions));
		else if (draw(50) == 0 && w.requests)
			step((struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_CANCEL,
							 .request = draw(w.requests)});
		uint64_t until = w.now + draw(SECOND);
		while (next_until(until))
			;
		w.now = until;
	}
	uint64_t last = w.now + 3000 * SECOND;
	while (w.live) {
		cr_assert(next_until(last), "%u requests wait, and nothing will happen", w.live);
	}
	/* Nobody waits for ever, except where nothing leaves or where others are kept: then by that, with rules or without. */
	bool fair = !kept && strcmp(eviction, "never") != 0;
	cr_assert(!fair || !w.late, "seed %llu: %llu of %llu requests waited too long", (unsigned long long)seed,
		  (unsigned long long)w.late, (unsigned long long)w.requests);
	medusa_sched_destroy(w.sched);
}

/* MEDUSA_EVENTS asks for more requests, MEDUSA_SEED for other ones. */
Test(scheduler_company_runs, nothing_is_loaded_against_a_rule, .timeout = 3000)
{
	const char *more = getenv("MEDUSA_EVENTS"), *other = getenv("MEDUSA_SEED");
	uint64_t total = more ? strtoull(more, NULL, 10) : 300000, each = 1000, loads = 0, checked = 0, served = 0;
	uint64_t first = other ? strtoull(other, NULL, 10) : 1;
	for (uint64_t seed = first; seed < first + total / each; seed++) {
		play(seed, each);
		loads += w.loads;
		checked += w.checked;
		served += w.served;
	}
	cr_assert_gt(checked, total / 20, "only %llu of %llu loads had a rule; %llu requests were served",
		     (unsigned long long)checked, (unsigned long long)loads, (unsigned long long)served);
}
