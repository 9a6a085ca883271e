/* SPDX-License-Identifier: Apache-2.0 */
/* Plots of the HTML report: distributions and sums, all policies in each. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "simulator/report/html.h"

void md_sim_html_legend(const struct md_sim_report *report, FILE *out)
{
	fputs("<ul class=\"legend\" aria-label=\"Policies\">\n", out);
	for (size_t p = 0; p < report->count; p++) {
		fprintf(out,
			"<li><svg viewBox=\"0 0 28 10\" aria-hidden=\"true\"><path class=\"line s%zu%s\" d=\"M0 5H28\" "
			"stroke-width=\"4\"/></svg>",
			p % MD_SIM_PLOT_COLOURS, p / MD_SIM_PLOT_COLOURS % 2 ? " dashed" : "");
		md_sim_plot_escape(report->results[p].policy->name, out);
		fputs("</li>\n", out);
	}
	fputs("</ul>\n", out);
}

struct plots {
	struct md_sim_report *report;
	const char **names; /* one per policy */
	FILE *out;
};

static void begin_figure(const struct plots *plots, const char *title)
{
	fputs("<figure>\n", plots->out);
	md_sim_html_element("figcaption", title, plots->out);
}

/* The values that a curve is made from; false: out of memory. */
typedef bool (*samples_getter)(struct md_sim_report *report, struct md_sim_result *result, struct md_sim_cdf *cdf);

static bool latency_of_slo(struct md_sim_report *report, struct md_sim_result *result, struct md_sim_cdf *cdf)
{
	struct md_sim_samples samples = {0};
	bool made = md_sim_report_normalize(report, result, &samples);
	md_sim_report_cdf(&samples, cdf);
	md_sim_samples_finish(&samples);
	return made;
}

static bool ttft(struct md_sim_report *report, struct md_sim_result *result, struct md_sim_cdf *cdf)
{
	(void)report;
	md_sim_report_cdf(&result->ttft_ms, cdf);
	return true;
}

static void plot_curves(const struct plots *plots, struct md_sim_curves plot, samples_getter get)
{
	struct md_sim_cdf *curves = calloc(plots->report->count + 1, sizeof(*curves));
	bool made = curves != NULL;
	for (size_t p = 0; made && p < plots->report->count; p++)
		made = get(plots->report, &plots->report->results[p], &curves[p]);
	begin_figure(plots, plot.title);
	plot.names = plots->names;
	plot.curves = curves;
	plot.count = plots->report->count;
	if (made)
		md_sim_plot_curves(&plot, plots->out);
	else
		md_sim_html_element("p", "Out of memory for this plot.", plots->out);
	fputs("</figure>\n", plots->out);
	free(curves);
}

/* values of one policy: result -> values[group * stride] for each of the groups. */
typedef void (*bars_getter)(const struct md_sim_report *report, const struct md_sim_result *result, size_t groups,
			    double *values, size_t stride);

static void plot_bars(const struct plots *plots, struct md_sim_bars plot, bars_getter get)
{
	size_t stride = plots->report->count;
	MD_AUTO_FREE double *values = calloc(plot.group_count * stride + 1, sizeof(*values));
	if (!plot.group_count)
		return;
	for (size_t p = 0; values && p < stride; p++)
		get(plots->report, &plots->report->results[p], plot.group_count, values + p, stride);
	begin_figure(plots, plot.title);
	plot.names = plots->names;
	plot.count = stride;
	plot.values = values;
	if (values)
		md_sim_plot_bars(&plot, plots->out);
	else
		md_sim_html_element("p", "Out of memory for this plot.", plots->out);
	fputs("</figure>\n", plots->out);
}

static void busy(const struct md_sim_report *report, const struct md_sim_result *result, size_t groups, double *values,
		 size_t stride)
{
	(void)report;
	for (size_t g = 0; g < groups; g++)
		values[g * stride] =
		    g < result->gpu_count ? md_sim_report_percent(result->gpu_busy_s[g], result->end_s) : -1;
}

static void service(const struct md_sim_report *report, const struct md_sim_result *result, size_t groups,
		    double *values, size_t stride)
{
	struct md_sim_share share = md_sim_report_share(result);
	(void)report;
	(void)groups;
	values[0] = result->requests ? md_sim_report_percent((double)result->met, (double)result->requests) : -1;
	values[stride] = share.counted ? md_sim_report_percent(share.compliant, share.counted) : -1;
}

static void plot_service(const struct plots *plots)
{
	static const char *const groups[] = {"requests", "functions, at their percentile"};
	plot_bars(plots,
		  (struct md_sim_bars){.id = "service",
				       .title = "Requests in time, and functions within SLO",
				       .unit = " %",
				       .decimals = 1,
				       .full = 100,
				       .groups = groups,
				       .group_count = 2},
		  service);
}

/* The samples are a copy: the values were sorted when the table was made. */
static double p99(struct md_sim_samples samples)
{
	return samples.count ? md_sim_samples_percentile(&samples, 99) : -1;
}

