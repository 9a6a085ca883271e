/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/accounting/ledger.h"
#include "worker/core/gpu_memory.h"
#include "worker/core/node_broker.h"
#include "worker/core/reply.h"
#include "worker/core/worker.h"

static const double bounds[MD_METRICS_BUCKETS] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};

void md_metrics_note(struct md_metrics_histogram *histogram, uint64_t ns)
{
	double seconds = (double)ns * 1e-9;
	unsigned bucket = 0;
	while (bucket < MD_METRICS_BUCKETS && seconds > bounds[bucket])
		bucket++;
	histogram->counts[bucket]++;
	histogram->sum_s += seconds;
}

/* ---- how requests have ended ---- */

uint64_t md_metrics_served(const struct md_metrics_requests *requests)
{
	return requests->served;
}

uint64_t md_metrics_refused(const struct md_metrics_requests *requests)
{
	return requests->refused + requests->limited;
}

uint64_t md_metrics_failed(const struct md_metrics_requests *requests)
{
	return requests->failed;
}

uint64_t md_metrics_cancelled(const struct md_metrics_requests *requests)
{
	return requests->left_waiting + requests->left_running;
}

/* ---- the text ---- */

static void put_label(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '\n')
			fputs("\\n", out);
		else if (*text == '"' || *text == '\\')
			fprintf(out, "\\%c", *text);
		else
			fputc(*text, out);
	}
}

static void begin(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP medusa_worker_%s %s\n# TYPE medusa_worker_%s %s\n", name, help, name, type);
}

static void put_name(FILE *out, const char *name, const struct md_model *model)
{
	fprintf(out, "medusa_worker_%s{model=\"", name);
	put_label(out, model->id);
	fputc('"', out);
}

struct counter {
	const char *name, *type, *help;
	uint64_t (*value)(const struct md_model *model);
};

static uint64_t failures(const struct md_model *model)
{
	return model->failures;
}

static uint64_t starts(const struct md_model *model)
{
	return model->starts;
}

static uint64_t prompt_tokens(const struct md_model *model)
{
	return model->usage.of[MD_USAGE_PROMPT];
}

static uint64_t generation_tokens(const struct md_model *model)
{
	return model->usage.of[MD_USAGE_COMPLETION];
}

static uint64_t loaded_bytes(const struct md_model *model)
{
	return model->usage.of[MD_USAGE_LOADED];
}

static const struct counter counters[] = {
    {"failures_total", "counter", "How often the engine could not be started, or ended by itself.", failures},
    {"loads_total", "counter", "How often the model was started or swapped in.", starts},
    {"prompt_tokens_total", "counter", "Tokens of prompts, as engines say.", prompt_tokens},
    {"generation_tokens_total", "counter", "Tokens of answers, as engines say.", generation_tokens},
    {"loaded_bytes_total", "counter", "Device memory that came with loads, where it is stated.", loaded_bytes},
};

static void put_counters(FILE *out, const struct md_worker *worker)
{
	for (size_t c = 0; c < sizeof(counters) / sizeof(*counters); c++) {
		begin(out, counters[c].name, counters[c].type, counters[c].help);
		for (uint32_t i = 0; i < worker->config->model_count; i++) {
			put_name(out, counters[c].name, worker->current[i]);
			fprintf(out, "} %" PRIu64 "\n", counters[c].value(worker->current[i]));
		}
	}
}

/* ---- requests ---- */

static const struct request_counter {
	const char *name, *type, *help;
	size_t offset; /* in struct md_metrics_requests */
} request_counters[] = {
#define REQUESTS(member) offsetof(struct md_metrics_requests, member)
    {"requests_total", "counter", "Requests for the model: the sum of all that follow, but for retries.",
     REQUESTS(taken)},
    {"requests", "gauge", "Requests that wait or run.", REQUESTS(open)},
    {"requests_served_total", "counter", "Requests whose answer has ended.", REQUESTS(served)},
    {"requests_failed_total", "counter", "Requests whose engine has failed.", REQUESTS(failed)},
    {"requests_refused_total", "counter",
     "Requests that were refused by the scheduler, or while the daemon is drained.", REQUESTS(refused)},
    {"requests_limited_total", "counter", "Requests beyond concurrencyLimit (429).", REQUESTS(limited)},
    {"requests_left_waiting_total", "counter", "Requests whose client left before an engine had them.",
     REQUESTS(left_waiting)},
    {"requests_left_running_total", "counter", "Requests whose client left before their answer had ended.",
     REQUESTS(left_running)},
    {"retries_total", "counter", "How often a request was given to an engine again.", REQUESTS(retried)},
#undef REQUESTS
};

