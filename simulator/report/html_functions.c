/* SPDX-License-Identifier: Apache-2.0 */
/* The HTML report by function: a table for each policy, those functions first that have the most requests which were not in time. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "simulator/report/html.h"

struct entry {
	uint32_t function;
	uint64_t missed; /* requests that were not served in time */
};

/* Without an objective, what is served is in time. */
static uint64_t missed_by(const struct md_sim_function_result *function)
{
	return function->requests - (function->counted ? function->met : function->served);
}

static int worst_first(const void *a, const void *b)
{
	const struct entry *left = a, *right = b;
	if (left->missed != right->missed)
		return left->missed < right->missed ? 1 : -1;
	return (left->function > right->function) - (left->function < right->function);
}

static void number(uint64_t value, FILE *out)
{
	fprintf(out, "<td>%" PRIu64 "</td>", value);
}

static void name_cell(const char *element, const char *name, FILE *out)
{
	fprintf(out, "<%s>", element);
	md_sim_plot_escape_most(name ? name : "(no name)", MD_SIM_NAME_SHOWN, out);
	fprintf(out, "</%.2s>", element);
}

static void percentile(struct md_sim_samples *samples, double p, FILE *out)
{
	if (samples->count)
		fprintf(out, "<td>%.1f</td>", md_sim_samples_percentile(samples, p));
	else
		fputs("<td>-</td>", out);
}

static void write_row(const struct md_sim_report *report, const struct md_sim_result *result, uint32_t index, FILE *out)
{
	const struct md_sim_functions *functions = report->functions;
	const struct md_sim_function *function = index < functions->count ? &functions->functions[index] : NULL;
	struct md_sim_function_result *made = &result->functions[index];
	bool modelled = function && function->model < functions->model_count;
	fputs("<tr>", out);
	name_cell("th scope=\"row\"", function ? function->name : NULL, out);
	name_cell("td class=\"text\"", modelled ? functions->models[function->model] : "-", out);
	if (function && function->spec.slo_ns)
		fprintf(out, "<td>%.6g</td>", (double)function->spec.slo_ns * 1e-6);
	else
		fputs("<td>-</td>", out);
	number(made->requests, out);
	fprintf(out, "<td>%" PRIu64 "%s</td>", made->served, made->requests && !made->served ? " (never)" : "");
	number(made->rejected, out);
	number(made->met, out);
	if (made->counted)
		fprintf(out, "<td>%.1f</td>", md_sim_report_percent((double)made->met, (double)made->requests));
	else
		fputs("<td>-</td>", out);
	fprintf(out, "<td class=\"text\">%s</td>", !made->counted ? "-" : made->compliant ? "yes" : "no");
	percentile(&made->ttft_ms, 50, out);
	percentile(&made->ttft_ms, 98, out);
	percentile(&made->ttft_ms, 99, out);
	number(made->swaps, out);
	fputs("</tr>\n", out);
}

static void write_head(FILE *out)
{
	static const struct {
		const char *class, *title;
	} columns[] = {{" class=\"text\"", "function"},
		       {" class=\"text\"", "model"},
		       {"", "objective, ms"},
		       {"", "requests"},
		       {"", "served"},
		       {"", "rejected"},
		       {"", "in time"},
		       {"", "in time, %"},
		       {" class=\"text\"", "compliant"},
		       {"", "TTFT p50, ms"},
		       {"", "TTFT p98, ms"},
		       {"", "TTFT p99, ms"},
		       {"", "swaps"}};
	fputs("<thead><tr>", out);
	for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
		fprintf(out, "<th scope=\"col\"%s>%s</th>", columns[i].class, columns[i].title);
	fputs("</tr></thead>\n", out);
}

static void write_table(const struct md_sim_report *report, const struct md_sim_result *result,
			const struct entry *entries, uint32_t shown, FILE *out)
{
	fputs("<div class=\"scroll tall\" role=\"region\" aria-label=\"Functions, ", out);
	md_sim_plot_escape(result->policy->name, out);
	fputs("\" tabindex=\"0\">\n<table class=\"sortable\">\n", out);
	write_head(out);
	fputs("<tbody>\n", out);
	for (uint32_t i = 0; i < shown; i++)
		write_row(report, result, entries[i].function, out);
	fputs("</tbody>\n</table>\n</div>\n", out);
}

static void say_left_out(const struct entry *entries, uint32_t shown, uint32_t count, FILE *out)
{
	uint64_t missed = 0;
	for (uint32_t i = shown; i < count; i++)
		missed += entries[i].missed;
	if (shown < count)
		fprintf(out,
			"<p>The %u functions with the most requests that were not in time. Left out: %u functions, "
			"which have "
			"%" PRIu64 " such requests together; the JSON has all (per_function).</p>\n",
			shown, count - shown, missed);
}

static void write_policy(struct md_sim_report *report, const struct md_sim_result *result, bool open, FILE *out)
{
	uint32_t count = result->function_count,
		 shown = count < MD_SIM_FUNCTIONS_SHOWN ? count : MD_SIM_FUNCTIONS_SHOWN;
	MD_AUTO_FREE struct entry *entries = calloc((size_t)count + 1, sizeof(*entries));
	fprintf(out, "<details%s>\n", open ? " open=\"open\"" : "");
	md_sim_html_element("summary class=\"title\"", result->policy->name, out);
	if (!entries) {
		md_sim_html_element("p class=\"note\"", "Out of memory for this table.", out);
		fputs("</details>\n", out);
		return;
	}
	for (uint32_t i = 0; i < count; i++)
		entries[i] = (struct entry){i, missed_by(&result->functions[i])};
	qsort(entries, count, sizeof(*entries), worst_first);
	say_left_out(entries, shown, count, out);
	write_table(report, result, entries, shown, out);
	fputs("</details>\n", out);
}

void md_sim_html_functions(struct md_sim_report *report, FILE *out)
{
	md_sim_html_element("h2", "By function", out);
	md_sim_html_element(
	    "p",
	    "Objective: the time from arrival to the first token or to completion, as the function's goal is. TTFT: "
	    "time to first token of the requests that were served. Compliant: as many requests in "
	    "time as the function's percentile asks; - without an objective or without requests. Swaps: "
	    "transfers of weights, libraries and backbones that its batches waited for. The head of a "
	    "column sorts by it, where the browser runs scripts.",
	    out);
	for (size_t p = 0; p < report->count; p++)
		write_policy(report, &report->results[p], p == 0, out);
}
