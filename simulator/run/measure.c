/* SPDX-License-Identifier: Apache-2.0 */
/* Follows each request from its arrival to its end, and counts it once. */
#include <stdlib.h>

#include "simulator/run/run_state.h"

static double ms(uint64_t ns)
{
	return (double)ns / 1e6;
}

enum md_status md_sim_measure_init(struct md_sim_measure *measure, const struct md_sim_functions *functions,
				   const struct md_sim_workload *workload, struct md_sim_result *result,
				   struct md_error *err)
{
	size_t count = workload->count + 1;
	*measure = (struct md_sim_measure){.functions = functions, .workload = workload, .result = result};
	measure->started = calloc(count, sizeof(*measure->started));
	measure->first = calloc(count, sizeof(*measure->first));
	measure->ended = calloc(count, sizeof(*measure->ended));
	measure->batch = calloc(count, sizeof(*measure->batch));
	measure->aborted = calloc(count, sizeof(*measure->aborted));
	result->functions = calloc(functions->count + 1, sizeof(*result->functions));
	result->function_count = functions->count;
	if (!measure->started || !measure->first || !measure->ended || !measure->batch || !measure->aborted ||
	    !result->functions)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %zu requests", workload->count);
	return md_sim_tenants_init(&measure->tenants, functions, result, err);
}

void md_sim_measure_finish(struct md_sim_measure *measure)
{
	free(measure->started);
	free(measure->first);
	free(measure->ended);
	md_sim_track_finish(&measure->track);
	md_sim_tenants_finish(&measure->tenants);
	free(measure->batch);
	free(measure->aborted);
	*measure = (struct md_sim_measure){0};
}

static bool end_once(struct md_sim_measure *measure, uint64_t request, uint64_t now)
{
	if (request >= measure->workload->count || measure->ended[request])
		return false;
	measure->ended[request] = true;
	measure->ended_count++;
	measure->last_end = now;
	md_sim_tenants_ended(&measure->tenants, measure->workload->requests[request].tenant);
	return true;
}

static bool serve(struct md_sim_measure *measure, uint64_t request, uint64_t now)
{
	const struct md_sim_request *asked = &measure->workload->requests[request];
	const struct medusa_sched_function *spec = &measure->functions->functions[asked->function].spec;
	struct md_sim_function_result *function = &measure->result->functions[asked->function];
	struct md_sim_result *result = measure->result;
	uint64_t first = measure->first[request] ? measure->first[request] : now;
	uint64_t ttft = first - asked->at;
	uint64_t latency = spec->slo_goal == MEDUSA_SCHED_GOAL_FIRST_TOKEN ? ttft : now - asked->at;
	const struct md_sim_served served = {.met = spec->slo_ns && latency <= spec->slo_ns,
					     .ttft_ms = ms(ttft),
					     .wait_ms = ms(measure->started[request] - asked->at)};
	function->served++;
	function->met += served.met;
	result->served++;
	result->met += served.met;
	md_sim_track_now(&measure->track)->served++;
	md_sim_track_now(&measure->track)->met += served.met;
	return md_sim_samples_add(&function->latency_ms, ms(latency)) &&
	       md_sim_samples_add(&function->ttft_ms, served.ttft_ms) &&
	       md_sim_samples_add(&result->latency_ms, ms(latency)) &&
	       md_sim_samples_add(&result->ttft_ms, served.ttft_ms) &&
	       md_sim_samples_add(&result->end_ms, ms(now - asked->at)) &&
	       md_sim_samples_add(&result->wait_ms, served.wait_ms) &&
	       md_sim_tenants_served(&measure->tenants, asked->tenant, &served);
}

static void refuse(struct md_sim_measure *measure, uint64_t now, uint64_t request, unsigned reason)
{
	if (!end_once(measure, request, now))
		return;
	md_sim_track_now(&measure->track)->rejected++;
	const struct md_sim_request *asked = &measure->workload->requests[request];
	if (reason < MD_SIM_REASONS)
		measure->result->rejected[reason]++;
	measure->result->functions[asked->function].rejected++;
	md_sim_tenants_refused(&measure->tenants, asked->tenant, reason);
}

