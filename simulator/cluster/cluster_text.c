/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster's results as a table for a terminal: routings side by side. */
#include "base/plain.h"
#include "simulator/cluster/sim_cluster.h"
#include "simulator/report/report.h"
#include "simulator/report/table.h"

static double percent(uint64_t part, uint64_t whole)
{
	return md_sim_report_percent((double)part, (double)whole);
}

static void about(const struct md_sim_cluster_report *report, FILE *out)
{
	const struct md_sim_cluster_inputs *in = report->inputs;
	md_plain_print(
	    out, "Simulated: no GPU was used. %s: %u nodes of %u GPUs (%s), %u functions, %zu requests in %.0f s.",
	    in->cluster->name, in->cluster->nodes, in->node->gpu_count, in->node->name, in->functions->count,
	    in->workload->count, (double)in->workload->end * 1e-9);
	fputc('\n', out);
	for (size_t i = 0; i < report->count; i++)
		fprintf(out, "  %-13s %s\n", md_sim_routing_name(report->results[i].routing),
			md_sim_routing_summary(report->results[i].routing));
	fputc('\n', out);
}

/* ---- rows ---- */

typedef void print_cell(struct md_table *table, struct md_sim_cluster_result *result, size_t which);

static void row(struct md_table *table, const struct md_sim_cluster_report *report, const char *label,
		print_cell *print, size_t which)
{
	md_table_cell(table, "%s", label);
	for (size_t i = 0; i < report->count; i++)
		print(table, &report->results[i], which);
}

static void whole(struct md_table *table, struct md_sim_cluster_result *result, size_t at)
{
	md_table_cell(table, "%llu", (unsigned long long)*(const uint64_t *)((const char *)result + at));
}

static void met(struct md_table *table, struct md_sim_cluster_result *result, size_t which)
{
	(void)which;
	md_table_cell(table, "%.2f %%", percent(result->met, result->requests));
}

static void ttft(struct md_table *table, struct md_sim_cluster_result *result, size_t per_mille)
{
	md_table_cell(table, "%.0f", md_sim_samples_percentile(&result->ttft_ms, (double)per_mille / 10));
}

static void found(struct md_table *table, struct md_sim_cluster_result *result, size_t where)
{
	uint64_t all = 0;
	for (unsigned i = 0; i < MD_SIM_FOUNDS; i++)
		all += result->found[i];
	md_table_cell(table, "%.2f %%", percent(result->found[where], all));
}

static void terabytes(struct md_table *table, struct md_sim_cluster_result *result, size_t at)
{
	md_table_cell(table, "%.1f", (double)*(const uint64_t *)((const char *)result + at) * 1e-12);
}

static void imbalance(struct md_table *table, struct md_sim_cluster_result *result, size_t at)
{
	const struct md_sim_spread *spread = (const void *)((const char *)result + at);
	md_table_cell(table, "%.2f", spread->mean > 0 ? spread->most / spread->mean : 0);
}

static void varies(struct md_table *table, struct md_sim_cluster_result *result, size_t at)
{
	const struct md_sim_spread *spread = (const void *)((const char *)result + at);
	md_table_cell(table, "%.2f", spread->mean > 0 ? spread->deviation / spread->mean : 0);
}

static void busy(struct md_table *table, struct md_sim_cluster_result *result, size_t which)
{
	(void)which;
	md_table_cell(table, "%.1f %%", 100 * result->busy.mean);
}

static void plan_ms(struct md_table *table, struct md_sim_cluster_result *result, size_t percentile)
{
	md_table_cell(table, "%.1f", md_sim_samples_percentile(&result->plan_ms, (double)percentile));
}

static void wall(struct md_table *table, struct md_sim_cluster_result *result, size_t which)
{
	(void)which;
	md_table_cell(table, "%.1f", result->wall_s);
}

#define AT(member) offsetof(struct md_sim_cluster_result, member)

static void request_rows(struct md_table *table, const struct md_sim_cluster_report *report)
{
	row(table, report, "requests", whole, AT(requests));
	row(table, report, "served within the objective", met, 0);
	row(table, report, "first token, ms: 50 %", ttft, 500);
	row(table, report, "  90 %", ttft, 900);
	row(table, report, "  99 %", ttft, 990);
	row(table, report, "  99.9 %", ttft, 999);
	for (size_t reason = 1; reason < MD_SIM_REASONS; reason++) {
		bool any = false;
		char label[80];
		for (size_t i = 0; i < report->count; i++)
			any |= report->results[i].rejected[reason] > 0;
		snprintf(label, sizeof(label), "rejected: %s", md_sim_report_reason(reason));
		if (any)
			row(table, report, label, whole, AT(rejected) + reason * sizeof(uint64_t));
	}
	row(table, report, "ended by the loss of a node", whole, AT(broken));
	row(table, report, "tried elsewhere", whole, AT(retried));
	row(table, report, "no node was there", whole, AT(nowhere));
	row(table, report, "passed on to another node", whole, AT(passed));
	row(table, report, "the model was on a GPU", found, MD_SIM_FOUND_GPU);
	row(table, report, "  on its way to one", found, MD_SIM_FOUND_COMING);
	row(table, report, "  in host memory", found, MD_SIM_FOUND_HOST);
	row(table, report, "  on the disk", found, MD_SIM_FOUND_DISK);
}

static void node_rows(struct md_table *table, const struct md_sim_cluster_report *report)
{
	row(table, report, "loads for requests, from the disk", whole, AT(swaps_cold));
	row(table, report, "  from host memory", whole, AT(swaps_host));
	row(table, report, "  from another GPU", whole, AT(swaps_peer));
	row(table, report, "loads ahead, by the nodes", whole, AT(preloads));
	row(table, report, "  for the leader", whole, AT(ahead));
	row(table, report, "TB from the disk", terabytes, AT(bytes_cold));
	row(table, report, "TB from host memory", terabytes, AT(bytes_host));
	row(table, report, "requests of the busiest node, of the mean", imbalance, AT(load));
	row(table, report, "  their deviation, of the mean", varies, AT(load));
	row(table, report, "GPUs busy", busy, 0);
	row(table, report, "  the busiest node's, of the mean", imbalance, AT(busy));
	row(table, report, "nodes lost", whole, AT(lost));
	row(table, report, "  that came back", whole, AT(back));
	row(table, report, "plans", whole, AT(rounds));
	row(table, report, "  copies in the last one", whole, AT(copies));
	row(table, report, "  copies that plans have added", whole, AT(moved));
	if (!report->no_real) {
		row(table, report, "real: ms of a plan, 50 %", plan_ms, 50);
		row(table, report, "  the longest", plan_ms, 100);
		row(table, report, "real: seconds of the simulation", wall, 0);
	}
	row(table, report, "JAMMED: never ended", whole, AT(unfinished));
	row(table, report, "WRONG: actions that cannot be", whole, AT(contradictions));
}

void md_sim_cluster_text(struct md_sim_cluster_report *report, FILE *out)
{
	char titles[256] = "";
	size_t used = 0;
	struct md_table table;
	about(report, out);
	for (size_t i = 0; i < report->count; i++)
		used += (size_t)snprintf(titles + used, sizeof(titles) - used, "|>%s",
					 md_sim_routing_name(report->results[i].routing));
	md_table_init(&table, titles);
	request_rows(&table, report);
	node_rows(&table, report);
	md_table_print(&table, 0, out);
}
