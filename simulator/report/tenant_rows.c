/* SPDX-License-Identifier: Apache-2.0 */
/* What a policy did for a tenant, as the cells of a row that text and HTML share. */
#include <inttypes.h>
#include <string.h>

#include "simulator/report/report.h"

const char *const md_sim_tenant_titles[MD_SIM_TENANT_COLUMNS] = {
    [MD_SIM_TENANT_WEIGHT] = "weight",
    [MD_SIM_TENANT_REQUESTS] = "requests",
    [MD_SIM_TENANT_SERVED] = "served",
    [MD_SIM_TENANT_MET] = "within SLO",
    [MD_SIM_TENANT_WAITING] = "most waiting",
    [MD_SIM_TENANT_WAIT] = "wait p50, p99, ms",
    [MD_SIM_TENANT_GPU] = "GPU-s",
    [MD_SIM_TENANT_SHARE] = "share",
    [MD_SIM_TENANT_CONTENDED] = "contended: had, due",
    [MD_SIM_TENANT_REJECTED] = "rejected",
};

const char md_sim_tenant_legend[] = "Share: the tenant's part of all GPU time. Contended: how long requests of this "
				    "tenant, other than those that its own "
				    "limit holds back, and such requests of another tenant waited at the same time. "
				    "Had: its part of the GPU time that all "
				    "tenants with such requests had meanwhile. Due: its part of it by weight. A "
				    "tenant that asks for less than its share may have less than was due.";

static uint64_t rejected_of(const struct md_sim_tenant_result *tenant)
{
	uint64_t sum = 0;
	for (size_t reason = 0; reason < MD_SIM_REASONS; reason++)
		sum += tenant->rejected[reason];
	return sum;
}

double md_sim_report_tenant_share(const struct md_sim_result *result, uint32_t tenant)
{
	double all = 0;
	for (uint32_t i = 0; i < result->tenant_count; i++)
		all += result->tenants[i].gpu_s;
	return all > 0 ? result->tenants[tenant].gpu_s / all : 0;
}

struct md_sim_tenants_shown md_sim_report_tenants(const struct md_sim_report *report)
{
	const struct md_sim_result *any = report->count ? &report->results[0] : NULL;
	struct md_sim_tenants_shown shown = {0};
	for (uint32_t i = 0; any && i < any->tenant_count; i++) {
		if (!i && !any->tenants[i].requests)
			continue;
		if (shown.count < MD_SIM_TENANTS_SHOWN)
			shown.tenants[shown.count++] = i;
		else
			shown.left++;
	}
	return shown;
}

#define CELL(cells, column) (cells)->text[column], sizeof((cells)->text[column])

/* "12: 10 quota, 2 waited too long" */
static void rejected_cell(const struct md_sim_tenant_result *made, char *cell, size_t bytes)
{
	size_t used = (size_t)snprintf(cell, bytes, "%" PRIu64, rejected_of(made));
	const char *before = ": ";
	for (size_t reason = 0; reason < MD_SIM_REASONS && used < bytes; reason++) {
		if (!made->rejected[reason])
			continue;
		used += (size_t)snprintf(cell + used, bytes - used, "%s%" PRIu64 " %s", before, made->rejected[reason],
					 md_sim_report_reason(reason));
		before = ", ";
	}
}

static void contended_cell(const struct md_sim_tenant_result *made, char *cell, size_t bytes)
{
	if (made->contended_s <= 0)
		snprintf(cell, bytes, "-");
	else
		snprintf(cell, bytes, "%.1f s: %.1f %%, %.1f %%", made->contended_s,
			 md_sim_report_percent(made->contended_gpu_s, made->contended_all_s),
			 md_sim_report_percent(made->contended_due_s, made->contended_all_s));
}

void md_sim_report_tenant(const struct md_sim_report *report, struct md_sim_result *result, uint32_t tenant,
			  struct md_sim_tenant_cells *cells)
{
	struct md_sim_tenant_result *made = &result->tenants[tenant];
	snprintf(CELL(cells, MD_SIM_TENANT_WEIGHT), "%g", report->functions->tenants[tenant].spec.weight);
	snprintf(CELL(cells, MD_SIM_TENANT_REQUESTS), "%" PRIu64, made->requests);
	snprintf(CELL(cells, MD_SIM_TENANT_SERVED), "%" PRIu64, made->served);
	snprintf(CELL(cells, MD_SIM_TENANT_MET), "%" PRIu64 " (%.1f %%)", made->met,
		 md_sim_report_percent((double)made->met, (double)made->requests));
	snprintf(CELL(cells, MD_SIM_TENANT_WAITING), "%" PRIu64, made->waiting_most);
	if (made->wait_ms.count)
		snprintf(CELL(cells, MD_SIM_TENANT_WAIT), "%.1f, %.1f", md_sim_samples_percentile(&made->wait_ms, 50),
			 md_sim_samples_percentile(&made->wait_ms, 99));
	else
		snprintf(CELL(cells, MD_SIM_TENANT_WAIT), "-");
	snprintf(CELL(cells, MD_SIM_TENANT_GPU), "%.1f", made->gpu_s);
	snprintf(CELL(cells, MD_SIM_TENANT_SHARE), "%.1f %%", 100 * md_sim_report_tenant_share(result, tenant));
	contended_cell(made, CELL(cells, MD_SIM_TENANT_CONTENDED));
	rejected_cell(made, CELL(cells, MD_SIM_TENANT_REJECTED));
}
