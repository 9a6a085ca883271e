/* SPDX-License-Identifier: Apache-2.0 */
/* A report as JSON: all results, also by function, always in the same order. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "simulator/report/report.h"

/* Increased when a key changes its meaning or is removed; docs/simulate-json.md says what each one is. */
#define FORMAT 1

/* ---- what was simulated ----------------------------------------------------------------------------------------- */

void md_sim_json_node(struct md_json *json, const struct md_sim_node *node)
{
	md_json_object(json, "node");
	md_json_text(json, "name", node->name);
	md_json_text(json, "source", node->source);
	md_json_list(json, "gpus");
	for (uint32_t i = 0; i < node->gpu_count; i++) {
		md_json_object(json, NULL);
		md_json_text(json, "name", node->gpu_names ? node->gpu_names[i] : NULL);
		md_json_number(json, "memory_bytes", node->gpus[i].memory_bytes);
		md_json_number(json, "pcie_switch", node->gpus[i].pcie_switch);
		md_json_number(json, "slots", node->gpus[i].slots);
		if (node->peer_bytes_per_s)
			md_json_reals(json, "peer_bytes_per_s", node->peer_bytes_per_s + i * node->gpu_count,
				      node->gpu_count);
		md_json_end(json);
	}
	md_json_end(json);
	md_json_number(json, "host_bytes", node->host_bytes);
	md_json_real(json, "host_bytes_per_s", node->host_bytes_per_s);
	md_json_real(json, "switch_bytes_per_s", node->switch_bytes_per_s);
	md_json_real(json, "cold_bytes_per_s", node->cold_bytes_per_s);
	md_json_real(json, "prefill_share", node->prefill_share);
	md_json_real(json, "decode_share", node->decode_share);
	md_json_real(json, "gpu_price_per_h", node->gpu_price_per_h);
	md_json_real(json, "host_gb_price_per_h", node->host_gb_price_per_h);
	md_json_end(json);
}

static void tenants(struct md_json *json, const struct md_sim_functions *functions)
{
	md_json_list(json, "tenants");
	for (uint32_t i = 0; i < functions->tenant_count; i++) {
		const struct medusa_sched_tenant *spec = &functions->tenants[i].spec;
		md_json_object(json, NULL);
		md_json_text(json, "name", functions->tenants[i].name);
		md_json_real(json, "weight", spec->weight);
		md_json_number(json, "max_waiting", spec->max_waiting);
		md_json_number(json, "max_running", spec->max_running);
		md_json_end(json);
	}
	md_json_end(json);
}

void md_sim_json_functions(struct md_json *json, const struct md_sim_functions *functions)
{
	md_json_object(json, "functions");
	md_json_text(json, "source", functions->source);
	md_json_number(json, "count", functions->count);
	md_json_list(json, "models");
	for (uint32_t i = 0; i < functions->model_count; i++)
		md_json_text(json, NULL, functions->models[i]);
	md_json_end(json);
	md_json_list(json, "backbones");
	for (uint32_t i = 0; i < functions->backbone_count; i++) {
		md_json_object(json, NULL);
		md_json_text(json, "name", functions->backbones[i].name);
		md_json_number(json, "bytes", functions->backbones[i].spec.bytes);
		md_json_end(json);
	}
	md_json_end(json);
	tenants(json, functions);
	md_json_end(json);
}

void md_sim_json_trace(struct md_json *json, const struct md_sim_workload *workload)
{
	md_json_object(json, "trace");
	md_json_text(json, "source", workload->source);
	md_json_number(json, "requests", workload->count);
	md_json_real(json, "seconds", (double)workload->end * 1e-9);
	md_json_end(json);
}

/* ---- what came out ---------------------------------------------------------------------------------------------- */

void md_sim_json_settings(struct md_json *json, const struct md_sim_policy *policy)
{
	md_json_object(json, "settings");
	md_json_text(json, "queueing", policy->queueing);
	md_json_text(json, "placement", policy->placement);
	md_json_text(json, "eviction", policy->eviction);
	md_json_text(json, "batching", policy->batching);
	md_json_text(json, "preloading", policy->preloading);
	md_json_number(json, "fixed_batch", policy->fixed_batch);
	md_json_real(json, "fixed_delay_ms", (double)policy->fixed_delay_ns * 1e-6);
	md_json_bool(json, "early_binding", policy->early_binding);
	md_json_bool(json, "no_peers", policy->no_peers);
	md_json_bool(json, "no_blocks", policy->no_blocks);
	md_json_bool(json, "no_sharing", policy->no_sharing);
	md_json_bool(json, "no_artifacts", policy->no_artifacts);
	md_json_number(json, "slots", policy->slots);
	md_json_end(json);
}

