/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/metrics_models.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "worker/core/metrics_text.h"
#include "worker/core/worker.h"

struct row {
	size_t label; /* in the labels */
	enum md_engine_state state;
	uint64_t running, waiting, starts, failures;
	uint64_t memory; /* of its engine's processes; 0: unknown */
	struct md_usage usage;
	struct md_metrics_requests requests;
	struct md_metrics_histogram first_byte, loads;
	struct md_learned learned;
};

struct md_metrics_models {
	struct md_buf labels; /* a NUL behind each */
	struct row *rows;     /* of models that were used */
	size_t *unused;       /* labels of the others */
	size_t row_count, unused_count;
};

/* ---- copying ---- */

static bool was_used(const struct md_model *model, enum md_engine_state state)
{
	return model->requests.taken || model->starts || model->failures || state != MD_ENGINE_STOPPED;
}

static uint64_t count_running(const struct md_model *model)
{
	struct medusa_sched_function_state state = {.size = sizeof(state)};
	return medusa_sched_function_get(model->worker->sched, model->function, &state) ? 0 : state.running;
}

static void copy_row(const struct md_model *model, size_t label, enum md_engine_state state, struct row *row)
{
	uint64_t running = count_running(model);
	*row = (struct row){.label = label,
			    .state = state,
			    .running = running,
			    .waiting = model->unfinished > running ? model->unfinished - running : 0,
			    .starts = model->starts,
			    .failures = model->failures,
			    .usage = model->usage,
			    .requests = model->requests,
			    .first_byte = model->first_byte,
			    .loads = model->loads,
			    .learned = model->learned};
	if (model->base || !md_engine_memory(model->engine, &row->memory))
		row->memory = 0;
}

/* As it stands between quotes. */
static size_t copy_label(struct md_buf *labels, const char *text)
{
	size_t at = labels->size;
	for (size_t plain; plain = strcspn(text, "\n\"\\"), md_buf_put(labels, text, plain), text[plain];
	     text += plain + 1) {
		md_buf_put_u8(labels, '\\');
		md_buf_put_u8(labels, text[plain] == '\n' ? 'n' : (uint8_t)text[plain]);
	}
	md_buf_put_u8(labels, 0);
	return at;
}

struct md_metrics_models *md_metrics_models_copy(const struct md_worker *worker)
{
	uint32_t count = worker->config->model_count;
	struct md_metrics_models *made = calloc(1, sizeof(*made));
	if (!made)
		return NULL;
	md_buf_init(&made->labels);
	made->rows = calloc(count + 1u, sizeof(*made->rows));
	made->unused = calloc(count + 1u, sizeof(*made->unused));
	for (uint32_t i = 0; made->rows && made->unused && i < count; i++) {
		const struct md_model *model = worker->current[i];
		enum md_engine_state state = md_model_state(model);
		size_t label = copy_label(&made->labels, model->id);
		if (was_used(model, state))
			copy_row(model, label, state, &made->rows[made->row_count++]);
		else
			made->unused[made->unused_count++] = label;
	}
	if (made->rows && made->unused && !made->labels.failed)
		return made;
	md_metrics_models_free(made);
	return NULL;
}

void md_metrics_models_free(struct md_metrics_models *models)
{
	if (!models)
		return;
	md_buf_finish(&models->labels);
	free(models->rows);
	free(models->unused);
	free(models);
}

/* ---- printing ---- */

static const char *label_at(const struct md_metrics_models *models, size_t label)
{
	return (const char *)models->labels.data + label;
}

static void begin(FILE *out, const char *name, const char *type, const char *help)
{
	md_metrics_text_begin(out, "medusa_worker_", name, type, help);
}

static void put_name(FILE *out, const char *name, const char *label)
{
	fprintf(out, "medusa_worker_%s{model=\"%s\"", name, label);
}

static const struct counter {
	const char *name, *type, *help;
	size_t offset; /* in struct row */
} counters[] = {
#define REQUESTS(member) offsetof(struct row, requests.member)
#define USAGE(kind) (offsetof(struct row, usage.of) + (kind) * sizeof(uint64_t))
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
    {"failures_total", "counter", "How often the engine could not be started, or ended by itself.",
     offsetof(struct row, failures)},
    {"loads_total", "counter", "How often the model was started or swapped in.", offsetof(struct row, starts)},
    {"prompt_tokens_total", "counter", "Tokens of prompts, as engines say.", USAGE(MD_USAGE_PROMPT)},
    {"generation_tokens_total", "counter", "Tokens of answers, as engines say.", USAGE(MD_USAGE_COMPLETION)},
    {"loaded_bytes_total", "counter", "Device memory that came with loads, where it is stated.",
     USAGE(MD_USAGE_LOADED)},
};

/* What vLLM's servers say of themselves, and means the same of a model here. */
static const struct counter of_vllm[] = {
    {"num_requests_running", "gauge", "Requests that the engine has.", offsetof(struct row, running)},
    {"num_requests_waiting", "gauge", "Requests that wait for the engine, or for room on a GPU.",
     offsetof(struct row, waiting)},
    {"prompt_tokens_total", "counter", "Tokens of prompts, as engines say.", USAGE(MD_USAGE_PROMPT)},
    {"generation_tokens_total", "counter", "Tokens of answers, as engines say.", USAGE(MD_USAGE_COMPLETION)},
#undef REQUESTS
#undef USAGE
};

static uint64_t value_at(const struct row *row, size_t offset)
{
	return *(const uint64_t *)(const void *)((const char *)row + offset);
}

