/* SPDX-License-Identifier: Apache-2.0 */
/* Which functions leave before another one is loaded, and who waits for whom meanwhile. */
#include "scheduler/core/company.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "scheduler/core/dispatch.h"
#include "scheduler/core/evict.h"
#include "scheduler/core/registry.h"
#include "scheduler/core/request.h"
#include "scheduler/core/stuck.h"
#include "scheduler/core/tenant.h"

/* ---- what is there ---------------------------------------------------------------------------------------------- */

static bool is_on_gpu(const struct medusa_sched *s, uint32_t artifact)
{
	bool there = false;
	for (uint32_t gpu = 0; !there && artifact != NONE && gpu < s->gpu_count; gpu++) {
		int state = md_copy_at(s, artifact, gpu)->state;
		there = state != MD_ABSENT && state != MD_SUSPENDED;
	}
	return there;
}

/* Whether anything of its own is on a GPU, or on its way there or from there, or it runs. */
static bool has_own(const struct medusa_sched *s, const struct md_function *f)
{
	bool there = f->first_batch != NONE;
	for (int kind = MEDUSA_SCHED_CLASS_WEIGHTS; kind <= MEDUSA_SCHED_CLASS_CONTEXT; kind++)
		there = there || is_on_gpu(s, f->artifacts[kind]);
	return there;
}

/* One of a backbone's functions stands for it: it is there as long as the backbone is. */
static bool stands_for_backbone(const struct medusa_sched *s, uint32_t function)
{
	uint32_t backbone = s->functions[function].spec.backbone;
	return backbone != NONE && s->backbones[backbone].first_user == function;
}

/* Whether something has to be loaded before it can run there. */
static bool must_load(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	bool must = false;
	for (int kind = 0; kind < MEDUSA_SCHED_CLASS_LIBRARY; kind++) {
		uint32_t artifact = s->functions[function].artifacts[kind];
		const struct md_copy *copy = artifact == NONE ? NULL : md_copy_at(s, artifact, gpu);
		must |= copy && copy->state != MD_THERE && copy->state != MD_LOADING;
	}
	return must;
}

/* Whether there is a GPU where its first request can run with what is there, now or later. */
static bool is_ready(const struct medusa_sched *s, uint32_t function)
{
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		bool ready = !must_load(s, function, gpu) && md_has_place(s, function, gpu);
		for (int kind = 0; ready && kind < MEDUSA_SCHED_CLASS_LIBRARY; kind++) {
			uint32_t artifact = s->functions[function].artifacts[kind];
			ready = artifact == NONE || !md_copy_at(s, artifact, gpu)->draining;
		}
		if (ready)
			return true;
	}
	return false;
}

/* ---- who leaves ------------------------------------------------------------------------------------------------- */

/* What is kept on GPUs stays there, whatever a rule says. */
static bool may_stay(const struct medusa_sched *s, const struct md_companies *companies, uint32_t set, uint32_t other)
{
	const struct medusa_sched_function *spec = &s->functions[other].spec;
	uint64_t word =
	    other / 64 < companies->words ? companies->bits[(size_t)set * companies->words + other / 64] : 0;
	return (word >> other % 64 & 1) || (!s->functions[other].gone && (spec->min_replicas || spec->pinned));
}

/* Whether all functions of the backbone must leave for this set; of those that are gone nothing is asked. */
static bool backbone_leaves(const struct medusa_sched *s, const struct md_companies *companies, uint32_t set,
			    uint32_t backbone)
{
	for (uint32_t f = s->backbones[backbone].first_user; f != NONE; f = s->functions[f].next_user)
		if (!s->functions[f].gone && may_stay(s, companies, set, f))
			return false;
	return true;
}

/* Whether something of `other` is there that would leave for this set, if it has to. */
static bool is_there(const struct medusa_sched *s, const struct md_companies *companies, uint32_t set, uint32_t other)
{
	const struct md_function *f = &s->functions[other];
	if (has_own(s, f))
		return true;
	return stands_for_backbone(s, other) && is_on_gpu(s, f->artifacts[MEDUSA_SCHED_CLASS_BACKBONE]) &&
	       backbone_leaves(s, companies, set, f->spec.backbone);
}

