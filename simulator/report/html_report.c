/* SPDX-License-Identifier: Apache-2.0 */
/* A report as one HTML file that loads nothing: the figures as a table, and plots. Also well-formed as XML. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "simulator/report/report.h"

static const char style[] =
    ":root{color-scheme:light dark;--paper:#fff;--ink:#1b1b1b;--quiet:#5c5c5c;--rule:#d5d5d5;--band:#f3f3f1;"
    "--s0:#0068a8;--s1:#c44e00;--s2:#00805c;--s3:#b0528e;--s4:#7d6400;--s5:#3a9ad0;--s6:#6b4bb3;--s7:#666}\n"
    "@media(prefers-color-scheme:dark){:root{--paper:#16181a;--ink:#e8e8e6;--quiet:#a5a5a2;--rule:#3c3f42;--band:#"
    "212427;"
    "--s0:#4eb0ee;--s1:#ff9350;--s2:#35c79a;--s3:#e08cc0;--s4:#d9bb4a;--s5:#9bd5f5;--s6:#b39cf0;--s7:#aaa}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;max-width:70rem;padding:1rem;background:var(--paper);color:var(--ink);"
    "font:1rem/1.5 system-ui,sans-serif}\n"
    "h1{font-size:1.5rem;line-height:1.2}h2{font-size:1.15rem;margin:2rem 0 .5rem}\n"
    ".note{border-left:.25rem solid var(--s1);padding:.25rem .75rem;background:var(--band)}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:1rem 0}dt{color:var(--quiet)}"
    "dd{margin:0;overflow-wrap:anywhere}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}\n"
    "caption{text-align:left;color:var(--quiet);padding-bottom:.25rem}\n"
    "th,td{padding:.2rem .6rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--rule)}\n"
    "th[scope=row],th[scope=rowgroup]{text-align:left;font-weight:normal;position:sticky;left:0;background:var(--paper)"
    "}\n"
    "th[scope=rowgroup]{font-weight:600;background:var(--band)}\n"
    "@media(max-width:40rem){th[scope=row],th[scope=rowgroup]{white-space:normal;min-width:8rem}}\n"
    ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1.5rem}\n"
    "figure{margin:0;min-width:0}figcaption{font-weight:600;margin-bottom:.25rem}"
    "svg{display:block;width:100%;height:auto;max-width:36rem}\n"
    "svg text{font:11px system-ui,sans-serif;fill:var(--ink)}.end{text-anchor:end}.middle{text-anchor:middle}"
    "svg .strong{font-weight:600}\n"
    ".grid{stroke:var(--rule);fill:none}.mark{stroke:var(--quiet);stroke-dasharray:3 3;fill:none}\n"
    ".line{fill:none;stroke-width:1.8}.dashed{stroke-dasharray:6 3}.pale{opacity:.55}\n"
    ".legend{display:flex;flex-wrap:wrap;gap:.1rem 1rem;list-style:none;margin:.5rem 0 1rem;padding:0;font-size:.9rem}"
    ".legend svg{display:inline-block;width:1.8rem;height:.8rem;margin-right:.35rem;vertical-align:middle}\n";

/* ---- text ------------------------------------------------------------------------------------------------------- */

static void element(const char *name, const char *text, FILE *out)
{
	fprintf(out, "<%s>", name);
	md_sim_plot_escape(text, out);
	fprintf(out, "</%.*s>\n", (int)strcspn(name, " "), name);
}

static void write_head(FILE *out)
{
	fputs("<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n"
	      "<meta charset=\"utf-8\"/>\n"
	      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
	      "<title>Scheduler simulation</title>\n<style>\n",
	      out);
	for (size_t c = 0; c < MD_SIM_PLOT_COLOURS; c++)
		fprintf(out, ".line.s%zu{stroke:var(--s%zu)}.bar.s%zu{fill:var(--s%zu)}\n", c, c, c, c);
	fputs(style, out);
	fputs("</style>\n</head>\n<body>\n<main>\n", out);
}

static void about(const char *term, const char *text, const char *source, FILE *out)
{
	element("dt", term, out);
	fputs("<dd>", out);
	md_sim_plot_escape(text, out);
	if (source) {
		fputs(" (", out);
		md_sim_plot_escape(source, out);
		fputs(")", out);
	}
	fputs("</dd>\n", out);
}

static void write_about(const struct md_sim_report *report, FILE *out)
{
	const struct md_sim_node *node = report->node;
	char text[256];
	element("h1", "Scheduler simulation", out);
	element("p class=\"note\"", md_sim_report_claim(report), out);
	fputs("<dl>\n", out);
	snprintf(text, sizeof(text), "%s, %u GPU%s", node->name ? node->name : "(no name)", node->gpu_count,
		 node->gpu_count == 1 ? "" : "s");
	about("node", text, node->source, out);
	snprintf(text, sizeof(text), "%u of %u model%s", report->functions->count, report->functions->model_count,
		 report->functions->model_count == 1 ? "" : "s");
	about("functions", text, report->functions->source, out);
	snprintf(text, sizeof(text), "%zu requests in %.1f s", report->workload->count,
		 (double)report->workload->end * 1e-9);
	about("trace", text, report->workload->source, out);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)report->seed);
	about("seed", text, NULL, out);
	for (size_t p = 0; p < report->count; p++)
		about(report->results[p].policy->name, report->results[p].policy->summary, NULL, out);
	fputs("</dl>\n", out);
}