static void put_requests(FILE *out, const struct md_worker *worker)
{
	for (size_t c = 0; c < sizeof(request_counters) / sizeof(*request_counters); c++) {
		const struct request_counter *counter = &request_counters[c];
		begin(out, counter->name, counter->type, counter->help);
		for (uint32_t i = 0; i < worker->config->model_count; i++) {
			const char *requests = (const char *)&worker->current[i]->requests;
			put_name(out, counter->name, worker->current[i]);
			fprintf(out, "} %" PRIu64 "\n", *(const uint64_t *)(const void *)(requests + counter->offset));
		}
	}
	begin(out, "http_refused_total", "counter", "Requests that were refused before their body was read.");
	fprintf(out, "medusa_worker_http_refused_total %" PRIu64 "\n", worker->refused);
}

static void put_states(FILE *out, const struct md_worker *worker)
{
	begin(out, "state", "gauge", "1 for the state that the model's engine is in.");
	for (uint32_t i = 0; i < worker->config->model_count; i++) {
		enum md_engine_state is = md_model_state(worker->current[i]);
		for (enum md_engine_state state = MD_ENGINE_STOPPED; state <= MD_ENGINE_STOPPING; state++) {
			put_name(out, "state", worker->current[i]);
			fprintf(out, ",state=\"%s\"} %d\n", md_engine_state_name(state), state == is);
		}
	}
}

/* Of engines that are there, where the kernel counts it. */
static void put_memory(FILE *out, const struct md_worker *worker)
{
	uint64_t bytes;
	begin(out, "engine_memory_bytes", "gauge", "Host memory of the engine's processes, where it is counted.");
	for (uint32_t i = 0; i < worker->config->model_count; i++) {
		if (worker->current[i]->base || !md_engine_memory(worker->current[i]->engine, &bytes))
			continue;
		put_name(out, "engine_memory_bytes", worker->current[i]);
		fprintf(out, "} %" PRIu64 "\n", bytes);
	}
}

/* The estimates that the scheduler has; what was not measured yet is not there. */
static void put_learned(FILE *out, const struct md_worker *worker)
{
	begin(out, "learned_seconds", "gauge", "Smoothed times of the model's engine that the scheduler counts on.");
	for (uint32_t i = 0; i < worker->config->model_count; i++) {
		const struct md_model *model = worker->current[i];
		for (unsigned kind = 0; kind < MD_LEARNED_KINDS; kind++) {
			if (!model->learned.ns[kind])
				continue;
			put_name(out, "learned_seconds", model);
			fprintf(out, ",of=\"%s\"} %.9g\n", md_learned_name((enum md_learned_kind)kind),
				(double)model->learned.ns[kind] * 1e-9);
		}
	}
}

static void put_histogram(FILE *out, const struct md_worker *worker, const char *name, const char *help, size_t offset)
{
	char bucket[96];
	begin(out, name, "histogram", help);
	for (uint32_t i = 0; i < worker->config->model_count; i++) {
		const struct md_model *model = worker->current[i];
		const struct md_metrics_histogram *histogram = (const void *)((const char *)model + offset);
		uint64_t count = 0;
		snprintf(bucket, sizeof(bucket), "%s_bucket", name);
		for (unsigned b = 0; b <= MD_METRICS_BUCKETS; b++) {
			count += histogram->counts[b];
			put_name(out, bucket, model);
			if (b < MD_METRICS_BUCKETS)
				fprintf(out, ",le=\"%g\"} %" PRIu64 "\n", bounds[b], count);
			else
				fprintf(out, ",le=\"+Inf\"} %" PRIu64 "\n", count);
		}
		snprintf(bucket, sizeof(bucket), "%s_sum", name);
		put_name(out, bucket, model);
		fprintf(out, "} %.9g\n", histogram->sum_s);
		snprintf(bucket, sizeof(bucket), "%s_count", name);
		put_name(out, bucket, model);
		fprintf(out, "} %" PRIu64 "\n", count);
	}
}

