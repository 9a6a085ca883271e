/* SPDX-License-Identifier: Apache-2.0 */
/* One policy runs one workload: the scheduler decides, the model advances time, until nothing is left. */
#include <stdlib.h>
#include <string.h>

#define MD_LOG_DOMAIN "simulate"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "simulator/model/node_model.h"
#include "simulator/run/run_state.h"

#define NEVER UINT64_MAX
#define PROGRESS_NS UINT64_C(100000000)
/*
 * Longer than any wait that the scheduler allows: if no request has ended for so long, and no copy or batch is under way,
 * none will. Copies alone, so many of them without a request that ends, serve nobody.
 */
#define PATIENCE_NS (UINT64_C(1800) * 1000000000)
#define COPIES_IN_VAIN 1000000u
/*
 * After so many rounds of memory reports to an idle node that nobody acted on, further ones are left out: a wrong time in
 * a trace would keep the simulation busy for hours with them. Shorter gaps are simulated to the last report.
 */
#define ROUNDS_IN_VAIN 100000u

struct run {
	const struct md_sim_node *node;
	struct md_sim_functions functions; /* as modified by the policy */
	const struct md_sim_workload *workload;
	const struct md_sim_policy *policy;
	struct medusa_sched *sched;   /* one of these two decides */
	struct md_sim_native *native; /* decides */
	struct md_sim_model *model;
	struct md_sim_measure measure;
	struct md_sim_samples decide_us;
	struct md_stopwatch stopwatch;
	struct md_sim_memory *memory; /* by GPU, as last sampled */
	struct md_sim_result *result;
	const struct medusa_sched_event *faults;
	size_t fault_count;
	size_t arrived;
	uint64_t now, timer;
	uint64_t acted;           /* when anything but a memory report happened last, or an action followed from one */
	uint64_t ended_at_last;   /* md_sim_model_ended() when a request ended last */
	uint64_t began, reported; /* real time */
};

static enum md_status no_memory(struct md_error *err)
{
	return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the simulation");
}

/* ---- who decides ------------------------------------------------------------------------------------------------- */

static enum md_status refused(const struct medusa_sched *sched, const char *what, const char *name,
			      struct md_error *err)
{
	return md_error_set(err, MD_ERR_INVALID, "%s %s: %s", what, name ? name : "?", medusa_sched_error(sched));
}

/* Where the function is described, and what takes how much of a GPU. */
static enum md_status refused_function(const struct run *run, const struct md_sim_function *function,
				       struct md_error *err)
{
	const struct medusa_sched_function *spec = &function->spec;
	uint64_t backbone =
	    spec->backbone < run->functions.backbone_count ? run->functions.backbones[spec->backbone].spec.bytes : 0;
	if (!run->functions.file)
		return refused(run->sched, "function", function->name, err);
	return md_error_set(err, MD_ERR_INVALID,
			    "%s:%u: function %s: %s (backbone %.3g GB, weights %.3g GB, context %.3g GB, KV cache of a "
			    "request %.3g GB)",
			    run->functions.file, function->line, function->name, medusa_sched_error(run->sched),
			    (double)backbone / 1e9, (double)spec->weight_bytes / 1e9, (double)spec->context_bytes / 1e9,
			    (double)spec->kv_bytes / 1e9);
}

static enum md_status tell_tenants(struct run *run, struct md_error *err)
{
	for (uint32_t i = 0; i < run->functions.tenant_count; i++) {
		const struct medusa_sched_tenant *spec = &run->functions.tenants[i].spec;
		uint32_t index;
		if (i ? medusa_sched_add_tenant(run->sched, spec, &index)
		      : medusa_sched_change_tenant(run->sched, 0, spec))
			return refused(run->sched, "tenant", run->functions.tenants[i].name, err);
	}
	return MD_OK;
}

