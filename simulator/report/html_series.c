/* SPDX-License-Identifier: Apache-2.0 */
/* The HTML report over simulated time: queue, requests in time and swaps of all policies, and the memory of each GPU. */
#include <math.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "simulator/report/html.h"

struct over_time {
	struct md_sim_report *report;
	const char **names; /* one per policy */
	double *values;     /* MD_SIM_POINTS_MAX for each line of one plot */
	struct md_sim_line *lines;
	FILE *out;
};

typedef double (*point_value)(const struct md_sim_series *series, size_t index);

static double waiting(const struct md_sim_series *series, size_t index)
{
	return series->points[index].waiting;
}

/* Of the requests that ended in the interval; none: no value. */
static double in_time(const struct md_sim_series *series, size_t index)
{
	const struct md_sim_point *point = &series->points[index];
	uint64_t ended = point->served + point->rejected;
	return ended ? 100 * (double)point->met / (double)ended : NAN;
}

/* Intervals may differ in length between policies, so it is a rate. */
static double swaps_per_s(const struct md_sim_series *series, size_t index)
{
	return (double)series->points[index].swaps / ((double)series->interval_ns * 1e-9);
}

static struct md_sim_line line_of(const struct md_sim_result *result, double *values)
{
	return (struct md_sim_line){.values = values,
				    .count = result->series.count,
				    .interval_s = (double)result->series.interval_ns * 1e-9,
				    .end_s = result->end_s};
}

static void plot_all(const struct over_time *over, struct md_sim_lines plot, point_value get)
{
	const struct md_sim_report *report = over->report;
	for (size_t p = 0; p < report->count; p++) {
		double *values = over->values + p * MD_SIM_POINTS_MAX;
		for (size_t i = 0; i < report->results[p].series.count; i++)
			values[i] = get(&report->results[p].series, i);
		over->lines[p] = line_of(&report->results[p], values);
	}
	plot.names = over->names;
	plot.lines = over->lines;
	plot.count = report->count;
	fputs("<figure>\n", over->out);
	md_sim_html_element("figcaption", plot.title, over->out);
	md_sim_plot_lines(&plot, over->out);
	fputs("</figure>\n", over->out);
}

/* ---- memory --------------------------------------------------------------------------------------------------------- */

static void plot_gpu(const struct over_time *over, size_t policy, uint32_t gpu, double end_s)
{
	const struct md_sim_result *result = &over->report->results[policy];
	const struct md_sim_series *series = &result->series;
	char id[64], title[64];
	struct md_sim_memory_plot plot = {.id = id, .title = title, .end_s = end_s};
	double *sums[MD_SIM_MEMORY_PARTS];
	snprintf(id, sizeof(id), "memory-%zu-%u", policy, gpu);
	snprintf(title, sizeof(title), "GPU %u, GB", gpu);
	for (size_t i = 0; i < MD_SIM_MEMORY_PARTS; i++) {
		sums[i] = over->values + i * MD_SIM_POINTS_MAX;
		plot.sums[i] = line_of(result, sums[i]);
	}
	for (size_t i = 0; i < series->count; i++) {
		const struct md_sim_memory *memory = &series->memory[i * series->gpu_count + gpu];
		sums[0][i] = (double)memory->artifacts * 1e-9;
		sums[1][i] = sums[0][i] + (double)memory->residues * 1e-9;
		sums[2][i] = sums[1][i] + (double)memory->kv * 1e-9;
	}
	plot.full_gb = (double)over->report->node->gpus[gpu].memory_bytes * 1e-9;
	fputs("<figure>\n", over->out);
	md_sim_html_element("figcaption", title, over->out);
	md_sim_plot_memory(&plot, over->out);
	fputs("</figure>\n", over->out);
}

