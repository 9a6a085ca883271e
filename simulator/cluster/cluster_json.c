/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster's results as JSON; docs/simulate-json.md says what each key is. */
#include "base/json.h"
#include "simulator/cluster/sim_cluster.h"
#include "simulator/report/report.h"

#define FORMAT 1

static double seconds(uint64_t ns)
{
	return (double)ns * 1e-9;
}

static void cluster(struct md_json *json, const struct md_sim_cluster *cluster)
{
	md_json_object(json, "cluster");
	md_json_text(json, "name", cluster->name);
	md_json_text(json, "source", cluster->source);
	md_json_number(json, "nodes", cluster->nodes);
	md_json_number(json, "domain_nodes", cluster->domain_nodes);
	md_json_real(json, "placement_interval_s", seconds(cluster->placement_ns));
	md_json_real(json, "told_every_s", seconds(cluster->told_ns));
	md_json_real(json, "hop_s", seconds(cluster->hop_ns));
	md_json_real(json, "lease_s", seconds(cluster->lease_ns));
	md_json_real(json, "lease_grace_s", seconds(cluster->grace_ns));
	md_json_real(json, "warmup_s", seconds(cluster->warmup_ns));
	md_json_real(json, "rate_factor", cluster->rate_factor);
	md_json_real(json, "popularity_change_s", seconds(cluster->change_ns));
	md_json_real(json, "popularity_part", cluster->change_part);
	md_json_real(json, "node_lost_every_s", seconds(cluster->lost_every_ns));
	md_json_real(json, "node_lost_for_s", seconds(cluster->lost_for_ns));
	md_json_list(json, "domains_lost");
	for (uint32_t i = 0; i < cluster->loss_count; i++) {
		md_json_object(json, NULL);
		md_json_real(json, "at_s", seconds(cluster->losses[i].at));
		md_json_number(json, "domain", cluster->losses[i].domain);
		md_json_real(json, "for_s", seconds(cluster->losses[i].back));
		md_json_end(json);
	}
	md_json_end(json);
	md_json_end(json);
}

static void spread(struct md_json *json, const char *key, const struct md_sim_spread *spread)
{
	md_json_object(json, key);
	md_json_real(json, "mean", spread->mean);
	md_json_real(json, "least", spread->least);
	md_json_real(json, "most", spread->most);
	md_json_real(json, "deviation", spread->deviation);
	md_json_end(json);
}

static void requests(struct md_json *json, struct md_sim_cluster_result *result)
{
	md_json_object(json, "requests");
	md_json_number(json, "all", result->requests);
	md_json_number(json, "served", result->served);
	md_json_number(json, "met", result->met);
	md_json_number(json, "broken", result->broken);
	md_json_number(json, "nowhere", result->nowhere);
	md_json_number(json, "retried", result->retried);
	md_json_number(json, "passed", result->passed);
	md_json_number(json, "unfinished", result->unfinished);
	md_json_end(json);
	md_sim_json_reasons(json, result->rejected);
	md_json_object(json, "found");
	md_json_number(json, "gpu", result->found[MD_SIM_FOUND_GPU]);
	md_json_number(json, "coming", result->found[MD_SIM_FOUND_COMING]);
	md_json_number(json, "host", result->found[MD_SIM_FOUND_HOST]);
	md_json_number(json, "disk", result->found[MD_SIM_FOUND_DISK]);
	md_json_end(json);
	md_json_object(json, "ttft_ms");
	md_sim_json_summary(json, &result->ttft_ms);
	md_json_end(json);
}

static void nodes(struct md_json *json, const struct md_sim_cluster_result *result)
{
	md_json_object(json, "loads");
	md_json_number(json, "host", result->swaps_host);
	md_json_number(json, "peer", result->swaps_peer);
	md_json_number(json, "disk", result->swaps_cold);
	md_json_number(json, "preloads", result->preloads);
	md_json_number(json, "ahead", result->ahead);
	md_json_number(json, "bytes_host", result->bytes_host);
	md_json_number(json, "bytes_peer", result->bytes_peer);
	md_json_number(json, "bytes_disk", result->bytes_cold);
	md_json_end(json);
	spread(json, "node_requests", &result->load);
	spread(json, "node_busy", &result->busy);
	md_json_number(json, "nodes_lost", result->lost);
	md_json_number(json, "nodes_back", result->back);
	md_json_object(json, "placement");
	md_json_number(json, "plans", result->rounds);
	md_json_number(json, "copies", result->copies);
	md_json_number(json, "added", result->moved);
	md_json_end(json);
	md_json_number(json, "contradictions", result->contradictions);
	md_json_real(json, "seconds", result->end_s);
}

static void real(struct md_json *json, const struct md_sim_cluster_report *report, struct md_sim_cluster_result *result)
{
	if (report->no_real) {
		md_json_text(json, "real", NULL);
		return;
	}
	md_json_object(json, "real");
	md_json_real(json, "plan_ms_p50", md_sim_samples_percentile(&result->plan_ms, 50));
	md_json_real(json, "plan_ms_max", md_sim_samples_percentile(&result->plan_ms, 100));
	md_json_real(json, "wall_s", result->wall_s);
	md_json_end(json);
}

static void write_report(void *given, FILE *out)
{
	struct md_sim_cluster_report *report = given;
	const struct md_sim_cluster_inputs *in = report->inputs;
	struct md_json json;
	md_json_init(&json, out);
	md_json_object(&json, NULL);
	md_json_text(&json, "tool", "medusa-simulate");
	md_json_number(&json, "format", FORMAT);
	md_json_bool(&json, "simulated", true);
	cluster(&json, in->cluster);
	md_sim_json_node(&json, in->node);
	md_sim_json_functions(&json, in->functions);
	md_sim_json_trace(&json, in->workload);
	md_json_number(&json, "seed", in->seed);
	md_json_object(&json, "policy");
	md_json_text(&json, "name", in->policy->name);
	md_json_text(&json, "summary", in->policy->summary);
	md_sim_json_settings(&json, in->policy);
	md_json_end(&json);
	md_json_list(&json, "routings");
	for (size_t i = 0; i < report->count; i++) {
		struct md_sim_cluster_result *result = &report->results[i];
		md_json_object(&json, NULL);
		md_json_text(&json, "name", md_sim_routing_name(result->routing));
		md_json_text(&json, "summary", md_sim_routing_summary(result->routing));
		requests(&json, result);
		nodes(&json, result);
		real(&json, report, result);
		md_json_end(&json);
	}
	md_json_end(&json);
	md_json_end(&json);
}

enum md_status md_sim_cluster_json(struct md_sim_cluster_report *report, const char *path, struct md_error *err)
{
	return md_sim_report_publish(report, write_report, path, err);
}