static enum md_status tell_functions(struct run *run, struct md_error *err)
{
	uint32_t index;
	for (uint32_t i = 0; i < run->functions.backbone_count; i++) {
		struct medusa_sched_backbone spec = run->functions.backbones[i].spec;
		spec.size = sizeof(spec);
		if (medusa_sched_add_backbone(run->sched, &spec, &index))
			return refused(run->sched, "backbone", run->functions.backbones[i].name, err);
	}
	for (uint32_t i = 0; i < run->functions.count; i++) {
		if (medusa_sched_add_function(run->sched, &run->functions.functions[i].spec, &index))
			return refused_function(run, &run->functions.functions[i], err);
	}
	return MD_OK;
}

static enum md_status create_scheduler(struct run *run, uint64_t seed, struct md_error *err)
{
	MD_FORWARD(md_sim_run_scheduler(run->node, run->policy, seed, &run->sched, err));
	MD_FORWARD(tell_tenants(run, err));
	return tell_functions(run, err);
}

static enum md_status create_parts(struct run *run, uint64_t seed, struct md_error *err)
{
	const struct md_sim_model_options options = {
	    .node = run->node,
	    .functions = &run->functions,
	    .workload = run->workload,
	    .no_blocks = run->policy->no_blocks,
	    .bound = run->policy->early_binding,
	    .faults = run->faults,
	    .fault_count = run->fault_count,
	};
	MD_FORWARD(md_sim_measure_init(&run->measure, &run->functions, run->workload, run->result, err));
	MD_FORWARD(md_sim_track_init(&run->measure.track, run->workload->end, run->node->gpu_count, err));
	run->memory = calloc(run->node->gpu_count + 1, sizeof(*run->memory));
	if (!run->memory)
		return no_memory(err);
	MD_FORWARD(md_sim_model_create(&options, &run->model, err));
	if (run->policy->early_binding)
		return md_sim_native_create(run->node, &run->functions, run->workload, &run->native, err);
	return create_scheduler(run, seed, err);
}

/* ---- the loop --------------------------------------------------------------------------------------------------- */

static enum md_status decide(struct run *run, const struct medusa_sched_event *event,
			     const struct medusa_sched_action *const **actions, size_t *count, struct md_error *err)
{
	if (run->native) {
		md_sim_native_step(run->native, event, actions, count);
		return MD_OK;
	}
	struct medusa_sched_event sized = *event;
	sized.size = sizeof(sized);
	md_stopwatch_start(&run->stopwatch);
	int code = medusa_sched_step(run->sched, &sized, actions, count);
	if (!md_sim_samples_add(&run->decide_us, (double)md_stopwatch_stop(&run->stopwatch) / 1e3))
		return no_memory(err);
	if (code)
		return md_error_set(err, code == MEDUSA_SCHED_ERR_NO_MEMORY ? MD_ERR_NO_MEMORY : MD_ERR_INVALID,
				    "policy %s, at %.6f s, event %d: %s", run->policy->name, (double)event->now / 1e9,
				    event->type, medusa_sched_error(run->sched));
	return MD_OK;
}

static enum md_status step(struct run *run, const struct medusa_sched_event *event, struct md_error *err)
{
	const struct medusa_sched_action *const *actions;
	size_t count;
	if (!md_sim_measure_event(&run->measure, event))
		return no_memory(err);
	MD_FORWARD(decide(run, event, &actions, &count, err));
	if (!md_sim_measure_actions(&run->measure, event->now, actions, count))
		return no_memory(err);
	if (count || event->type != MEDUSA_SCHED_EVENT_MEMORY_REPORT)
		run->acted = event->now;
	for (size_t i = 0; i < count; i++)
		if (actions[i]->type == MEDUSA_SCHED_ACTION_SET_TIMER)
			run->timer = actions[i]->at;
	md_sim_model_apply(run->model, event->now, actions, count);
	return md_sim_model_failed(run->model) ? no_memory(err) : MD_OK;
}