/* ---- what vLLM's servers say of themselves, and means the same of a model here ---- */

static uint64_t running(const struct md_model *model)
{
	struct medusa_sched_function_state state = {.size = sizeof(state)};
	return medusa_sched_function_get(model->worker->sched, model->function, &state) ? 0 : state.running;
}

static uint64_t waiting(const struct md_model *model)
{
	uint64_t run = running(model);
	return model->unfinished > run ? model->unfinished - run : 0;
}

static const struct counter of_vllm[] = {
    {"num_requests_running", "gauge", "Requests that the engine has.", running},
    {"num_requests_waiting", "gauge", "Requests that wait for the engine, or for room on a GPU.", waiting},
    {"prompt_tokens_total", "counter", "Tokens of prompts, as engines say.", prompt_tokens},
    {"generation_tokens_total", "counter", "Tokens of answers, as engines say.", generation_tokens},
};

static void put_of_vllm(FILE *out, const struct md_worker *worker)
{
	for (size_t c = 0; c < sizeof(of_vllm) / sizeof(*of_vllm); c++) {
		const struct counter *counter = &of_vllm[c];
		fprintf(out, "# HELP vllm:%s %s\n# TYPE vllm:%s %s\n", counter->name, counter->help, counter->name,
			counter->type);
		for (uint32_t i = 0; i < worker->config->model_count; i++) {
			fprintf(out, "vllm:%s{model_name=\"", counter->name);
			put_label(out, worker->current[i]->id);
			fprintf(out, "\"} %" PRIu64 "\n", counter->value(worker->current[i]));
		}
	}
}

static void put_scheduler(FILE *out, const struct md_worker *worker)
{
	struct medusa_sched_stats stats = {.size = sizeof(stats)};
	if (medusa_sched_stats_get(worker->sched, &stats))
		return;
	begin(out, "scheduler_swaps_total", "counter", "Loads that the scheduler has decided for requests.");
	fprintf(out, "medusa_worker_scheduler_swaps_total %" PRIu64 "\n",
		stats.swaps_host + stats.swaps_peer + stats.swaps_cold);
	begin(out, "scheduler_joins_total", "counter", "Requests that an engine was given while it ran others.");
	fprintf(out, "medusa_worker_scheduler_joins_total %" PRIu64 "\n", stats.joins);
	begin(out, "scheduler_cancelled_total", "counter", "Requests whose clients went before the end.");
	fprintf(out, "medusa_worker_scheduler_cancelled_total %" PRIu64 "\n", stats.cancelled);
	begin(out, "scheduler_evictions_total", "counter", "Models that had to leave a GPU.");
	fprintf(out, "medusa_worker_scheduler_evictions_total %" PRIu64 "\n", stats.evictions + stats.offloads);
}

/* ---- tenants ---- */

static double waiting_of(const struct medusa_sched_tenant_state *state)
{
	return state->waiting;
}

static double running_of(const struct medusa_sched_tenant_state *state)
{
	return state->running;
}

static double gpu_seconds_of(const struct medusa_sched_tenant_state *state)
{
	return (double)state->gpu_ns * 1e-9;
}

static const struct {
	const char *name, *type, *help;
	double (*value)(const struct medusa_sched_tenant_state *state);
} tenant_counters[] = {
    {"tenant_requests_waiting", "gauge", "Requests of the tenant that wait (\"\": of none).", waiting_of},
    {"tenant_requests_running", "gauge", "Requests of the tenant that run.", running_of},
    {"tenant_gpu_seconds_total", "counter", "Time for which the tenant's requests have held a GPU, loading included.",
     gpu_seconds_of},
};

/* What they were asked for ends in one of these. */
static const struct tenant_requests {
	const char *name, *help;
	uint64_t (*value)(const struct md_metrics_requests *requests);
} tenant_requests[] = {
    {"tenant_requests_served_total", "Requests of the tenant whose answer has ended.", md_metrics_served},
    {"tenant_requests_refused_total", "Requests of the tenant that were refused, or were beyond a limit.",
     md_metrics_refused},
    {"tenant_requests_failed_total", "Requests of the tenant whose engine has failed.", md_metrics_failed},
    {"tenant_requests_cancelled_total", "Requests of the tenant whose client left before their answer had ended.",
     md_metrics_cancelled},
};

