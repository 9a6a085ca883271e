/* SPDX-License-Identifier: Apache-2.0 */
/* One routing runs all requests of a cluster: nodes, requests, what nodes tell, plans and losses in one order of time. */
#include <math.h> /* sqrt is exact */
#include <stdlib.h>

#define MD_LOG_DOMAIN "simulate"
#include "base/clock.h"
#include "base/log.h"
#include "simulator/cluster/cluster_state.h"
#include "simulator/run/run_state.h"

#define CHECKED_MOST 8192u /* functions; what is asked for later is checked by its node */
#define PROGRESS_NS UINT64_C(100000000)
#define PATIENCE_NS (UINT64_C(1800) * 1000000000) /* as in a run of one node, simulator/run/play.c */

enum md_status md_sim_cluster_no_memory(const struct md_sim_cluster_state *state)
{
	return md_error_set(state->err, MD_ERR_NO_MEMORY, "out of memory for the simulation of a cluster");
}

/* ---- what can be simulated ---- */

/* A function of each model is told to a scheduler that does nothing else: what fits no GPU is found before anything runs. */
static enum md_status check_function(const struct md_sim_cluster_state *state, struct medusa_sched *sched,
				     const struct md_sim_function *function)
{
	const char *file = state->functions.file ? state->functions.file : "functions";
	uint32_t index;
	if (function->spec.backbone != MEDUSA_SCHED_NONE)
		return md_error_set(state->err, MD_ERR_INVALID,
				    "%s:%u: function %s has a backbone; a cluster is simulated without backbones", file,
				    function->line, function->name);
	if (medusa_sched_add_function(sched, &function->spec, &index))
		return md_error_set(state->err, MD_ERR_INVALID, "%s:%u: function %s: %s", file, function->line,
				    function->name, medusa_sched_error(sched));
	return MD_OK;
}

static enum md_status check_functions(const struct md_sim_cluster_state *state)
{
	struct medusa_sched *sched = NULL;
	uint32_t model = MEDUSA_SCHED_NONE;
	MD_FORWARD(md_sim_run_scheduler(&state->node, state->inputs->policy, 1, &sched, state->err));
	enum md_status status = MD_OK;
	for (uint32_t i = 0; status == MD_OK && i < state->functions.count; i++) {
		const struct md_sim_function *function = &state->functions.functions[i];
		if (function->model != model && i < CHECKED_MOST)
			status = check_function(state, sched, function);
		model = function->model;
	}
	medusa_sched_destroy(sched);
	return status;
}

static enum md_status check(const struct md_sim_cluster_state *state)
{
	const struct md_sim_workload *workload = state->workload;
	if (state->inputs->policy->early_binding)
		return md_error_set(state->err, MD_ERR_INVALID,
				    "policy %s binds functions to GPUs for ever; a cluster is simulated with policies "
				    "of the scheduler",
				    state->inputs->policy->name);
	if (state->functions.tenant_count)
		return md_error_set(state->err, MD_ERR_INVALID, "%s: tenants: a cluster is simulated without tenants",
				    state->functions.file ? state->functions.file : "functions");
	for (size_t i = 0; i < workload->count; i++)
		if (workload->requests[i].function >= state->functions.count)
			return md_error_set(state->err, MD_ERR_INVALID, "request %zu is for function %u of %u", i,
					    workload->requests[i].function, state->functions.count);
	return check_functions(state);
}

/* ---- beginning and end ---- */

static enum md_status allocate(struct md_sim_cluster_state *state)
{
	size_t count = state->count;
	state->members = calloc(count, sizeof(*state->members));
	state->heap = calloc(count, sizeof(*state->heap));
	state->at = calloc(count, sizeof(*state->at));
	state->open = calloc(count * count, sizeof(*state->open));
	state->asked = calloc(state->workload->count + 1, sizeof(*state->asked));
	if (!state->members || !state->heap || !state->at || !state->open || !state->asked)
		return md_sim_cluster_no_memory(state);
	for (uint32_t i = 0; i < state->count; i++) {
		state->heap[i] = state->members[i].heap = i;
		state->members[i].due = MD_SIM_NEVER;
	}
	return MD_OK;
}