/* A run that timed out is over for its request, which may run elsewhere by now. */
static bool done(struct md_sim_measure *measure, const struct medusa_sched_event *event)
{
	unsigned reason = measure->aborted[event->request];
	if (measure->batch[event->request] != event->batch || reason == MEDUSA_SCHED_REASON_TIMED_OUT)
		return true;
	if (reason) {
		refuse(measure, event->now, event->request, reason);
		return true;
	}
	return !end_once(measure, event->request, event->now) || serve(measure, event->request, event->now);
}

bool md_sim_measure_event(struct md_sim_measure *measure, const struct medusa_sched_event *event)
{
	switch (event->type) {
	case MEDUSA_SCHED_EVENT_ARRIVAL:
		measure->result->requests++;
		measure->result->functions[event->function].requests++;
		md_sim_tenants_arrived(&measure->tenants, event->tenant);
		md_sim_track_now(&measure->track)->arrived++;
		return true;
	case MEDUSA_SCHED_EVENT_FIRST_TOKEN:
		measure->first[event->request] = event->now;
		return true;
	case MEDUSA_SCHED_EVENT_DONE:
		return done(measure, event);
	default:
		return true;
	}
}

/* False: out of memory. */
static bool run(struct md_sim_measure *measure, uint64_t now, const struct medusa_sched_action *action)
{
	for (uint32_t r = 0; r < action->request_count; r++) {
		uint64_t request = action->requests[r];
		measure->started[request] = now;
		measure->first[request] = 0; /* of a batch that has failed */
		measure->batch[request] = action->batch;
		measure->aborted[request] = 0;
	}
	return md_sim_samples_add(&measure->result->batch, action->request_count);
}

/* The function that a swap is for: a backbone's is the one whose batch starts in the same step, on that GPU. */
static uint32_t beneficiary(const struct medusa_sched_action *const *actions, size_t count,
			    const struct medusa_sched_action *swap)
{
	if (swap->artifact != MEDUSA_SCHED_CLASS_BACKBONE)
		return swap->function;
	for (size_t i = 0; i < count; i++)
		if (actions[i]->type == MEDUSA_SCHED_ACTION_RUN && actions[i]->gpu == swap->gpu)
			return actions[i]->function;
	return MEDUSA_SCHED_NONE;
}

/* Contexts are made in place: no swap. */
static void count_swaps(struct md_sim_measure *measure, const struct medusa_sched_action *const *actions, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (actions[i]->type != MEDUSA_SCHED_ACTION_SWAP_IN || actions[i]->source == MEDUSA_SCHED_SOURCE_MADE)
			continue;
		uint32_t function = beneficiary(actions, count, actions[i]);
		md_sim_track_now(&measure->track)->swaps++;
		if (function < measure->functions->count)
			measure->result->functions[function].swaps++;
	}
}

bool md_sim_measure_actions(struct md_sim_measure *measure, uint64_t now,
			    const struct medusa_sched_action *const *actions, size_t count)
{
	count_swaps(measure, actions, count);
	for (size_t i = 0; i < count; i++) {
		const struct medusa_sched_action *a = actions[i];
		if (a->type == MEDUSA_SCHED_ACTION_REJECT)
			refuse(measure, now, a->request, a->reason);
		else if (a->type == MEDUSA_SCHED_ACTION_ABORT && a->batch && measure->batch[a->request] == a->batch)
			measure->aborted[a->request] = (uint8_t)a->reason;
		else if ((a->type == MEDUSA_SCHED_ACTION_RUN || a->type == MEDUSA_SCHED_ACTION_JOIN) &&
			 !run(measure, now, a))
			return false;
	}
	return true;
}

void md_sim_measure_comply(struct md_sim_measure *measure)
{
	for (uint32_t i = 0; i < measure->functions->count; i++) {
		const struct medusa_sched_function *spec = &measure->functions->functions[i].spec;
		struct md_sim_function_result *function = &measure->result->functions[i];
		double part = spec->slo_percentile > 0 ? spec->slo_percentile : 0.98;
		function->counted = function->requests && spec->slo_ns;
		/* rejected requests count as not served in time; the margin covers rounding of the product */
		function->compliant = function->counted && function->served &&
				      (double)function->met >= part * (double)function->requests - 1e-9;
		measure->result->running_functions += function->served > 0;
	}
}