static void put_counter(FILE *out, const struct md_metrics_models *models, const struct counter *counter,
			const char *prefix, const char *label)
{
	md_metrics_text_begin(out, prefix, counter->name, counter->type, counter->help);
	for (const struct row *row = models->rows; row < models->rows + models->row_count; row++)
		fprintf(out, "%s%s{%s=\"%s\"} %" PRIu64 "\n", prefix, counter->name, label,
			label_at(models, row->label), value_at(row, counter->offset));
}

/* A model that was never used has the one state that is true of it. */
static void put_states(FILE *out, const struct md_metrics_models *models)
{
	begin(out, "state", "gauge", "1 for the state that the model's engine is in.");
	for (const struct row *row = models->rows; row < models->rows + models->row_count; row++)
		for (enum md_engine_state state = MD_ENGINE_STOPPED; state <= MD_ENGINE_STOPPING; state++) {
			put_name(out, "state", label_at(models, row->label));
			fprintf(out, ",state=\"%s\"} %d\n", md_engine_state_name(state), state == row->state);
		}
	for (size_t i = 0; i < models->unused_count; i++) {
		put_name(out, "state", label_at(models, models->unused[i]));
		fprintf(out, ",state=\"%s\"} 1\n", md_engine_state_name(MD_ENGINE_STOPPED));
	}
}

/* Of engines that are there, where the kernel counts it. */
static void put_memory(FILE *out, const struct md_metrics_models *models)
{
	begin(out, "engine_memory_bytes", "gauge", "Host memory of the engine's processes, where it is counted.");
	for (const struct row *row = models->rows; row < models->rows + models->row_count; row++) {
		if (!row->memory)
			continue;
		put_name(out, "engine_memory_bytes", label_at(models, row->label));
		fprintf(out, "} %" PRIu64 "\n", row->memory);
	}
}

/* The estimates that the scheduler has; what was not measured yet is not there. */
static void put_learned(FILE *out, const struct md_metrics_models *models)
{
	begin(out, "learned_seconds", "gauge", "Smoothed times of the model's engine that the scheduler counts on.");
	for (const struct row *row = models->rows; row < models->rows + models->row_count; row++)
		for (unsigned kind = 0; kind < MD_LEARNED_KINDS; kind++) {
			if (!row->learned.ns[kind])
				continue;
			put_name(out, "learned_seconds", label_at(models, row->label));
			fprintf(out, ",of=\"%s\"} %.9g\n", md_learned_name((enum md_learned_kind)kind),
				(double)row->learned.ns[kind] * 1e-9);
		}
}

static void put_gpu_time(FILE *out, const struct md_metrics_models *models)
{
	begin(out, "gpu_seconds_total", "counter", "Time in which the engine had requests.");
	for (const struct row *row = models->rows; row < models->rows + models->row_count; row++) {
		put_name(out, "gpu_seconds_total", label_at(models, row->label));
		fprintf(out, "} %.9g\n", (double)row->usage.of[MD_USAGE_GPU_NS] * 1e-9);
	}
}

static void put_row_histogram(FILE *out, const char *name, const char *label,
			      const struct md_metrics_histogram *histogram)
{
	char bucket[96];
	uint64_t count = 0;
	snprintf(bucket, sizeof(bucket), "%s_bucket", name);
	for (unsigned b = 0; b <= MD_METRICS_BUCKETS; b++) {
		count += histogram->counts[b];
		put_name(out, bucket, label);
		if (b < MD_METRICS_BUCKETS)
			fprintf(out, ",le=\"%g\"} %" PRIu64 "\n", md_metrics_bounds[b], count);
		else
			fprintf(out, ",le=\"+Inf\"} %" PRIu64 "\n", count);
	}
	fprintf(out, "medusa_worker_%s_sum{model=\"%s\"} %.9g\n", name, label, histogram->sum_s);
	fprintf(out, "medusa_worker_%s_count{model=\"%s\"} %" PRIu64 "\n", name, label, count);
}

static bool is_empty(const struct md_metrics_histogram *histogram)
{
	for (unsigned b = 0; b <= MD_METRICS_BUCKETS; b++)
		if (histogram->counts[b])
			return false;
	return true;
}

/* offset: in struct row. */
static void put_histogram(FILE *out, const struct md_metrics_models *models, const char *name, const char *help,
			  size_t offset)
{
	begin(out, name, "histogram", help);
	for (const struct row *row = models->rows; row < models->rows + models->row_count; row++) {
		const struct md_metrics_histogram *histogram = (const void *)((const char *)row + offset);
		if (!is_empty(histogram))
			put_row_histogram(out, name, label_at(models, row->label), histogram);
	}
}

void md_metrics_models_print(const struct md_metrics_models *models, FILE *out)
{
	for (size_t i = 0; i < sizeof(counters) / sizeof(*counters); i++)
		put_counter(out, models, &counters[i], "medusa_worker_", "model");
	for (size_t i = 0; i < sizeof(of_vllm) / sizeof(*of_vllm); i++)
		put_counter(out, models, &of_vllm[i], "vllm:", "model_name");
	put_states(out, models);
	put_memory(out, models);
	put_learned(out, models);
	put_histogram(out, models, "time_to_first_byte_seconds", "From the request to the first byte of the answer.",
		      offsetof(struct row, first_byte));
	put_histogram(out, models, "load_seconds", "Starts and swaps of the model's engine.",
		      offsetof(struct row, loads));
	put_gpu_time(out, models);
}