static enum md_status arrive(struct run *run, struct md_error *err)
{
	const struct md_sim_request *request = &run->workload->requests[run->arrived];
	const struct medusa_sched_event event = {
	    .type = MEDUSA_SCHED_EVENT_ARRIVAL,
	    .now = run->now,
	    .request = run->arrived,
	    .function = request->function,
	    .kv_bytes = md_sim_model_kv_bytes(&run->functions.functions[request->function], request),
	    .tokens = request->generated_tokens,
	    .tenant = request->tenant,
	};
	run->arrived++;
	return step(run, &event, err);
}

static enum md_status advance(struct run *run, struct md_error *err)
{
	struct medusa_sched_event event;
	md_sim_model_advance(run->model);
	if (md_sim_model_failed(run->model))
		return no_memory(err);
	while (md_sim_model_event(run->model, &event))
		MD_FORWARD(step(run, &event, err));
	return MD_OK;
}

static enum md_status ring(struct run *run, struct md_error *err)
{
	const struct medusa_sched_event event = {.type = MEDUSA_SCHED_EVENT_TIMER, .now = run->now};
	run->timer = NEVER;
	return step(run, &event, err);
}

static void show_progress(struct run *run, const struct md_sim_progress *progress)
{
	uint64_t real = md_clock_ns();
	if (!progress || !progress->report || real - run->reported < PROGRESS_NS)
		return;
	run->reported = real;
	progress->report(progress->user,
			 run->workload->count ? (double)run->measure.ended_count / (double)run->workload->count : 1,
			 (double)run->now / 1e9, run->measure.ended_count);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Processes that are bound to a GPU hold their memory all the time; the model does not know them. */
static void add_processes(const struct run *run)
{
	for (uint32_t gpu = 0; run->native && gpu < run->node->gpu_count; gpu++) {
		uint64_t bytes = least(md_sim_native_bytes(run->native, gpu), run->memory[gpu].free);
		run->memory[gpu].artifacts += bytes;
		run->memory[gpu].free -= bytes;
	}
}

/* Moves the clock; until then, everything is as the last event has left it. */
static void pass_time(struct run *run, uint64_t until)
{
	if (until <= run->now)
		return;
	uint64_t running = md_sim_model_running(run->model), open = run->arrived - run->measure.ended_count;
	for (uint32_t gpu = 0; gpu < run->node->gpu_count; gpu++)
		md_sim_model_memory(run->model, gpu, &run->memory[gpu]);
	add_processes(run);
	const struct md_sim_levels levels = {
	    .running = running, .waiting = open > running ? open - running : 0, .memory = run->memory};
	md_sim_track_pass(&run->measure.track, until, &levels);
	md_sim_tenants_pass(&run->measure.tenants, run->model, until - run->now);
	run->now = until;
}

/* Whether nothing more will happen to requests; next is when the next event of any kind comes. */
static bool is_over(const struct run *run, uint64_t arrival, uint64_t next)
{
	uint64_t most = run->policy->max_wait_ns, last = run->workload->requests[run->workload->count - 1].at;
	/* whoever sets a longer wait waits longer */
	uint64_t patience = PATIENCE_NS + (most < NEVER / 4 ? most : NEVER / 4);
	if (next == NEVER)
		return true;
	if (arrival != NEVER || next <= run->measure.last_end + patience || next <= last + patience)
		return false;
	return !md_sim_model_works(run->model) || md_sim_model_ended(run->model) - run->ended_at_last > COPIES_IN_VAIN;
}

/* Goes over to the next event of another kind when a node that has nothing to do has only reported for long. */
static void leave_out_reports(struct run *run, uint64_t arrival)
{
	uint64_t every = run->node->report_every_ns, next = least(arrival, run->timer);
	if (run->arrived != run->measure.ended_count || next == NEVER || !every ||
	    run->now - run->acted < ROUNDS_IN_VAIN * every || next - run->now < MD_SIM_ROUNDS_LEFT_OUT * every)
		return;
	md_sim_model_leave_out(run->model, next);
}

/* At equal times, ends come before arrivals, and arrivals before timers. */
static enum md_status play(struct run *run, const struct md_sim_progress *progress, struct md_error *err)
{
	const struct md_sim_workload *workload = run->workload;
	for (uint64_t turns = 0; run->measure.ended_count < workload->count; turns++) {
		size_t ended = run->measure.ended_count;
		uint64_t due, arrival = run->arrived < workload->count ? workload->requests[run->arrived].at : NEVER;
		leave_out_reports(run, arrival);
		if (!md_sim_model_due(run->model, &due))
			due = NEVER;
		uint64_t next = least(due, least(arrival, run->timer));
		if (is_over(run, arrival, next))
			break;
		pass_time(run, next);
		if (due == next)
			MD_FORWARD(advance(run, err));
		else if (arrival == next)
			MD_FORWARD(arrive(run, err));
		else
			MD_FORWARD(ring(run, err));
		if (run->measure.ended_count != ended)
			run->ended_at_last = md_sim_model_ended(run->model);
		if (turns % 1024 == 0)
			show_progress(run, progress);
	}
	return MD_OK;
}

/* ---- what came out ---------------------------------------------------------------------------------------------- */

/* A process that is bound to a GPU is billed for its part of the GPU all the time. */
static double gpu_s_of(const struct run *run, uint32_t function)
{
	if (run->native)
		return md_sim_native_part(run->native, function) * run->result->end_s;
	return md_sim_model_billed_s(run->model, function);
}

static double host_gb_of(const struct run *run, uint32_t function)
{
	const struct medusa_sched_function *spec = &run->functions.functions[function].spec;
	return (double)(spec->weight_bytes + spec->library_bytes) / 1e9;
}

static void bill(struct run *run)
{
	for (uint32_t i = 0; i < run->functions.count; i++) {
		struct md_sim_function_result *function = &run->result->functions[i];
		function->gpu_s = gpu_s_of(run, i);
		function->cost =
		    (function->gpu_s * run->node->gpu_price_per_h +
		     (run->native ? 0 : host_gb_of(run, i) * run->result->end_s * run->node->host_gb_price_per_h)) /
		    3600;
	}
}

static enum md_status conclude(struct run *run, struct md_error *err)
{
	struct md_sim_result *result = run->result;
	const char *complaint = md_sim_model_complaint(run->model, &result->contradictions);
	result->policy = run->policy;
	result->gpu_count = run->node->gpu_count;
	result->gpu_busy_s = calloc(run->node->gpu_count + 1, sizeof(double));
	if (!result->gpu_busy_s)
		return no_memory(err);
	for (uint32_t gpu = 0; gpu < run->node->gpu_count; gpu++)
		result->gpu_busy_s[gpu] = md_sim_model_busy_s(run->model, gpu);
	result->end_s = (double)run->now / 1e9;
	result->wall_s = (double)(md_clock_ns() - run->began) / 1e9;
	result->decide_us_p50 = md_sim_samples_percentile(&run->decide_us, 50);
	result->decide_us_p99 = md_sim_samples_percentile(&run->decide_us, 99);
	result->decide_us_p999 = md_sim_samples_percentile(&run->decide_us, 99.9);
	result->stats.size = sizeof(result->stats);
	if (run->native)
		md_sim_native_stats(run->native, &result->stats);
	else
		medusa_sched_stats_get(run->sched, &result->stats);
	MD_FORWARD(md_sim_track_conclude(&run->measure.track, &result->series, err));
	result->unfinished = run->workload->count - run->measure.ended_count;
	md_sim_measure_comply(&run->measure);
	bill(run);
	if (complaint)
		md_warn("policy %s: %llu actions contradict the node, first: %s", run->policy->name,
			(unsigned long long)result->contradictions, complaint);
	return MD_OK;
}

static void run_finish(struct run *run)
{
	medusa_sched_destroy(run->sched);
	md_sim_native_destroy(run->native);
	md_sim_model_destroy(run->model);
	md_sim_measure_finish(&run->measure);
	md_sim_samples_finish(&run->decide_us);
	free(run->memory);
	md_sim_run_unprepare(&run->functions);
}

static enum md_status check(const struct md_sim_functions *functions, const struct md_sim_workload *workload,
			    struct md_error *err)
{
	for (size_t i = 0; i < workload->count; i++) {
		if (workload->requests[i].function >= functions->count)
			return md_error_set(err, MD_ERR_INVALID, "request %zu is for function %u of %u", i,
					    workload->requests[i].function, functions->count);
		if (workload->requests[i].tenant && workload->requests[i].tenant >= functions->tenant_count)
			return md_error_set(err, MD_ERR_INVALID, "request %zu is of tenant %u of %u", i,
					    workload->requests[i].tenant, functions->tenant_count);
		if (i && workload->requests[i].at < workload->requests[i - 1].at)
			return md_error_set(err, MD_ERR_INVALID, "request %zu arrives before the one before it", i);
	}
	return MD_OK;
}

static enum md_status run_all(struct run *run, const struct md_sim_functions *functions, uint64_t seed,
			      const struct md_sim_progress *progress, struct md_sim_result *result,
			      struct md_error *err)
{
	struct md_sim_result played = {0};
	run->timer = NEVER;
	run->began = md_clock_ns();
	MD_FORWARD(check(functions, run->workload, err));
	MD_FORWARD(md_sim_run_prepare(functions, run->policy, &run->functions, err));
	run->result = &played;
	enum md_status status = create_parts(run, seed, err);
	if (status == MD_OK)
		status = play(run, progress, err);
	if (status == MD_OK)
		status = conclude(run, err);
	run_finish(run);
	run->result = NULL;
	if (status == MD_OK)
		*result = played;
	else
		md_sim_result_finish(&played);
	return status;
}

enum md_status md_sim_run(const struct md_sim_node *node, const struct md_sim_functions *functions,
			  const struct md_sim_workload *workload, const struct md_sim_policy *policy, uint64_t seed,
			  const struct md_sim_progress *progress, struct md_sim_result *result, struct md_error *err)
{
	struct run run = {.node = node,
			  .workload = workload,
			  .policy = policy,
			  .faults = workload->faults,
			  .fault_count = workload->fault_count};
	return run_all(&run, functions, seed, progress, result, err);
}

enum md_status md_sim_run_faulty(const struct md_sim_node *node, const struct md_sim_functions *functions,
				 const struct md_sim_workload *workload, const struct md_sim_policy *policy,
				 const struct medusa_sched_event *faults, size_t fault_count,
				 struct md_sim_result *result, struct md_error *err)
{
	struct run run = {
	    .node = node, .workload = workload, .policy = policy, .faults = faults, .fault_count = fault_count};
	return run_all(&run, functions, 1, NULL, result, err);
}

void md_sim_result_finish(struct md_sim_result *result)
{
	for (uint32_t i = 0; result->functions && i < result->function_count; i++) {
		md_sim_samples_finish(&result->functions[i].latency_ms);
		md_sim_samples_finish(&result->functions[i].ttft_ms);
	}
	for (uint32_t i = 0; result->tenants && i < result->tenant_count; i++) {
		md_sim_samples_finish(&result->tenants[i].ttft_ms);
		md_sim_samples_finish(&result->tenants[i].wait_ms);
	}
	free(result->functions);
	free(result->tenants);
	free(result->gpu_busy_s);
	md_sim_series_finish(&result->series);
	md_sim_samples_finish(&result->latency_ms);
	md_sim_samples_finish(&result->ttft_ms);
	md_sim_samples_finish(&result->end_ms);
	md_sim_samples_finish(&result->wait_ms);
	md_sim_samples_finish(&result->batch);
	*result = (struct md_sim_result){0};
}
