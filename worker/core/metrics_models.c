/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/metrics_models.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "worker/core/metrics_text.h"

/* What is printed of models that were used, and the names of all. */
struct table {
	const struct md_model_rows *rows;
	struct md_buf labels; /* of all models, as they stand between quotes, a NUL behind each */
	size_t *at;           /* where the label of a model begins */
};

/* ---- printing ---- */

static void put_label(struct md_buf *labels, const char *text)
{
	for (size_t plain; plain = strcspn(text, "\n\"\\"), md_buf_put(labels, text, plain), text[plain];
	     text += plain + 1) {
		md_buf_put_u8(labels, '\\');
		md_buf_put_u8(labels, text[plain] == '\n' ? 'n' : (uint8_t)text[plain]);
	}
	md_buf_put_u8(labels, 0);
}

static bool make_labels(struct table *table)
{
	md_buf_init(&table->labels);
	table->at = calloc(table->rows->count + 1u, sizeof(*table->at));
	for (uint32_t i = 0; table->at && i < table->rows->count; i++) {
		table->at[i] = table->labels.size;
		put_label(&table->labels, table->rows->rows[i].config->id);
	}
	return table->at && !table->labels.failed;
}

static const char *label_of(const struct table *table, uint32_t model)
{
	return (const char *)table->labels.data + table->at[model];
}

/* The next model from *model on that was used; NULL: there is none. */
static const struct md_row_used *next_used(const struct table *table, uint32_t *model)
{
	while (*model < table->rows->count && !table->rows->rows[*model].used)
		++*model;
	return *model < table->rows->count ? table->rows->rows[*model].used : NULL;
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
	size_t offset; /* in struct md_row_used */
} counters[] = {
#define REQUESTS(member) offsetof(struct md_row_used, requests.member)
#define USAGE(kind) (offsetof(struct md_row_used, usage.of) + (kind) * sizeof(uint64_t))
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
     offsetof(struct md_row_used, failures)},
    {"loads_total", "counter", "How often the model was started or swapped in.", offsetof(struct md_row_used, starts)},
    {"prompt_tokens_total", "counter", "Tokens of prompts, as engines say.", USAGE(MD_USAGE_PROMPT)},
    {"generation_tokens_total", "counter", "Tokens of answers, as engines say.", USAGE(MD_USAGE_COMPLETION)},
    {"loaded_bytes_total", "counter", "Device memory that came with loads, where it is stated.",
     USAGE(MD_USAGE_LOADED)},
};

/* What vLLM's servers say of themselves, and means the same of a model here. */
static const struct counter of_vllm[] = {
    {"num_requests_running", "gauge", "Requests that the engine has.", offsetof(struct md_row_used, running)},
    {"num_requests_waiting", "gauge", "Requests that wait for the engine, or for room on a GPU.",
     offsetof(struct md_row_used, waiting)},
    {"prompt_tokens_total", "counter", "Tokens of prompts, as engines say.", USAGE(MD_USAGE_PROMPT)},
    {"generation_tokens_total", "counter", "Tokens of answers, as engines say.", USAGE(MD_USAGE_COMPLETION)},
#undef REQUESTS
#undef USAGE
};

static uint64_t value_at(const struct md_row_used *row, size_t offset)
{
	return *(const uint64_t *)(const void *)((const char *)row + offset);
}

static void put_counter(FILE *out, const struct table *table, const struct counter *counter, const char *prefix,
			const char *label)
{
	const struct md_row_used *row;
	md_metrics_text_begin(out, prefix, counter->name, counter->type, counter->help);
	for (uint32_t i = 0; (row = next_used(table, &i)); i++)
		fprintf(out, "%s%s{%s=\"%s\"} %" PRIu64 "\n", prefix, counter->name, label, label_of(table, i),
			value_at(row, counter->offset));
}

/* A model that was never used has the one state that is true of it. */
static void put_states(FILE *out, const struct table *table)
{
	const struct md_row_used *row;
	begin(out, "state", "gauge", "1 for the state that the model's engine is in.");
	for (uint32_t i = 0; (row = next_used(table, &i)); i++)
		for (enum md_engine_state state = MD_ENGINE_STOPPED; state <= MD_ENGINE_STOPPING; state++) {
			put_name(out, "state", label_of(table, i));
			fprintf(out, ",state=\"%s\"} %d\n", md_engine_state_name(state),
				state == table->rows->rows[i].state);
		}
	for (uint32_t i = 0; i < table->rows->count; i++) {
		if (table->rows->rows[i].used)
			continue;
		put_name(out, "state", label_of(table, i));
		fprintf(out, ",state=\"%s\"} 1\n", md_engine_state_name(MD_ENGINE_STOPPED));
	}
}

/* Of engines that are there, where the kernel counts it. */
static void put_memory(FILE *out, const struct table *table)
{
	const struct md_row_used *row;
	begin(out, "engine_memory_bytes", "gauge", "Host memory of the engine's processes, where it is counted.");
	for (uint32_t i = 0; (row = next_used(table, &i)); i++) {
		if (!row->counted)
			continue;
		put_name(out, "engine_memory_bytes", label_of(table, i));
		fprintf(out, "} %" PRIu64 "\n", row->memory);
	}
}