void md_sim_json_summary(struct md_json *json, struct md_sim_samples *samples)
{
	md_json_number(json, "count", samples->count);
	md_json_real(json, "mean", md_sim_samples_mean(samples));
	md_json_real(json, "p50", md_sim_samples_percentile(samples, 50));
	md_json_real(json, "p90", md_sim_samples_percentile(samples, 90));
	md_json_real(json, "p98", md_sim_samples_percentile(samples, 98));
	md_json_real(json, "p99", md_sim_samples_percentile(samples, 99));
	md_json_real(json, "p999", md_sim_samples_percentile(samples, 99.9));
	md_json_real(json, "max", md_sim_samples_percentile(samples, 100));
}

static void distribution(struct md_json *json, const char *key, struct md_sim_samples *samples)
{
	struct md_sim_cdf cdf;
	md_json_object(json, key);
	md_sim_json_summary(json, samples);
	md_sim_report_cdf(samples, &cdf);
	md_json_object(json, "cdf");
	md_json_reals(json, "values", cdf.values, cdf.count);
	md_json_reals(json, "parts", cdf.parts, cdf.count);
	md_json_end(json);
	md_json_end(json);
}

static bool is_known(size_t reason)
{
	return reason && strncmp(md_sim_report_reason(reason), "unknown", 7) != 0;
}

void md_sim_json_reasons(struct md_json *json, const uint64_t rejected[MD_SIM_REASONS])
{
	md_json_object(json, "rejected");
	for (size_t reason = 0; reason < MD_SIM_REASONS; reason++)
		if (rejected[reason] || is_known(reason))
			md_json_number(json, md_sim_report_reason(reason), rejected[reason]);
	md_json_end(json);
}

static void service(struct md_json *json, const struct md_sim_result *result)
{
	struct md_sim_share share = md_sim_report_share(result);
	md_json_object(json, "functions");
	md_json_number(json, "counted", share.counted);
	md_json_number(json, "compliant", share.compliant);
	md_json_number(json, "served", result->running_functions);
	md_json_number(json, "asked", md_sim_report_asked(result));
	md_json_number(json, "never_served", md_sim_report_never_served(result));
	md_json_end(json);
	md_json_object(json, "requests");
	md_json_number(json, "all", result->requests);
	md_json_number(json, "served", result->served);
	md_json_number(json, "met", result->met);
	md_json_number(json, "rejected", md_sim_report_rejected(result));
	md_json_number(json, "unfinished", result->unfinished);
	md_json_end(json);
	md_sim_json_reasons(json, result->rejected);
}

static void distributions(struct md_json *json, struct md_sim_report *report, struct md_sim_result *result)
{
	struct md_sim_samples normalized = {0};
	distribution(json, "latency_ms", &result->latency_ms);
	if (md_sim_report_normalize(report, result, &normalized))
		distribution(json, "latency_of_slo", &normalized);
	else
		md_json_text(json, "latency_of_slo", NULL);
	md_sim_samples_finish(&normalized);
	distribution(json, "ttft_ms", &result->ttft_ms);
	distribution(json, "end_ms", &result->end_ms);
	distribution(json, "wait_ms", &result->wait_ms);
	distribution(json, "batch", &result->batch);
}

static void load(struct md_json *json, const struct md_sim_result *result)
{
	md_json_object(json, "load");
	md_json_reals(json, "gpu_busy_s", result->gpu_busy_s, result->gpu_count);
	md_json_real(json, "normalized_variance", md_sim_report_load_variance(result));
	md_json_real(json, "seconds", result->end_s);
	md_json_end(json);
}

static void scheduler(struct md_json *json, const struct md_sim_result *result)
{
	const struct medusa_sched_stats *stats = &result->stats;
	const struct {
		const char *key;
		uint64_t value;
	} numbers[] = {
	    {"swaps_host", stats->swaps_host},
	    {"swaps_peer", stats->swaps_peer},
	    {"swaps_cold", stats->swaps_cold},
	    {"bytes_host", stats->bytes_host},
	    {"bytes_peer", stats->bytes_peer},
	    {"bytes_cold", stats->bytes_cold},
	    {"runs", stats->runs},
	    {"joins", stats->joins},
	    {"preloads", stats->preloads},
	    {"evictions", stats->evictions},
	    {"offloads", stats->offloads},
	    {"cancelled", stats->cancelled},
	    {"retried", stats->retried},
	    {"reports_ignored", stats->reports_ignored},
	    {"memory_bytes", stats->memory_bytes},
	    {"contradictions", result->contradictions},
	};
	md_json_object(json, "scheduler");
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		md_json_number(json, numbers[i].key, numbers[i].value);
	md_json_end(json);
}