static void tail(const struct md_sim_report *report, const struct md_sim_result *result, size_t groups, double *values,
		 size_t stride)
{
	(void)report;
	(void)groups;
	values[0] = p99(result->latency_ms);
	values[stride] = p99(result->ttft_ms);
	values[2 * stride] = p99(result->end_ms);
}

static void plot_tail(const struct plots *plots)
{
	static const char *const groups[] = {"to the goal of the SLO", "to the first token", "to completion"};
	plot_bars(plots,
		  (struct md_sim_bars){.id = "tail",
				       .title = "99th percentile of the latency, of what was served",
				       .unit = " ms",
				       .groups = groups,
				       .group_count = 3},
		  tail);
}

static void plot_load(const struct plots *plots)
{
	uint32_t gpus = plots->report->node->gpu_count;
	MD_AUTO_FREE char(*labels)[24] = calloc((size_t)gpus + 1, sizeof(*labels));
	MD_AUTO_FREE const char **groups = calloc((size_t)gpus + 1, sizeof(*groups));
	for (uint32_t i = 0; labels && groups && i < gpus; i++) {
		snprintf(labels[i], sizeof(labels[i]), "GPU %u", i);
		groups[i] = labels[i];
	}
	if (labels && groups)
		plot_bars(plots,
			  (struct md_sim_bars){.id = "load",
					       .title = "Time that each GPU was busy",
					       .unit = " %",
					       .decimals = 1,
					       .full = 100,
					       .groups = groups,
					       .group_count = gpus},
			  busy);
}

static void compliance(const struct md_sim_report *report, const struct md_sim_result *result, size_t groups,
		       double *values, size_t stride)
{
	MD_AUTO_FREE struct md_sim_share *shares = calloc((size_t)report->functions->model_count + 1, sizeof(*shares));
	if (shares)
		md_sim_report_shares(report, result, shares);
	for (size_t g = 0; g < groups; g++)
		values[g * stride] =
		    shares && shares[g].counted ? md_sim_report_percent(shares[g].compliant, shares[g].counted) : -1;
}

static void plot_models(const struct plots *plots)
{
	const struct md_sim_functions *functions = plots->report->functions;
	uint32_t shown = functions->model_count < MD_SIM_MODELS_SHOWN ? functions->model_count : MD_SIM_MODELS_SHOWN;
	plot_bars(plots,
		  (struct md_sim_bars){.id = "models",
				       .title = "Functions within SLO, by model",
				       .unit = " %",
				       .decimals = 1,
				       .full = 100,
				       .groups = (const char *const *)functions->models,
				       .group_count = shown},
		  compliance);
}

/* Only reasons that occurred, in the order of their numbers. */
static size_t reasons_of(const struct md_sim_report *report, size_t reasons[MD_SIM_REASONS])
{
	size_t count = 0;
	for (size_t reason = 0; reason < MD_SIM_REASONS; reason++)
		for (size_t p = 0; p < report->count; p++)
			if (report->results[p].rejected[reason]) {
				reasons[count++] = reason;
				break;
			}
	return count;
}

static void rejected(const struct md_sim_report *report, const struct md_sim_result *result, size_t groups,
		     double *values, size_t stride)
{
	size_t reasons[MD_SIM_REASONS];
	reasons_of(report, reasons);
	for (size_t g = 0; g < groups; g++)
		values[g * stride] = (double)result->rejected[reasons[g]];
}

static void plot_rejected(const struct plots *plots)
{
	size_t reasons[MD_SIM_REASONS], count = reasons_of(plots->report, reasons);
	const char *groups[MD_SIM_REASONS];
	static const char title[] = "Requests rejected, by reason";
	for (size_t g = 0; g < count; g++)
		groups[g] = md_sim_report_reason(reasons[g]);
	if (!count) {
		begin_figure(plots, title);
		md_sim_html_element("p", "None.", plots->out);
		fputs("</figure>\n", plots->out);
	}
	plot_bars(
	    plots,
	    (struct md_sim_bars){.id = "rejected", .title = title, .unit = "", .groups = groups, .group_count = count},
	    rejected);
}

void md_sim_html_plots(struct md_sim_report *report, FILE *out)
{
	MD_AUTO_FREE const char **names = calloc(report->count + 1, sizeof(*names));
	struct plots plots = {report, names, out};
	md_sim_html_element("h2", "Plots", out);
	if (!names) {
		md_sim_html_element("p class=\"note\"", "Out of memory for plots: there are none.", out);
		return;
	}
	for (size_t p = 0; p < report->count; p++)
		names[p] = report->results[p].policy->name;
	md_sim_html_legend(report, out);
	fputs("<div class=\"plots\">\n", out);
	plot_curves(&plots,
		    (struct md_sim_curves){.id = "latency",
					   .title = "Latency in parts of each function's SLO",
					   .x_label = "latency / SLO",
					   .mark = "SLO"},
		    latency_of_slo);
	plot_curves(&plots,
		    (struct md_sim_curves){.id = "ttft", .title = "Time to first token", .x_label = "milliseconds"},
		    ttft);
	plot_service(&plots);
	plot_tail(&plots);
	plot_load(&plots);
	plot_models(&plots);
	plot_rejected(&plots);
	fputs("</div>\n", out);
}
