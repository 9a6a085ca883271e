/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a report: one table of rows for all output formats. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "simulator/report/report.h"

/* ---- sums ------------------------------------------------------------------------------------------------------- */

static void count_function(const struct md_sim_function_result *function, struct md_sim_share *share)
{
	share->counted += function->counted;
	share->compliant += function->counted && function->compliant;
}

struct md_sim_share md_sim_report_share(const struct md_sim_result *result)
{
	struct md_sim_share share = {0};
	for (uint32_t i = 0; i < result->function_count; i++)
		count_function(&result->functions[i], &share);
	return share;
}

void md_sim_report_shares(const struct md_sim_report *report, const struct md_sim_result *result,
			  struct md_sim_share *shares)
{
	const struct md_sim_functions *functions = report->functions;
	memset(shares, 0, functions->model_count * sizeof(*shares));
	for (uint32_t i = 0; i < result->function_count && i < functions->count; i++)
		if (functions->functions[i].model < functions->model_count)
			count_function(&result->functions[i], &shares[functions->functions[i].model]);
}

uint64_t md_sim_report_rejected(const struct md_sim_result *result)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < MD_SIM_REASONS; i++)
		sum += result->rejected[i];
	return sum;
}

uint32_t md_sim_report_asked(const struct md_sim_result *result)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < result->function_count; i++)
		count += result->functions[i].requests > 0;
	return count;
}

uint32_t md_sim_report_never_served(const struct md_sim_result *result)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < result->function_count; i++)
		count += result->functions[i].requests && !result->functions[i].served;
	return count;
}

const char *md_sim_report_claim(const struct md_sim_report *report)
{
	return report->no_real ? "Simulated: no GPU was used, and nothing was measured."
			       : "Simulated: no GPU was used. Only the times that say so are real.";
}

double md_sim_report_percent(double part, double whole)
{
	return whole > 0 ? 100 * part / whole : 0;
}

double md_sim_report_load_variance(const struct md_sim_result *result)
{
	double greatest = 0, mean = 0, variance = 0;
	for (uint32_t i = 0; i < result->gpu_count; i++)
		greatest = fmax(greatest, result->gpu_busy_s[i]);
	if (greatest <= 0)
		return 0;
	for (uint32_t i = 0; i < result->gpu_count; i++)
		mean += result->gpu_busy_s[i] / greatest / result->gpu_count;
	for (uint32_t i = 0; i < result->gpu_count; i++) {
		double off = result->gpu_busy_s[i] / greatest - mean;
		variance += off * off / result->gpu_count;
	}
	return variance;
}