static void bill(struct md_json *json, const struct md_sim_result *result)
{
	double gpu_s = 0, cost = 0;
	for (uint32_t i = 0; i < result->function_count; i++) {
		gpu_s += result->functions[i].gpu_s;
		cost += result->functions[i].cost;
	}
	md_json_object(json, "bill");
	md_json_real(json, "gpu_s", gpu_s);
	md_json_real(json, "cost", cost);
	md_json_end(json);
}

static void real_time(struct md_json *json, const struct md_sim_report *report, const struct md_sim_result *result)
{
	if (report->no_real) {
		md_json_text(json, "real", NULL);
		return;
	}
	md_json_object(json, "real");
	md_json_real(json, "decide_us_p50", result->decide_us_p50);
	md_json_real(json, "decide_us_p99", result->decide_us_p99);
	md_json_real(json, "decide_us_p999", result->decide_us_p999);
	md_json_real(json, "wall_s", result->wall_s);
	md_json_end(json);
}

/* ---- over time -------------------------------------------------------------------------------------------------- */

/* A column of the points: offset is that of a uint64_t in struct md_sim_point. */
static void counts(struct md_json *json, const char *key, const struct md_sim_series *series, size_t offset)
{
	uint64_t values[MD_SIM_POINTS_MAX];
	for (size_t i = 0; i < series->count; i++)
		memcpy(&values[i], (const char *)&series->points[i] + offset, sizeof(values[i]));
	md_json_numbers(json, key, values, series->count);
}

static void levels(struct md_json *json, const char *key, const struct md_sim_series *series, size_t offset)
{
	double values[MD_SIM_POINTS_MAX];
	for (size_t i = 0; i < series->count; i++)
		memcpy(&values[i], (const char *)&series->points[i] + offset, sizeof(values[i]));
	md_json_reals(json, key, values, series->count);
}

/* The same of struct md_sim_memory, for one GPU. */
static void memory(struct md_json *json, const char *key, const struct md_sim_series *series, uint32_t gpu,
		   size_t offset)
{
	uint64_t values[MD_SIM_POINTS_MAX];
	for (size_t i = 0; i < series->count; i++)
		memcpy(&values[i], (const char *)&series->memory[i * series->gpu_count + gpu] + offset,
		       sizeof(values[i]));
	md_json_numbers(json, key, values, series->count);
}

static void gpus_over_time(struct md_json *json, const struct md_sim_series *series)
{
	md_json_list(json, "gpus");
	for (uint32_t gpu = 0; gpu < series->gpu_count; gpu++) {
		md_json_object(json, NULL);
		memory(json, "artifact_bytes", series, gpu, offsetof(struct md_sim_memory, artifacts));
		memory(json, "kv_bytes", series, gpu, offsetof(struct md_sim_memory, kv));
		memory(json, "residue_bytes", series, gpu, offsetof(struct md_sim_memory, residues));
		memory(json, "free_bytes", series, gpu, offsetof(struct md_sim_memory, free));
		md_json_end(json);
	}
	md_json_end(json);
}

static void over_time(struct md_json *json, const struct md_sim_series *series)
{
	md_json_object(json, "series");
	md_json_real(json, "interval_s", (double)series->interval_ns * 1e-9);
	md_json_number(json, "intervals", series->count);
	levels(json, "waiting", series, offsetof(struct md_sim_point, waiting));
	counts(json, "waiting_most", series, offsetof(struct md_sim_point, waiting_most));
	levels(json, "running", series, offsetof(struct md_sim_point, running));
	counts(json, "arrived", series, offsetof(struct md_sim_point, arrived));
	counts(json, "served", series, offsetof(struct md_sim_point, served));
	counts(json, "met", series, offsetof(struct md_sim_point, met));
	counts(json, "rejected", series, offsetof(struct md_sim_point, rejected));
	counts(json, "swaps", series, offsetof(struct md_sim_point, swaps));
	gpus_over_time(json, series);
	md_json_end(json);
}

/* ---- by tenant, model and function -------------------------------------------------------------------------------------- */

static void contended(struct md_json *json, const struct md_sim_tenant_result *result)
{
	md_json_object(json, "contended");
	md_json_real(json, "s", result->contended_s);
	md_json_real(json, "gpu_s", result->contended_gpu_s);
	md_json_real(json, "due_s", result->contended_due_s);
	md_json_real(json, "all_s", result->contended_all_s);
	md_json_end(json);
}