/* The estimates that the scheduler has; what was not measured yet is not there. */
static void put_learned(FILE *out, const struct table *table)
{
	const struct md_row_used *row;
	begin(out, "learned_seconds", "gauge", "Smoothed times of the model's engine that the scheduler counts on.");
	for (uint32_t i = 0; (row = next_used(table, &i)); i++)
		for (unsigned kind = 0; kind < MD_LEARNED_KINDS; kind++) {
			if (!row->learned.ns[kind])
				continue;
			put_name(out, "learned_seconds", label_of(table, i));
			fprintf(out, ",of=\"%s\"} %.9g\n", md_learned_name((enum md_learned_kind)kind),
				(double)row->learned.ns[kind] * 1e-9);
		}
}

static void put_gpu_time(FILE *out, const struct table *table)
{
	const struct md_row_used *row;
	begin(out, "gpu_seconds_total", "counter", "Time in which the engine had requests.");
	for (uint32_t i = 0; (row = next_used(table, &i)); i++) {
		put_name(out, "gpu_seconds_total", label_of(table, i));
		fprintf(out, "} %.9g\n", (double)row->usage.of[MD_USAGE_GPU_NS] * 1e-9);
	}
}

static const struct histogram {
	const char *prefix, *label, *name, *help;
	enum md_model_histogram which;
} histograms[] = {
    {"medusa_worker_", "model", "time_to_first_byte_seconds", "From the request to the first byte of the answer.",
     MD_MODEL_FIRST_BYTE},
    {"medusa_worker_", "model", "load_seconds", "Starts and swaps of the model's engine.", MD_MODEL_LOADS},
    {"medusa_worker_", "model", "request_load_seconds",
     "Time for which requests waited while their model was loaded, of those that did.", MD_MODEL_QUEUED_FOR_LOAD},
    {"vllm:", "model_name", "request_queue_time_seconds",
     "Time until the engine was given the request, loads included.", MD_MODEL_QUEUED},
    {"vllm:", "model_name", "request_inference_time_seconds",
     "Time from when the engine was given the request to the end of its answer.", MD_MODEL_INFERENCE},
    {"vllm:", "model_name", "e2e_request_latency_seconds", "Time from the request to the end of its answer.",
     MD_MODEL_REQUESTS},
};

static void put_row_histogram(FILE *out, const struct histogram *names, const char *label,
			      const struct md_metrics_histogram *histogram)
{
	uint64_t count = 0;
	char of[96];
	snprintf(of, sizeof(of), "%s%s", names->prefix, names->name);
	for (unsigned b = 0; b <= MD_METRICS_BUCKETS; b++) {
		count += histogram->counts[b];
		fprintf(out, "%s_bucket{%s=\"%s\"", of, names->label, label);
		if (b < MD_METRICS_BUCKETS)
			fprintf(out, ",le=\"%g\"} %" PRIu64 "\n", md_metrics_bounds[b], count);
		else
			fprintf(out, ",le=\"+Inf\"} %" PRIu64 "\n", count);
	}
	fprintf(out, "%s_sum{%s=\"%s\"} %.9g\n", of, names->label, label, histogram->sum_s);
	fprintf(out, "%s_count{%s=\"%s\"} %" PRIu64 "\n", of, names->label, label, count);
}

static bool is_empty(const struct md_metrics_histogram *histogram)
{
	for (unsigned b = 0; b <= MD_METRICS_BUCKETS; b++)
		if (histogram->counts[b])
			return false;
	return true;
}

static void put_histogram(FILE *out, const struct table *table, const struct histogram *names)
{
	const struct md_row_used *row;
	md_metrics_text_begin(out, names->prefix, names->name, "histogram", names->help);
	for (uint32_t i = 0; (row = next_used(table, &i)); i++)
		if (!is_empty(&row->histograms[names->which]))
			put_row_histogram(out, names, label_of(table, i), &row->histograms[names->which]);
}

/* ---- all of them ---- */

static void put_all(FILE *out, const struct table *table)
{
	for (size_t i = 0; i < sizeof(counters) / sizeof(*counters); i++)
		put_counter(out, table, &counters[i], "medusa_worker_", "model");
	for (size_t i = 0; i < sizeof(of_vllm) / sizeof(*of_vllm); i++)
		put_counter(out, table, &of_vllm[i], "vllm:", "model_name");
	put_states(out, table);
	put_memory(out, table);
	put_learned(out, table);
	for (size_t i = 0; i < sizeof(histograms) / sizeof(*histograms); i++)
		put_histogram(out, table, &histograms[i]);
	put_gpu_time(out, table);
}

bool md_metrics_models_print(const struct md_model_rows *rows, FILE *out)
{
	struct table table = {.rows = rows};
	bool made = make_labels(&table);
	if (made)
		put_all(out, &table);
	md_buf_finish(&table.labels);
	free(table.at);
	return made;
}