static enum md_status prepare(struct md_sim_cluster_state *state)
{
	MD_FORWARD(md_sim_run_prepare(state->inputs->functions, state->inputs->policy, &state->functions, state->err));
	for (uint32_t i = 0; i < state->functions.count; i++)
		state->functions.functions[i].spec.in_host = 0;
	MD_FORWARD(check(state));
	MD_FORWARD(allocate(state));
	MD_FORWARD(md_sim_seats_prepare(state));
	MD_FORWARD(md_sim_losses_prepare(state));
	for (uint32_t i = 0; i < state->count; i++) {
		MD_FORWARD(md_sim_member_begin(state, i));
		md_sim_heap_update(state, i);
	}
	return MD_OK;
}

static void finish(struct md_sim_cluster_state *state)
{
	for (uint32_t i = 0; state->members && i < state->count; i++) {
		md_sim_member_free(&state->members[i]);
		free(state->members[i].locals);
		free(state->members[i].wanted);
	}
	md_sim_seats_finish(state);
	free(state->members);
	free(state->heap);
	free(state->at);
	free(state->open);
	free(state->asked);
	free(state->happenings);
	md_sim_run_unprepare(&state->functions);
}

static void sum_stats(const struct md_sim_cluster_state *state, struct medusa_sched_stats *sum)
{
	*sum = state->gone;
	for (uint32_t i = 0; i < state->count; i++)
		md_sim_member_add_stats(&state->members[i], sum);
}

/* ---- the loop ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static enum md_status arrive(struct md_sim_cluster_state *state)
{
	size_t request = state->arrived++;
	struct md_sim_asked *asked = &state->asked[request];
	asked->counted = state->workload->requests[request].at >= state->cluster->warmup_ns;
	if (asked->counted && !state->warm) {
		state->warm = true;
		sum_stats(state, &state->before);
	}
	state->result->requests += asked->counted;
	return md_sim_route(state, request, MEDUSA_SCHED_NONE);
}

static enum md_status plan(struct md_sim_cluster_state *state)
{
	state->plan_at += state->cluster->placement_ns;
	return md_sim_round(state);
}

static enum md_status go_on(struct md_sim_cluster_state *state)
{
	uint32_t node = state->heap[0];
	bool loads = state->members[node].job != 0;
	MD_FORWARD(md_sim_member_go_on(state, node));
	return loads && !state->members[node].job ? md_sim_obey(state, node) : MD_OK;
}

/* When nothing is left but what nodes tell and plan: a trace without a next request, and nodes without an event. */
static bool is_over(const struct md_sim_cluster_state *state, uint64_t next)
{
	bool came = state->arrived == state->workload->count;
	return (came && state->ended == state->workload->count) || next == MD_SIM_NEVER ||
	       (came && next > state->workload->end + PATIENCE_NS + state->inputs->policy->max_wait_ns);
}

/* At equal times: what nodes do, losses, what they tell, plans, requests. */
static enum md_status turn(struct md_sim_cluster_state *state, bool *over)
{
	const struct md_sim_workload *workload = state->workload;
	uint64_t due = state->members[state->heap[0]].due;
	uint64_t loss = state->happened < state->happening_count ? state->happenings[state->happened].at : MD_SIM_NEVER;
	uint64_t arrival = state->arrived < workload->count ? workload->requests[state->arrived].at : MD_SIM_NEVER;
	uint64_t told_ns = state->cluster->told_ns;
	uint64_t told = state->touched_count ? (state->now / told_ns + 1) * told_ns : MD_SIM_NEVER;
	uint64_t next = least(least(due, loss), least(least(told, state->plan_at), arrival));
	*over = is_over(state, next);
	if (*over)
		return MD_OK;
	state->now = next;
	if (due == next)
		return go_on(state);
	if (loss == next)
		return md_sim_losses_happen(state);
	if (told == next) {
		md_sim_seats_tell(state);
		return MD_OK;
	}
	return state->plan_at == next ? plan(state) : arrive(state);
}

static enum md_status play(struct md_sim_cluster_state *state, const struct md_sim_progress *progress)
{
	uint64_t reported = md_clock_ns();
	bool over = false;
	state->plan_at = state->cluster->placement_ns ? state->cluster->placement_ns : MD_SIM_NEVER;
	for (uint64_t turns = 0; !over; turns++) {
		MD_FORWARD(turn(state, &over));
		if (turns % 1024 || !progress || md_clock_ns() - reported < PROGRESS_NS)
			continue;
		reported = md_clock_ns();
		progress->report(progress->user, (double)state->ended / (double)state->workload->count,
				 (double)state->now / 1e9, state->ended);
	}
	return MD_OK;
}