static void put_tenant_name(FILE *out, const char *name, const struct md_tenant_entry *entry)
{
	fprintf(out, "medusa_worker_%s{tenant=\"", name);
	put_label(out, entry ? entry->name : "");
	fputs("\"} ", out);
}

static void put_tenant_requests(FILE *out, const struct md_worker *worker)
{
	const struct md_tenant_entry *entry;
	struct medusa_sched_tenant_state state;
	for (size_t c = 0; c < sizeof(tenant_requests) / sizeof(*tenant_requests); c++) {
		if (worker->config->node.tenant_count)
			begin(out, tenant_requests[c].name, "counter", tenant_requests[c].help);
		for (uint32_t i = 0; md_tenants_get(worker, i, &entry, &state); i++) {
			put_tenant_name(out, tenant_requests[c].name, entry);
			fprintf(out, "%" PRIu64 "\n", tenant_requests[c].value(md_tenants_requests(worker, entry)));
		}
	}
}

static void put_tenants(FILE *out, const struct md_worker *worker)
{
	const struct md_tenant_entry *entry;
	struct medusa_sched_tenant_state state;
	for (size_t c = 0; c < sizeof(tenant_counters) / sizeof(*tenant_counters); c++) {
		if (worker->config->node.tenant_count)
			begin(out, tenant_counters[c].name, tenant_counters[c].type, tenant_counters[c].help);
		for (uint32_t i = 0; md_tenants_get(worker, i, &entry, &state); i++) {
			put_tenant_name(out, tenant_counters[c].name, entry);
			fprintf(out, "%.9g\n", tenant_counters[c].value(&state));
		}
	}
	put_tenant_requests(out, worker);
}

/* ---- GPUs ---- */

static uint64_t limit_of(const struct medusa_sched_gpu_state *state)
{
	return state->limit_bytes;
}

static uint64_t used_of(const struct medusa_sched_gpu_state *state)
{
	return state->artifact_bytes + state->residue_bytes + state->kv_bytes;
}

static uint64_t foreign_of(const struct medusa_sched_gpu_state *state)
{
	return state->foreign_bytes;
}

static const struct {
	const char *name, *help;
	uint64_t (*value)(const struct medusa_sched_gpu_state *state);
} gpu_gauges[] = {
    {"gpu_limit_bytes", "Device memory that models may have together.", limit_of},
    {"gpu_used_bytes", "Of it, what models that are there have, as it is stated.", used_of},
    {"gpu_foreign_bytes", "Of it, what is in use beyond that, as NVML says.", foreign_of},
};

/* Where nobody has stated the GPU's memory, the scheduler is told one that means nothing, and models take parts of that. */
static bool is_known(const struct medusa_sched_gpu_state *state, size_t gauge)
{
	return state->limit_bytes != MD_WORKER_GPU_BYTES || gpu_gauges[gauge].value == foreign_of;
}

/* As llama-swap names what NVML says. */
static void put_measured(FILE *out, const struct md_worker *worker, uint32_t count, bool total)
{
	struct md_gpu_measured found;
	const char *name = total ? "total" : "used";
	fprintf(out, "# HELP llamaswap_gpu_memory_%s_bytes Device memory of the GPU%s.\n", name,
		total ? "" : " in use, by anybody");
	fprintf(out, "# TYPE llamaswap_gpu_memory_%s_bytes gauge\n", name);
	for (uint32_t i = 0; i < count; i++) {
		if (!md_gpu_memory_get(worker->gpu_memory, i, &found))
			continue;
		fprintf(out, "llamaswap_gpu_memory_%s_bytes{id=\"%u\",name=\"", name, i);
		put_label(out, found.product);
		fputs("\",uuid=\"", out);
		put_label(out, found.uuid);
		fprintf(out, "\"} %" PRIu64 "\n", total ? found.total : found.used);
	}
}

