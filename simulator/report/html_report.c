/* SPDX-License-Identifier: Apache-2.0 */
/* A report as one HTML file that loads nothing: figures, plots, time series, functions. Also well-formed as XML. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "simulator/report/html.h"

/* ---- what was simulated ------------------------------------------------------------------------------------------ */

#define SOURCE_BESIDE 120 /* bytes; longer ones are folded */

static void write_source(const char *source, FILE *out)
{
	if (!source)
		return;
	bool folded = strlen(source) > SOURCE_BESIDE;
	fputs(folded ? "<details><summary>Where the numbers are from</summary>" : " (", out);
	md_sim_plot_escape(source, out);
	fputs(folded ? "</details>" : ")", out);
}

static void about(const char *term, const char *text, const char *source, FILE *out)
{
	md_sim_html_element("dt", term, out);
	fputs("<dd>", out);
	md_sim_plot_escape(text, out);
	write_source(source, out);
	fputs("</dd>\n", out);
}

static void write_about(const struct md_sim_report *report, FILE *out)
{
	const struct md_sim_node *node = report->node;
	char text[256];
	md_sim_html_element("h1", "Scheduler simulation", out);
	md_sim_html_element("p class=\"note\"", md_sim_report_claim(report), out);
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
	md_sim_html_element("h2", "Figures", out);
	fputs("<div class=\"scroll figures\" role=\"region\" aria-label=\"Figures\" tabindex=\"0\">\n<table>\n"
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
		md_sim_html_element("p class=\"note\"", "Out of memory for all figures: some are missing.", out);
	md_sim_figures_finish(&figures);
}

static void write_verdict(const struct md_sim_report *report, FILE *out)
{
	MD_AUTO_FREE char *verdict = md_sim_report_verdict(report);
	md_sim_html_element("p class=\"note\"", verdict ? verdict : "Out of memory for the conclusion.", out);
}

static void write_report(void *given, FILE *out)
{
	struct md_sim_report *report = given;
	md_sim_html_begin(out);
	write_about(report, out);
	write_verdict(report, out);
	write_table(report, out);
	md_sim_html_tenants(report, out);
	md_sim_html_plots(report, out);
	md_sim_html_series(report, out);
	md_sim_html_functions(report, out);
	md_sim_html_end(out);
}

enum md_status md_sim_report_html(struct md_sim_report *report, const char *path, struct md_error *err)
{
	return md_sim_report_publish(report, write_report, path, err);
}