/* ---- what came out ---- */

static void spread(const double *values, size_t count, struct md_sim_spread *spread)
{
	double sum = 0, squares = 0;
	for (size_t i = 0; i < count; i++) {
		spread->least = !i || values[i] < spread->least ? values[i] : spread->least;
		spread->most = !i || values[i] > spread->most ? values[i] : spread->most;
		sum += values[i];
	}
	spread->mean = count ? sum / (double)count : 0;
	for (size_t i = 0; i < count; i++)
		squares += (values[i] - spread->mean) * (values[i] - spread->mean);
	spread->deviation = count ? sqrt(squares / (double)count) : 0;
}

static enum md_status measure_nodes(struct md_sim_cluster_state *state)
{
	struct md_sim_cluster_result *result = state->result;
	double *load = calloc((size_t)state->count * 2, sizeof(*load)), *busy = load ? load + state->count : NULL;
	double gpu_s = (double)state->now / 1e9 * state->node.gpu_count;
	size_t count = 0;
	if (!load)
		return md_sim_cluster_no_memory(state);
	for (uint32_t i = 0; i < state->count; i++) {
		const struct md_sim_member *member = &state->members[i];
		uint64_t contradictions = 0;
		if (!member->lives)
			continue;
		load[count] = (double)member->served;
		busy[count++] = gpu_s > 0 ? md_sim_member_busy_s(member, state->node.gpu_count) / gpu_s : 0;
		const char *complaint = md_sim_model_complaint(member->model, &contradictions);
		if (complaint && !result->contradictions)
			md_warn("routing %s, node %u: actions contradict the node: %s",
				md_sim_routing_name(state->routing), i, complaint);
		result->contradictions += contradictions;
	}
	spread(load, count, &result->load);
	spread(busy, count, &result->busy);
	free(load);
	return MD_OK;
}

static enum md_status conclude(struct md_sim_cluster_state *state)
{
	struct md_sim_cluster_result *result = state->result;
	struct medusa_sched_stats all;
	sum_stats(state, &all);
	result->swaps_host = all.swaps_host - state->before.swaps_host;
	result->swaps_peer = all.swaps_peer - state->before.swaps_peer;
	result->swaps_cold = all.swaps_cold - state->before.swaps_cold;
	result->preloads = all.preloads - state->before.preloads;
	result->bytes_host = all.bytes_host - state->before.bytes_host;
	result->bytes_peer = all.bytes_peer - state->before.bytes_peer;
	result->bytes_cold = all.bytes_cold - state->before.bytes_cold;
	result->unfinished = state->workload->count - state->ended;
	result->end_s = (double)state->now / 1e9;
	return measure_nodes(state);
}

enum md_status md_sim_cluster_run(const struct md_sim_cluster_inputs *inputs, enum md_sim_routing routing,
				  const struct md_sim_progress *progress, struct md_sim_cluster_result *result,
				  struct md_error *err)
{
	struct md_error own = {0};
	struct md_sim_cluster_result played = {.routing = routing};
	struct md_sim_cluster_state state = {.inputs = inputs,
					     .cluster = inputs->cluster,
					     .node = *inputs->node,
					     .workload = inputs->workload,
					     .routing = routing,
					     .random = md_sim_random_of(inputs->seed, 0x726f757465u),
					     .count = inputs->cluster->nodes,
					     .result = &played,
					     .err = err ? err : &own};
	uint64_t began = md_clock_ns();
	state.node.report_every_ns = state.node.report_lag_ns = 0;
	enum md_status status = prepare(&state);
	if (status == MD_OK)
		status = play(&state, progress);
	if (status == MD_OK)
		status = conclude(&state);
	finish(&state);
	played.wall_s = (double)(md_clock_ns() - began) / 1e9;
	if (status == MD_OK)
		*result = played;
	else
		md_sim_cluster_result_finish(&played);
	return status;
}

void md_sim_cluster_result_finish(struct md_sim_cluster_result *result)
{
	md_sim_samples_finish(&result->ttft_ms);
	md_sim_samples_finish(&result->plan_ms);
	*result = (struct md_sim_cluster_result){0};
}
