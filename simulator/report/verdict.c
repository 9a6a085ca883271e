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

/* Names all policies with the greatest score; returns the score. */
static uint64_t name_best(const struct md_sim_report *report, score_of score, FILE *out)
{
	uint64_t best = 0;
	const char *before = "";
	for (size_t p = 0; p < report->count; p++)
		best = score(&report->results[p]) > best ? score(&report->results[p]) : best;
	for (size_t p = 0; p < report->count; p++) {
		if (score(&report->results[p]) != best)
			continue;
		fprintf(out, "%s%s", before, report->results[p].policy->name);
		before = ", ";
	}
	return best;
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
	fputs("Most requests in time: ", out);
	uint64_t met = name_best(report, requests_in_time, out);
	fprintf(out,
		" (%.1f %%). Most functions within SLO: ", md_sim_report_percent((double)met, (double)any->requests));
	uint64_t compliant = name_best(report, functions_within, out);
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