static uint64_t cost_of(const struct medusa_sched *s, const struct md_companies *companies, uint32_t set,
			const uint32_t *there, uint32_t count)
{
	uint64_t cost = 0;
	for (uint32_t i = 0; i < count; i++)
		if (!may_stay(s, companies, set, there[i]) && is_there(s, companies, set, there[i])) {
			uint32_t one = s->functions[there[i]].spec.leave_cost;
			cost += one ? one : 1;
		}
	return cost;
}

/* The company of which least has to leave; of equals the first. It is chosen once for a dispatch, or until something loads. */
static uint32_t choose(const struct medusa_sched *s, uint32_t function)
{
	struct md_companies *companies = s->functions[function].companies;
	uint32_t *there = s->company.there, count = 0;
	uint64_t least = UINT64_MAX, stamp = s->company.looks + s->generation;
	if (companies->count < 2 || companies->chosen_at == stamp)
		return companies->chosen;
	for (uint32_t f = 0; f < s->function_count; f++)
		if (f != function && (has_own(s, &s->functions[f]) || stands_for_backbone(s, f)))
			there[count++] = f;
	for (uint32_t set = 0; set < companies->count && least; set++) {
		uint64_t cost = cost_of(s, companies, set, there, count);
		if (cost < least) {
			least = cost;
			companies->chosen = set;
		}
	}
	companies->chosen_at = stamp;
	return companies->chosen;
}

/* Whether `other` has to leave before the function is loaded. */
static bool must_leave(const struct medusa_sched *s, uint32_t function, uint32_t other)
{
	const struct md_companies *companies = s->functions[function].companies;
	return companies && other != function && !may_stay(s, companies, choose(s, function), other);
}

/* Whether it has, and something of it is there. */
static bool hinders(const struct medusa_sched *s, uint32_t function, uint32_t other)
{
	return must_leave(s, function, other) &&
	       is_there(s, s->functions[function].companies, choose(s, function), other);
}

static bool is_blocked(const struct medusa_sched *s, uint32_t function)
{
	if (!s->functions[function].companies)
		return false;
	for (uint32_t f = 0; f < s->function_count; f++)
		if (hinders(s, function, f))
			return true;
	return false;
}

/* ---- who waits -------------------------------------------------------------------------------------------------- */

/* Whose turn it is of two that wait: by tenant, by priority, by age. */
static bool goes_before(const struct medusa_sched *s, uint32_t a, uint32_t b)
{
	const struct md_function *x = &s->functions[a], *y = &s->functions[b];
	double turn = md_tenant_turn(s, a), other = md_tenant_turn(s, b);
	if (turn < other || other < turn)
		return turn < other;
	int32_t rank = s->requests[md_first_waiting(s, a)].rank,
		rank_of_other = s->requests[md_first_waiting(s, b)].rank;
	if (rank != rank_of_other)
		return rank > rank_of_other;
	return x->company_order < y->company_order;
}

/* Whether the function is loaded only after another one that waits, for which it would have to leave. */
static bool is_behind(const struct medusa_sched *s, uint32_t function)
{
	bool waits = s->functions[function].company_waits && md_waiting(s, function);
	for (uint32_t i = 0; i < s->company.waiting_count; i++) {
		uint32_t other = s->company.waiting[i];
		if (md_waiting(s, other) && must_leave(s, other, function) &&
		    !(waits && goes_before(s, function, other)))
			return true;
	}
	return false;
}

/*
 * Whether what is there has served long enough while the other one waited. What was loaded meanwhile is used for a while,
 * too; a request of a higher priority waits for none that comes later.
 */