static void one_tenant(struct md_json *json, const struct md_sim_report *report, struct md_sim_result *results,
		       uint32_t tenant)
{
	struct md_sim_tenant_result *result = &results->tenants[tenant];
	md_json_object(json, NULL);
	md_json_text(json, "name", md_sim_tenant_name(report->functions, tenant));
	md_json_number(json, "requests", result->requests);
	md_json_number(json, "served", result->served);
	md_json_number(json, "met", result->met);
	md_sim_json_reasons(json, result->rejected);
	md_json_number(json, "waiting_most", result->waiting_most);
	md_json_real(json, "gpu_s", result->gpu_s);
	md_json_real(json, "share", md_sim_report_tenant_share(results, tenant));
	contended(json, result);
	md_json_object(json, "wait_ms");
	md_sim_json_summary(json, &result->wait_ms);
	md_json_end(json);
	md_json_object(json, "ttft_ms");
	md_sim_json_summary(json, &result->ttft_ms);
	md_json_end(json);
	md_json_end(json);
}

static void by_tenant(struct md_json *json, const struct md_sim_report *report, struct md_sim_result *result)
{
	md_json_list(json, "tenants");
	for (uint32_t i = 0; i < result->tenant_count; i++)
		one_tenant(json, report, result, i);
	md_json_end(json);
}

static void models(struct md_json *json, const struct md_sim_report *report, const struct md_sim_result *result)
{
	struct md_sim_share *shares = calloc((size_t)report->functions->model_count + 1, sizeof(*shares));
	md_json_list(json, "models");
	if (shares)
		md_sim_report_shares(report, result, shares);
	for (uint32_t i = 0; shares && i < report->functions->model_count; i++) {
		md_json_object(json, NULL);
		md_json_text(json, "name", report->functions->models[i]);
		md_json_number(json, "counted", shares[i].counted);
		md_json_number(json, "compliant", shares[i].compliant);
		md_json_end(json);
	}
	md_json_end(json);
	free(shares);
}

static void one_function(struct md_json *json, const struct md_sim_report *report, uint32_t index,
			 struct md_sim_function_result *result)
{
	const struct md_sim_function *function =
	    index < report->functions->count ? &report->functions->functions[index] : NULL;
	bool modelled = function && function->model < report->functions->model_count;
	md_json_object(json, NULL);
	md_json_text(json, "name", function ? function->name : NULL);
	md_json_text(json, "model", modelled ? report->functions->models[function->model] : NULL);
	md_json_real(json, "slo_ms", function ? (double)function->spec.slo_ns * 1e-6 : 0);
	md_json_number(json, "requests", result->requests);
	md_json_number(json, "served", result->served);
	md_json_number(json, "met", result->met);
	md_json_number(json, "rejected", result->rejected);
	md_json_number(json, "swaps", result->swaps);
	md_json_bool(json, "counted", result->counted);
	md_json_bool(json, "compliant", result->compliant);
	md_json_real(json, "gpu_s", result->gpu_s);
	md_json_real(json, "cost", result->cost);
	md_json_object(json, "latency_ms");
	md_sim_json_summary(json, &result->latency_ms);
	md_json_end(json);
	md_json_object(json, "ttft_ms");
	md_sim_json_summary(json, &result->ttft_ms);
	md_json_end(json);
	md_json_end(json);
}

static void one_policy(struct md_json *json, struct md_sim_report *report, struct md_sim_result *result)
{
	md_json_object(json, NULL);
	md_json_text(json, "name", result->policy->name);
	md_json_text(json, "summary", result->policy->summary);
	md_sim_json_settings(json, result->policy);
	service(json, result);
	distributions(json, report, result);
	load(json, result);
	scheduler(json, result);
	bill(json, result);
	real_time(json, report, result);
	over_time(json, &result->series);
	by_tenant(json, report, result);
	models(json, report, result);
	md_json_list(json, "per_function");
	for (uint32_t i = 0; i < result->function_count; i++)
		one_function(json, report, i, &result->functions[i]);
	md_json_end(json);
	md_json_end(json);
}

static void write_report(void *given, FILE *out)
{
	struct md_sim_report *report = given;
	struct md_json json;
	md_json_init(&json, out);
	md_json_object(&json, NULL);
	md_json_text(&json, "tool", "medusa-simulate");
	md_json_number(&json, "format", FORMAT);
	md_json_bool(&json, "simulated", true);
	md_sim_json_node(&json, report->node);
	md_sim_json_functions(&json, report->functions);
	md_sim_json_trace(&json, report->workload);
	md_json_number(&json, "seed", report->seed);
	md_json_list(&json, "policies");
	for (size_t p = 0; p < report->count; p++)
		one_policy(&json, report, &report->results[p]);
	md_json_end(&json);
	md_json_end(&json);
}

enum md_status md_sim_report_json(struct md_sim_report *report, const char *path, struct md_error *err)
{
	return md_sim_report_publish(report, write_report, path, err);
}
