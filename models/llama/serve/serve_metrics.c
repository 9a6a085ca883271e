/* SPDX-License-Identifier: Apache-2.0 */
#include "models/llama/serve/serve_metrics.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* s: vLLM's, those that both of its histograms have room for. */
static const double bounds[SERVE_BUCKETS] = {0.001, 0.0025, 0.005, 0.0075, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
					     0.25,  0.5,    0.75,  1,      2.5,  5,    7.5,  10,   20,   40};

void serve_histogram_add(struct serve_histogram *histogram, uint64_t ns)
{
	double s = (double)ns / 1e9;
	size_t i = 0;
	while (i < SERVE_BUCKETS && s > bounds[i])
		i++;
	histogram->counts[i]++;
	histogram->total++;
	histogram->sum += s;
}

struct page {
	struct md_buf *out;
	char labels[160];
};

static void __attribute__((format(printf, 2, 3))) line(struct page *page, const char *format, ...)
{
	char text[512];
	va_list args;
	va_start(args, format);
	int size = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	md_buf_put(page->out, text, size < (int)sizeof(text) ? (size_t)size : sizeof(text) - 1);
}

static void put_number(struct page *page, const char *name, const char *kind, double value)
{
	line(page, "# TYPE %s %s\n%s{%s} %.17g\n", name, kind, name, page->labels, value);
}

static void put_histogram(struct page *page, const char *name, const struct serve_histogram *histogram)
{
	uint64_t sum = 0;
	line(page, "# TYPE %s histogram\n", name);
	for (size_t i = 0; i < SERVE_BUCKETS; i++) {
		sum += histogram->counts[i];
		line(page, "%s_bucket{%s,le=\"%g\"} %" PRIu64 "\n", name, page->labels, bounds[i], sum);
	}
	line(page, "%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n", name, page->labels, histogram->total);
	line(page, "%s_sum{%s} %.9f\n%s_count{%s} %" PRIu64 "\n", name, page->labels, histogram->sum, name,
	     page->labels, histogram->total);
}

/* A label's value: what would end it is left out. */
static void set_labels(struct page *page, const char *model)
{
	char clean[128];
	size_t size = 0;
	for (; *model && size < sizeof(clean) - 1; model++)
		if (*model != '"' && *model != '\\' && *model != '\n')
			clean[size++] = *model;
	clean[size] = '\0';
	snprintf(page->labels, sizeof(page->labels), "model_name=\"%s\"", clean);
}

static void put_finished(struct page *page, const struct serve_metrics *metrics)
{
	static const char *const names[] = {
	    [SERVE_STOP] = "stop", [SERVE_LENGTH] = "length", [SERVE_CANCELLED] = "abort", [SERVE_FAILED] = "error"};
	line(page, "# TYPE vllm:request_success_total counter\n");
	for (enum serve_finish i = SERVE_STOP; i <= SERVE_FAILED; i++)
		line(page, "vllm:request_success_total{%s,finished_reason=\"%s\"} %" PRIu64 "\n", page->labels,
		     names[i], metrics->finished[i]);
}

void serve_metrics_print(const struct serve_metrics *metrics, const struct batcher_counts *counts, size_t kv_blocks,
			 const char *model, struct md_buf *out)
{
	struct page page = {.out = out};
	double free_blocks = (double)counts->free_blocks, all = kv_blocks > 1 ? (double)(kv_blocks - 1) : 1;
	set_labels(&page, model);
	put_number(&page, "vllm:num_requests_running", "gauge", (double)counts->running);
	put_number(&page, "vllm:num_requests_waiting", "gauge", (double)counts->waiting);
	put_number(&page, "vllm:kv_cache_usage_perc", "gauge", 1 - free_blocks / all);
	put_number(&page, "vllm:prefix_cache_queries_total", "counter", (double)counts->asked_tokens);
	put_number(&page, "vllm:prefix_cache_hits_total", "counter", (double)counts->reused_tokens);
	put_number(&page, "vllm:num_preemptions_total", "counter", (double)counts->preemptions);
	put_number(&page, "vllm:prompt_tokens_total", "counter", (double)metrics->prompt_tokens);
	put_number(&page, "vllm:generation_tokens_total", "counter", (double)metrics->made_tokens);
	put_finished(&page, metrics);
	put_number(&page, "medusa_engine_requests_refused_total", "counter", (double)metrics->refused);
	put_number(&page, "medusa_engine_decode_steps_total", "counter", (double)counts->steps);
	put_number(&page, "medusa_engine_graph_launches_total", "counter", (double)counts->graph_launches);
	put_histogram(&page, "vllm:time_to_first_token_seconds", &metrics->first_token);
	put_histogram(&page, "vllm:time_per_output_token_seconds", &metrics->next_token);
	put_histogram(&page, "vllm:e2e_request_latency_seconds", &metrics->whole);
}