static bool has_had_turn(const struct medusa_sched *s, uint32_t function, uint32_t waits)
{
	const struct md_function *f = &s->functions[function], *other = &s->functions[waits];
	uint64_t since = other->company_since > f->loaded_at ? other->company_since : f->loaded_at;
	uint32_t own = md_first_waiting(s, function), first = md_first_waiting(s, waits);
	if (own != NONE && s->requests[own].tenant == s->requests[first].tenant &&
	    s->requests[first].rank > s->requests[own].rank)
		return true;
	return s->now - since >= md_patience(s);
}

bool md_company_yields(const struct medusa_sched *s, uint32_t function)
{
	for (uint32_t i = 0; i < s->company.waiting_count; i++) {
		uint32_t other = s->company.waiting[i];
		if (md_waiting(s, other) && must_leave(s, other, function) && has_had_turn(s, function, other) &&
		    !is_behind(s, other))
			return true;
	}
	return false;
}

/* The caller has made room for all functions. */
static void enlist(struct medusa_sched *s, uint32_t function)
{
	struct md_function *f = &s->functions[function];
	if (f->company_waits)
		return;
	f->company_waits = true;
	f->company_since = s->now;
	f->company_order = ++s->company.order;
	s->company.waiting[s->company.waiting_count++] = function;
}

void md_company_left(struct medusa_sched *s, uint32_t function)
{
	if (!s->functions[function].company_waits)
		return;
	uint32_t at = 0;
	while (s->company.waiting[at] != function)
		at++;
	memmove(s->company.waiting + at, s->company.waiting + at + 1,
		(s->company.waiting_count - at - 1) * sizeof(*s->company.waiting));
	s->company.waiting_count--;
	s->functions[function].company_waits = false;
}

void md_company_again(struct medusa_sched *s)
{
	s->company.looks++;
	for (uint32_t i = s->company.waiting_count; i-- > 0;) {
		/* the list may have become shorter */
		uint32_t function = i < s->company.waiting_count ? s->company.waiting[i] : NONE;
		if (function != NONE && s->functions[function].claim == NONE)
			md_function_changed(s, function);
	}
}

/* ---- whether it is its turn ------------------------------------------------------------------------------------- */

/* Whether the one that must leave has requests that are served before. */
static bool serves(const struct medusa_sched *s, uint32_t function, uint32_t other)
{
	bool turn = s->functions[function].company_waits && md_waiting(s, function) && has_had_turn(s, other, function);
	return md_waiting(s, other) && is_ready(s, other) && !turn;
}

/* The backbone goes with its function if that has to leave, and serves nobody. */
static void evict_backbone(struct medusa_sched *s, uint32_t function, uint32_t other)
{
	uint32_t backbone = s->functions[other].spec.backbone;
	if (!stands_for_backbone(s, other) ||
	    !backbone_leaves(s, s->functions[function].companies, choose(s, function), backbone))
		return;
	for (uint32_t f = s->backbones[backbone].first_user; f != NONE; f = s->functions[f].next_user)
		if (serves(s, function, f))
			return;
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++)
		md_evict_backbone(s, backbone, gpu);
}

/* Evicts what is idle and must leave; with requests that may still be served before, it stays. True: nothing is left. */
static bool clear(struct medusa_sched *s, uint32_t function)
{
	bool left = false;
	for (uint32_t f = 0; s->functions[function].companies && f < s->function_count; f++) {
		if (!hinders(s, function, f))
			continue;
		for (uint32_t gpu = 0; gpu < s->gpu_count && !serves(s, function, f); gpu++)
			md_evict_function(s, f, gpu);
		evict_backbone(s, function, f);
		left |= hinders(s, function, f);
	}
	return !left;
}

bool md_company_waits(struct medusa_sched *s, uint32_t function)
{
	if (is_ready(s, function)) {
		if (!md_company_yields(s, function))
			return false;
		enlist(s, function);
		return true;
	}
	if (s->functions[function].companies)
		enlist(s, function); /* until it runs: what has left for it does not come back before */
	if (is_behind(s, function)) {
		enlist(s, function);
		return true;
	}
	return !clear(s, function);
}

bool md_company_clears(struct medusa_sched *s, uint32_t function)
{
	return !is_behind(s, function) && clear(s, function);
}