static void put_gpus(FILE *out, const struct md_worker *worker)
{
	uint32_t count;
	struct medusa_sched_gpu_state state = {.size = sizeof(state)};
	md_gpus_list(worker->gpus, &count);
	for (size_t g = 0; g < sizeof(gpu_gauges) / sizeof(*gpu_gauges); g++) {
		begin(out, gpu_gauges[g].name, "gauge", gpu_gauges[g].help);
		for (uint32_t i = 0; i < count; i++)
			if (!medusa_sched_gpu_get(worker->sched, i, &state) && is_known(&state, g))
				fprintf(out, "medusa_worker_%s{gpu=\"%u\"} %" PRIu64 "\n", gpu_gauges[g].name, i,
					gpu_gauges[g].value(&state));
	}
	put_measured(out, worker, count, false);
	put_measured(out, worker, count, true);
}

/* ---- what all models share ---- */

static void put_pool(FILE *out, const struct md_worker *worker)
{
	struct md_worker_pool_sizes sizes;
	if (!md_pool_sizes(worker, &sizes))
		return;
	const struct {
		const char *name, *help;
		uint64_t value;
	} all[] = {
	    {"pool_bytes", "Host memory for engines that are swapped out (medusa.pool_bytes).", sizes.bytes},
	    {"pool_held_bytes", "Of it, what engines that are out need.", sizes.held},
	    {"pool_cached_bytes", "Of it, what is kept for the next time.", sizes.cached},
	    {"pool_free_bytes", "Of it, what is free.", sizes.free},
	    {"spill_bytes", "The most that the file behind that memory takes (medusa.spill).", sizes.spill_bytes},
	    {"spill_held_bytes", "Of it, what engines that are out need.", sizes.spill_held},
	    {"spill_cached_bytes", "Of it, what is kept for the next time.", sizes.spill_cached},
	    {"spill_free_bytes", "Of it, what is free.", sizes.spill_free}};
	for (size_t i = 0; i < (sizes.spill_bytes ? 8u : 4u); i++) {
		begin(out, all[i].name, "gauge", all[i].help);
		fprintf(out, "medusa_worker_%s %" PRIu64 "\n", all[i].name, all[i].value);
	}
	begin(out, "pool_full_total", "counter",
	      "Engines that were stopped and not swapped, because the pool was full.");
	fprintf(out, "medusa_worker_pool_full_total %" PRIu64 "\n", worker->pool.full);
}

static void put_broker(FILE *out, const struct md_worker *worker)
{
	begin(out, "backbone_starts_total", "counter",
	      "How often medusa-backbone was started; more than 1: it has ended by itself.");
	fprintf(out, "medusa_worker_backbone_starts_total %u\n", md_node_broker_starts(worker));
}

static void put_accounting(FILE *out, struct md_worker *worker)
{
	begin(out, "gpu_seconds_total", "counter", "Time in which the engine had requests.");
	for (uint32_t i = 0; i < worker->config->model_count; i++) {
		put_name(out, "gpu_seconds_total", worker->current[i]);
		fprintf(out, "} %.9g\n", (double)worker->current[i]->usage.of[MD_USAGE_GPU_NS] * 1e-9);
	}
	if (!worker->ledger)
		return;
	begin(out, "accounting_lost_requests_total", "counter", "Requests that could not be written to medusa.state.");
	fprintf(out, "medusa_worker_accounting_lost_requests_total %" PRIu64 "\n", md_ledger_lost(worker->ledger));
}

void md_metrics_answer(struct md_worker *worker, struct md_http_exchange *exchange)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	if (out) {
		put_requests(out, worker);
		put_counters(out, worker);
		put_of_vllm(out, worker);
		put_states(out, worker);
		put_memory(out, worker);
		put_learned(out, worker);
		put_histogram(out, worker, "time_to_first_byte_seconds",
			      "From the request to the first byte of the answer.",
			      offsetof(struct md_model, first_byte));
		put_histogram(out, worker, "load_seconds", "Starts and swaps of the model's engine.",
			      offsetof(struct md_model, loads));
		put_tenants(out, worker);
		put_scheduler(out, worker);
		put_gpus(out, worker);
		put_pool(out, worker);
		put_broker(out, worker);
		put_accounting(out, worker);
	}
	if (!out || fclose(out) || !text)
		md_reply_error(exchange, MD_REPLY_UNAVAILABLE, NULL, "out of memory for the metrics");
	else
		md_reply_text(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", text);
	free(text);
}
