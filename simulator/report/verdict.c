/* SPDX-License-Identifier: Apache-2.0 */
/* The sentence at the end of a report: which policies are the best by requests in time, and by functions within SLO. */
#include <stdlib.h>

#include "simulator/report/report.h"

typedef uint64_t (*score_of)(const struct md_sim_result *result);

static uint64_t requests_in_time(const struct md_sim_result *result)
{
	return result->met;
}

static uint64_t functions_within(const struct md_sim_result *result)
{
	return md_sim_report_share(result).compliant;
}

static uint64_t best_of(const struct md_sim_report *report, score_of score)
{
	uint64_t best = 0;
	for (size_t p = 0; p < report->count; p++)
		best = score(&report->results[p]) > best ? score(&report->results[p]) : best;
	return best;
}

/* Names all policies with this score. */
static void name_best(const struct md_sim_report *report, score_of score, uint64_t best, FILE *out)
{
	const char *before = "";
	for (size_t p = 0; p < report->count; p++) {
		if (score(&report->results[p]) != best)
			continue;
		fprintf(out, "%s%s", before, report->results[p].policy->name);
		before = ", ";
	}
}

static bool has_objective(const struct md_sim_report *report)
{
	for (uint32_t f = 0; f < report->functions->count; f++)
		if (report->functions->functions[f].spec.slo_ns)
			return true;
	return false;
}

static void write_best(const struct md_sim_report *report, FILE *out)
{
	const struct md_sim_result *any = &report->results[0];
	uint64_t met = best_of(report, requests_in_time), compliant = best_of(report, functions_within);
	if (!met) {
		fputs("No policy served a request in time.", out);
		return;
	}
	fputs("Most requests in time: ", out);
	name_best(report, requests_in_time, met, out);
	fprintf(out, " (%.1f %%). ", md_sim_report_percent((double)met, (double)any->requests));
	if (!compliant) {
		fprintf(out, "No function is within its SLO (0 of %u) with any policy.",
			md_sim_report_share(any).counted);
		return;
	}
	fputs("Most functions within SLO: ", out);
	name_best(report, functions_within, compliant, out);
	fprintf(out, " (%llu of %u).", (unsigned long long)compliant, md_sim_report_share(any).counted);
}

char *md_sim_report_verdict(const struct md_sim_report *report)
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);
	if (!out)
		return NULL;
	if (!report->workload->count || !report->count)
		fputs("There were no requests.", out);
	else if (!has_objective(report))
		fputs("No function has an objective (slo in functions.yaml): no request can be in time.", out);
	else
		write_best(report, out);
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}