bool md_company_fits(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	return !must_load(s, function, gpu) || (!is_behind(s, function) && !is_blocked(s, function));
}

/* ---- rules ------------------------------------------------------------------------------------------------------ */

static size_t companies_bytes(uint32_t count, uint32_t words)
{
	return sizeof(struct md_companies) + (size_t)count * words * sizeof(uint64_t);
}

bool md_company_reserve(struct medusa_sched *s, uint32_t functions)
{
	uint32_t room = s->company.capacity;
	if (!MD_ARRAY_RESERVE(s->company.waiting, functions, room))
		return false;
	uint32_t *there = md_array_resize(s->company.there, room, sizeof(*there));
	if (!there)
		return false;
	s->company.there = there;
	s->company.capacity = room;
	return true;
}

void md_company_drop(struct medusa_sched *s, uint32_t function)
{
	struct md_function *f = &s->functions[function];
	if (!f->companies)
		return;
	s->company.rules--;
	s->company.bytes -= companies_bytes(f->companies->count, f->companies->words);
	free(f->companies);
	f->companies = NULL;
}

void md_company_destroy(struct medusa_sched *s)
{
	for (uint32_t i = 0; s->company.rules && i < s->function_count; i++)
		md_company_drop(s, i);
	free(s->company.waiting);
	free(s->company.there);
}

static int read_company(struct medusa_sched *s, const struct medusa_sched_company *given, uint32_t number,
			struct md_companies *companies)
{
	struct medusa_sched_company company;
	uint64_t *bits = companies->bits + (size_t)number * companies->words;
	if (!md_take_struct(given, sizeof(company), &company))
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "companies[%u].size is not that of a struct medusa_sched_company, or fields that this "
			       "library does not know are set",
			       number);
	if (company.count && !company.functions)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "companies[%u].functions is NULL", number);
	for (uint32_t i = 0; i < company.count; i++) {
		uint32_t f = company.functions[i];
		if (f >= s->function_count)
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
				       "companies[%u].functions[%u] is %u, but only %u functions are registered",
				       number, i, f, s->function_count);
		bits[f / 64] |= UINT64_C(1) << f % 64;
	}
	return MEDUSA_SCHED_OK;
}

static int read_companies(struct medusa_sched *s, const struct medusa_sched_company *given, uint32_t count,
			  struct md_companies **made)
{
	const char *at = (const char *)given;
	uint32_t words = (s->function_count + 63) / 64;
	struct md_companies *companies = calloc(1, companies_bytes(count, words));
	if (!companies || !md_company_reserve(s, s->function_capacity)) {
		free(companies);
		return md_fail(s, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for %u companies", count);
	}
	companies->count = count;
	companies->words = words;
	companies->chosen_at = UINT64_MAX;
	for (uint32_t i = 0; i < count; i++) {
		const struct medusa_sched_company *one = (const struct medusa_sched_company *)(const void *)at;
		int code = read_company(s, one, i, companies);
		if (code) {
			free(companies);
			return code;
		}
		at += one->size;
	}
	*made = companies;
	return MEDUSA_SCHED_OK;
}

MD_EXPORT int medusa_sched_set_company(struct medusa_sched *s, uint32_t function,
				       const struct medusa_sched_company *given, uint32_t count)
{
	struct md_companies *companies = NULL;
	if (!s)
		return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID, "sched is NULL");
	if (function >= s->function_count || s->functions[function].gone)
		return md_fail(s, MEDUSA_SCHED_ERR_NOT_FOUND, "function %u is not registered", function);
	if (count && !given)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "companies is NULL, and count is %u", count);
	int code = count ? read_companies(s, given, count, &companies) : MEDUSA_SCHED_OK;
	if (code)
		return code;
	md_company_drop(s, function);
	s->functions[function].companies = companies;
	if (companies) {
		s->company.rules++;
		s->company.bytes += companies_bytes(companies->count, companies->words);
	}
	md_stuck_stir(s, s->now);
	return MEDUSA_SCHED_OK;
}