const char *md_sim_report_reason(size_t reason)
{
	return reason ? medusa_sched_reason_name((enum medusa_sched_reason)reason) : "no reason given";
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static struct md_sim_figure *add(struct md_sim_figures *figures, const char *format, va_list arguments)
{
	struct md_sim_figure row = {0};
	if (!MD_ARRAY_GROW(figures->rows, figures->count, figures->capacity))
		return NULL;
	if (vasprintf(&row.label, format, arguments) < 0)
		return NULL;
	figures->rows[figures->count] = row;
	return &figures->rows[figures->count++];
}

static __attribute__((format(printf, 2, 3))) void title(struct md_sim_figures *figures, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	figures->failed |= !add(figures, format, arguments);
	va_end(arguments);
}

/* Adds a row and returns its cells, or NULL. */
static __attribute__((format(printf, 2, 3))) char (*row(struct md_sim_figures *figures, const char *format,
							...))[MD_SIM_CELL_TEXT]
{
	char(*cells)[MD_SIM_CELL_TEXT] = calloc(figures->columns + 1, sizeof(*cells));
	struct md_sim_figure *added = NULL;
	va_list arguments;

	va_start(arguments, format);
	if (cells)
		added = add(figures, format, arguments);
	va_end(arguments);
	if (!added) {
		figures->failed = true;
		free(cells);
		return NULL;
	}
	added->cells = cells;
	return cells;
}

static void share_cell(char cell[MD_SIM_CELL_TEXT], uint64_t part, uint64_t whole)
{
	if (whole)
		snprintf(cell, MD_SIM_CELL_TEXT, "%llu of %llu (%.1f %%)", (unsigned long long)part,
			 (unsigned long long)whole, md_sim_report_percent((double)part, (double)whole));
	else
		snprintf(cell, MD_SIM_CELL_TEXT, "-");
}

/* Rows that each show one field of struct md_sim_result. */
enum kind { NUMBER, REAL, MEAN, PERCENTILE };

struct field {
	const char *label;
	enum kind kind;
	size_t offset;
	double argument; /* a factor; for PERCENTILE: which one */
	int decimals;
};

#define AT(member) offsetof(struct md_sim_result, member)

static double value_of(struct md_sim_result *result, const struct field *field)
{
	char *at = (char *)result + field->offset;
	switch (field->kind) {
	case NUMBER:
		return (double)*(uint64_t *)at * field->argument;
	case REAL:
		return *(double *)at * field->argument;
	case MEAN:
		return md_sim_samples_mean((struct md_sim_samples *)at) * field->argument;
	case PERCENTILE:
		return md_sim_samples_percentile((struct md_sim_samples *)at, field->argument);
	}
	return 0;
}

static bool is_empty(const struct md_sim_result *result, const struct field *field)
{
	return (field->kind == MEAN || field->kind == PERCENTILE) &&
	       !((const struct md_sim_samples *)((const char *)result + field->offset))->count;
}

static void field_rows(struct md_sim_report *report, struct md_sim_figures *figures, const struct field *fields,
		       size_t count)
{
	for (size_t i = 0; i < count; i++) {
		char(*cells)[MD_SIM_CELL_TEXT] = row(figures, "%s", fields[i].label);
		for (size_t p = 0; cells && p < report->count; p++)
			if (is_empty(&report->results[p], &fields[i]))
				snprintf(cells[p], sizeof(cells[p]), "-");
			else
				snprintf(cells[p], sizeof(cells[p]), "%.*f", fields[i].decimals,
					 value_of(&report->results[p], &fields[i]));
	}
}

#define FIELD_ROWS(report, figures, fields) field_rows(report, figures, fields, sizeof(fields) / sizeof((fields)[0]))

#define PERCENTILES(member)                                                                                            \
	{"p50", PERCENTILE, AT(member), 50, 1}, {"p90", PERCENTILE, AT(member), 90, 1},                                \
	    {"p98", PERCENTILE, AT(member), 98, 1}, {"p99", PERCENTILE, AT(member), 99, 1},                            \
	{                                                                                                              \
		"p99.9", PERCENTILE, AT(member), 99.9, 1                                                               \
	}

static const struct field requests[] = {
    {"requests", NUMBER, AT(requests), 1, 0},
    {"served", NUMBER, AT(served), 1, 0},
};
static const struct field latency[] = {PERCENTILES(latency_ms)};
static const struct field ttft[] = {{"mean", MEAN, AT(ttft_ms), 1, 1}, PERCENTILES(ttft_ms)};
static const struct field end[] = {{"mean", MEAN, AT(end_ms), 1, 1}, PERCENTILES(end_ms)};
static const struct field batches[] = {
    {"waiting, mean, ms", MEAN, AT(wait_ms), 1, 1},
    {"waiting, p99, ms", PERCENTILE, AT(wait_ms), 99, 1},
    {"requests per batch, mean", MEAN, AT(batch), 1, 2},
};
static const struct field swaps[] = {
    {"swaps from host", NUMBER, AT(stats.swaps_host), 1, 0},
    {"swaps from a peer GPU", NUMBER, AT(stats.swaps_peer), 1, 0},
    {"swaps from cold", NUMBER, AT(stats.swaps_cold), 1, 0},
    {"GB from host", NUMBER, AT(stats.bytes_host), 1e-9, 1},
    {"GB from a peer GPU", NUMBER, AT(stats.bytes_peer), 1e-9, 1},
    {"GB from cold", NUMBER, AT(stats.bytes_cold), 1e-9, 1},
    {"preloads", NUMBER, AT(stats.preloads), 1, 0},
    {"evictions", NUMBER, AT(stats.evictions), 1, 0},
    {"offloads", NUMBER, AT(stats.offloads), 1, 0},
};
static const struct field real_time[] = {
    {"decision p50, us", REAL, AT(decide_us_p50), 1, 2},
    {"decision p99, us", REAL, AT(decide_us_p99), 1, 2},
    {"decision p99.9, us", REAL, AT(decide_us_p999), 1, 2},
    {"whole run, s", REAL, AT(wall_s), 1, 3},
};

/* ---- rows of several numbers ------------------------------------------------------------------------------------- */

static void service_rows(struct md_sim_report *report, struct md_sim_figures *figures)
{
	char(*cells)[MD_SIM_CELL_TEXT] = row(figures, "functions within SLO");

	for (size_t p = 0; cells && p < report->count; p++) {
		struct md_sim_share share = md_sim_report_share(&report->results[p]);
		share_cell(cells[p], share.compliant, share.counted);
	}
	cells = row(figures, "functions ever served");
	for (size_t p = 0; cells && p < report->count; p++)
		snprintf(cells[p], sizeof(cells[p]), "%u of %u", report->results[p].running_functions,
			 report->results[p].function_count);
	cells = row(figures, "functions never served");
	for (size_t p = 0; cells && p < report->count; p++)
		share_cell(cells[p], md_sim_report_never_served(&report->results[p]),
			   md_sim_report_asked(&report->results[p]));
	FIELD_ROWS(report, figures, requests);
	cells = row(figures, "served within SLO");
	for (size_t p = 0; cells && p < report->count; p++)
		share_cell(cells[p], report->results[p].met, report->results[p].requests);
	cells = row(figures, "rejected");
	for (size_t p = 0; cells && p < report->count; p++)
		snprintf(cells[p], sizeof(cells[p]), "%llu",
			 (unsigned long long)md_sim_report_rejected(&report->results[p]));
}

static void number_row(struct md_sim_report *report, struct md_sim_figures *figures, const char *label, size_t offset)
{
	const struct field field = {label, NUMBER, offset, 1, 0};
	for (size_t p = 0; p < report->count; p++)
		if (value_of(&report->results[p], &field) > 0) {
			field_rows(report, figures, &field, 1);
			return;
		}
}

/* Reasons, and results that indicate a bug, get a row only if they occur. */
static void trouble_rows(struct md_sim_report *report, struct md_sim_figures *figures)
{
	for (size_t reason = 0; reason < MD_SIM_REASONS; reason++) {
		char label[64];
		snprintf(label, sizeof(label), "rejected: %s", md_sim_report_reason(reason));
		number_row(report, figures, label, AT(rejected) + reason * sizeof(uint64_t));
	}
	number_row(report, figures, "JAMMED: never ended", AT(unfinished));
	number_row(report, figures, "WRONG: actions that cannot be", AT(contradictions));
}

static void gpu_rows(struct md_sim_report *report, struct md_sim_figures *figures)
{
	char(*cells)[MD_SIM_CELL_TEXT];

	for (uint32_t gpu = 0; gpu < report->node->gpu_count; gpu++) {
		cells = row(figures, "GPU %u busy", gpu);
		for (size_t p = 0; cells && p < report->count; p++) {
			const struct md_sim_result *result = &report->results[p];
			if (gpu < result->gpu_count)
				snprintf(cells[p], sizeof(cells[p]), "%.1f %%",
					 md_sim_report_percent(result->gpu_busy_s[gpu], result->end_s));
		}
	}
	cells = row(figures, "variance of load / greatest load");
	for (size_t p = 0; cells && p < report->count; p++)
		snprintf(cells[p], sizeof(cells[p]), "%.4f", md_sim_report_load_variance(&report->results[p]));
}

static void cost_rows(struct md_sim_report *report, struct md_sim_figures *figures)
{
	bool priced = report->node->gpu_price_per_h > 0 || report->node->host_gb_price_per_h > 0;
	char(*seconds)[MD_SIM_CELL_TEXT] = row(figures, "GPU-seconds billed");
	char(*cost)[MD_SIM_CELL_TEXT] = row(figures, "cost, at the node's prices");

	for (size_t p = 0; seconds && cost && p < report->count; p++) {
		double gpu_s = 0, sum = 0;
		for (uint32_t i = 0; i < report->results[p].function_count; i++) {
			gpu_s += report->results[p].functions[i].gpu_s;
			sum += report->results[p].functions[i].cost;
		}
		snprintf(seconds[p], sizeof(seconds[p]), "%.1f", gpu_s);
		snprintf(cost[p], sizeof(cost[p]), priced ? "%.4f" : "-", sum);
	}
}

size_t md_sim_report_name_bytes(const char *name)
{
	size_t bytes = 0;
	for (size_t i = 0; name[bytes] && i < MD_SIM_NAME_SHOWN; i++) {
		size_t length = md_utf8_length(name + bytes, NULL);
		bytes += length ? length : 1;
	}
	return bytes;
}

/* A name may be of any length; the JSON has all of it. */
static void name_row(struct md_sim_figures *figures, const char *name)
{
	size_t bytes = md_sim_report_name_bytes(name);
	row(figures, "%.*s%s", (int)bytes, name, name[bytes] ? "..." : "");
}

static void model_rows(struct md_sim_report *report, struct md_sim_figures *figures)
{
	uint32_t models = report->functions->model_count;
	uint32_t shown = models < MD_SIM_MODELS_SHOWN ? models : MD_SIM_MODELS_SHOWN;
	struct md_sim_share *shares = calloc((size_t)models + 1, sizeof(*shares));
	size_t first = figures->count;
	for (uint32_t m = 0; m < shown; m++)
		name_row(figures, report->functions->models[m]);
	if (!shares || figures->failed || figures->count != first + shown) {
		figures->failed = true;
		free(shares);
		return;
	}
	for (size_t p = 0; p < report->count; p++) {
		md_sim_report_shares(report, &report->results[p], shares);
		for (uint32_t m = 0; m < shown; m++)
			share_cell(figures->rows[first + m].cells[p], shares[m].compliant, shares[m].counted);
	}
	free(shares);
	if (shown < models)
		title(figures, "(and %u models more: see the JSON)", models - shown);
}

void md_sim_figures_make(struct md_sim_report *report, struct md_sim_figures *figures)
{
	*figures = (struct md_sim_figures){.columns = report->count};
	title(figures, "Service");
	service_rows(report, figures);
	trouble_rows(report, figures);
	title(figures, "Latencies, times and waiting below are those of requests that were served.");
	title(figures, "Latency to the goal of the SLO, ms");
	FIELD_ROWS(report, figures, latency);
	title(figures, "Time to first token, ms");
	FIELD_ROWS(report, figures, ttft);
	title(figures, "Time to completion, ms");
	FIELD_ROWS(report, figures, end);
	title(figures, "Waiting and batches");
	FIELD_ROWS(report, figures, batches);
	title(figures, "Load");
	gpu_rows(report, figures);
	title(figures, "Swaps");
	FIELD_ROWS(report, figures, swaps);
	title(figures, "Bill");
	cost_rows(report, figures);
	if (!report->no_real) {
		title(figures, "Real time (the rest is simulated)");
		FIELD_ROWS(report, figures, real_time);
	}
	title(figures, "Functions within SLO, by model");
	model_rows(report, figures);
}

void md_sim_figures_finish(struct md_sim_figures *figures)
{
	for (size_t i = 0; i < figures->count; i++) {
		free(figures->rows[i].label);
		free(figures->rows[i].cells);
	}
	free(figures->rows);
	*figures = (struct md_sim_figures){0};
}