static void plot_policy(const struct over_time *over, size_t policy, double end_s)
{
	const struct md_sim_result *result = &over->report->results[policy];
	uint32_t gpus = result->series.gpu_count, shown = gpus < MD_SIM_GPUS_SHOWN ? gpus : MD_SIM_GPUS_SHOWN;
	fprintf(over->out, "<details%s>\n", policy ? "" : " open=\"open\"");
	md_sim_html_element("summary class=\"title\"", over->names[policy], over->out);
	fputs("<div class=\"plots\">\n", over->out);
	for (uint32_t gpu = 0; gpu < shown; gpu++)
		plot_gpu(over, policy, gpu, end_s);
	fputs("</div>\n", over->out);
	if (shown < gpus)
		fprintf(over->out, "<p>%u GPUs more are in the JSON (series).</p>\n", gpus - shown);
	fputs("</details>\n", over->out);
}

static void plot_memory(const struct over_time *over)
{
	double end_s = 0;
	for (size_t p = 0; p < over->report->count; p++)
		end_s = fmax(end_s, over->report->results[p].end_s);
	md_sim_html_element("h2", "Memory of each GPU", over->out);
	fputs("<ul class=\"legend\" aria-label=\"Parts of a GPU's memory\">\n", over->out);
	static const char *const parts[][2] = {{"artifacts", "artifacts"},
					       {"residues", "residues of evicted contexts"},
					       {"kv", "KV caches"},
					       {"room", "free"}};
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		fprintf(over->out,
			"<li><svg viewBox=\"0 0 28 10\" aria-hidden=\"true\"><rect class=\"%s\" width=\"28\" "
			"height=\"10\"/></svg>%s</li>\n",
			parts[i][0], parts[i][1]);
	fputs("</ul>\n", over->out);
	for (size_t p = 0; p < over->report->count; p++)
		if (over->report->results[p].series.count)
			plot_policy(over, p, end_s);
}

/* ---- the section ---------------------------------------------------------------------------------------------------- */

/* One sentence for each length of the intervals: policies that take much longer than the trace have longer ones. */
static void say_intervals(const struct over_time *over)
{
	const struct md_sim_report *report = over->report;
	fputs("<p>Each value is of one interval of simulated time:", over->out);
	for (size_t p = 0; p < report->count; p++) {
		fprintf(over->out, "%s %g s (", p ? "," : "", (double)report->results[p].series.interval_ns * 1e-9);
		for (; p + 1 < report->count &&
		       report->results[p + 1].series.interval_ns == report->results[p].series.interval_ns;
		     p++) {
			md_sim_plot_escape(over->names[p], over->out);
			fputs(", ", over->out);
		}
		md_sim_plot_escape(over->names[p], over->out);
		fputs(")", over->out);
	}
	fputs(". Queue and memory are means over the interval, requests in time are parts of those that ended in "
	      "it.</p>\n",
	      over->out);
}

static void write_section(const struct over_time *over)
{
	say_intervals(over);
	md_sim_html_legend(over->report, over->out);
	fputs("<div class=\"plots\">\n", over->out);
	plot_all(over, (struct md_sim_lines){.id = "queue", .title = "Requests in the queue", .unit = ""}, waiting);
	plot_all(over, (struct md_sim_lines){.id = "in-time", .title = "Requests in time", .unit = " %", .full = 100},
		 in_time);
	plot_all(over, (struct md_sim_lines){.id = "swaps", .title = "Swaps a second", .unit = ""}, swaps_per_s);
	fputs("</div>\n", over->out);
	plot_memory(over);
}

void md_sim_html_series(struct md_sim_report *report, FILE *out)
{
	size_t lines = report->count > MD_SIM_MEMORY_PARTS ? report->count : MD_SIM_MEMORY_PARTS;
	MD_AUTO_FREE const char **names = calloc(report->count + 1, sizeof(*names));
	MD_AUTO_FREE double *values = calloc(lines * MD_SIM_POINTS_MAX, sizeof(*values));
	MD_AUTO_FREE struct md_sim_line *made = calloc(report->count + 1, sizeof(*made));
	const struct over_time over = {report, names, values, made, out};
	md_sim_html_element("h2", "Over time", out);
	if (!names || !values || !made) {
		md_sim_html_element("p class=\"note\"", "Out of memory for plots over time: there are none.", out);
		return;
	}
	for (size_t p = 0; p < report->count; p++)
		names[p] = report->results[p].policy->name;
	if (report->count)
		write_section(&over);
}