/* ---- the table -------------------------------------------------------------------------------------------------- */

static void write_row(const struct md_sim_figures *figures, const struct md_sim_figure *row, FILE *out)
{
	fputs("<tr>", out);
	if (row->cells) {
		fputs("<th scope=\"row\">", out);
		md_sim_plot_escape(row->label, out);
		fputs("</th>", out);
		for (size_t p = 0; p < figures->columns; p++)
			fprintf(out, "<td>%s</td>", row->cells[p]);
	} else {
		fprintf(out, "<th scope=\"rowgroup\" colspan=\"%zu\">", figures->columns + 1);
		md_sim_plot_escape(row->label, out);
		fputs("</th>", out);
	}
	fputs("</tr>\n", out);
}

static void write_table(struct md_sim_report *report, FILE *out)
{
	struct md_sim_figures figures;
	md_sim_figures_make(report, &figures);
	element("h2", "Figures", out);
	fputs("<div class=\"scroll\" role=\"region\" aria-label=\"Figures\" tabindex=\"0\">\n<table>\n"
	      "<caption>One column per policy</caption>\n<thead><tr><th scope=\"col\">Figure</th>",
	      out);
	for (size_t p = 0; p < report->count; p++) {
		fputs("<th scope=\"col\">", out);
		md_sim_plot_escape(report->results[p].policy->name, out);
		fputs("</th>", out);
	}
	fputs("</tr></thead>\n<tbody>\n", out);
	for (size_t i = 0; i < figures.count; i++) {
		if (i && !figures.rows[i].cells)
			fputs("</tbody>\n<tbody>\n", out);
		write_row(&figures, &figures.rows[i], out);
	}
	fputs("</tbody>\n</table>\n</div>\n", out);
	if (figures.failed)
		element("p class=\"note\"", "Out of memory for all figures: some are missing.", out);
	md_sim_figures_finish(&figures);
}

/* ---- plots ------------------------------------------------------------------------------------------------------ */

struct plots {
	struct md_sim_report *report;
	const char **names; /* one per policy */
	FILE *out;
};

static void legend(const struct plots *plots)
{
	fputs("<ul class=\"legend\" aria-label=\"Policies\">\n", plots->out);
	for (size_t p = 0; p < plots->report->count; p++) {
		fprintf(plots->out,
			"<li><svg viewBox=\"0 0 28 10\" aria-hidden=\"true\"><path class=\"line s%zu%s\" d=\"M0 5H28\" "
			"stroke-width=\"4\"/></svg>",
			p % MD_SIM_PLOT_COLOURS, p / MD_SIM_PLOT_COLOURS % 2 ? " dashed" : "");
		md_sim_plot_escape(plots->names[p], plots->out);
		fputs("</li>\n", plots->out);
	}
	fputs("</ul>\n", plots->out);
}

static void begin_figure(const struct plots *plots, const char *title)
{
	fputs("<figure>\n", plots->out);
	element("figcaption", title, plots->out);
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
		element("p", "Out of memory for this plot.", plots->out);
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
		element("p", "Out of memory for this plot.", plots->out);
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
		element("p", "None.", plots->out);
		fputs("</figure>\n", plots->out);
	}
	plot_bars(
	    plots,
	    (struct md_sim_bars){.id = "rejected", .title = title, .unit = "", .groups = groups, .group_count = count},
	    rejected);
}

static void write_plots(struct md_sim_report *report, FILE *out)
{
	MD_AUTO_FREE const char **names = calloc(report->count + 1, sizeof(*names));
	struct plots plots = {report, names, out};
	element("h2", "Plots", out);
	if (!names) {
		element("p class=\"note\"", "Out of memory for plots: there are none.", out);
		return;
	}
	for (size_t p = 0; p < report->count; p++)
		names[p] = report->results[p].policy->name;
	legend(&plots);
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
	plot_load(&plots);
	plot_models(&plots);
	plot_rejected(&plots);
	fputs("</div>\n", out);
}

static void write_report(struct md_sim_report *report, FILE *out)
{
	write_head(out);
	write_about(report, out);
	write_table(report, out);
	write_plots(report, out);
	fputs("</main>\n</body>\n</html>\n", out);
}

enum md_status md_sim_report_html(struct md_sim_report *report, const char *path, struct md_error *err)
{
	return md_sim_report_publish(report, write_report, path, err);
}
