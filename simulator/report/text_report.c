/* SPDX-License-Identifier: Apache-2.0 */
/* A report as tables for a terminal: policies side by side. */
#include <stdarg.h>
#include <string.h>

#include "base/plain.h"
#include "base/cleanup.h"
#include "simulator/report/report.h"
#include "simulator/report/table.h"

#define LINE_WIDTH 110
#define INDENT 13
#define POLICIES_ABREAST 6 /* further policies follow below, with the labels repeated */

/* Prints a text, broken at blanks; the first line begins at column `indent`, and further ones are aligned with it. */
static void wrap(FILE *out, int indent, const char *text)
{
	int column = indent;
	for (const char *word = text; *word;) {
		int length = (int)strcspn(word, " \n\t");
		if (column > indent && column + 1 + length > LINE_WIDTH) {
			fprintf(out, "\n%*s", indent, "");
			column = indent;
		} else if (column > indent) {
			column += fprintf(out, " ");
		}
		md_plain_print(out, "%.*s", length, word);
		column += length;
		word += length + (word[length] != 0);
	}
	fputc('\n', out);
}

/* Prints "  term       text". */
static __attribute__((format(printf, 3, 4))) void explain(FILE *out, const char *term, const char *format, ...)
{
	MD_AUTO_FREE char *text = NULL;
	va_list arguments;
	va_start(arguments, format);
	if (vasprintf(&text, format, arguments) < 0)
		text = NULL;
	va_end(arguments);
	fprintf(out, "  %-*s", INDENT - 2, term);
	wrap(out, INDENT, text ? text : "(out of memory for this text)");
}

static const char *or_unnamed(const char *source)
{
	return source ? source : "no source named";
}

static void print_about(const struct md_sim_report *report, FILE *out)
{
	const struct md_sim_node *node = report->node;
	const struct md_sim_functions *functions = report->functions;
	fprintf(out, "%s\n", md_sim_report_claim(report));
	explain(out, "node", "%s, %u GPU%s (%s)", node->name ? node->name : "(no name)", node->gpu_count,
		node->gpu_count == 1 ? "" : "s", or_unnamed(node->source));
	explain(out, "functions", "%u of %u model%s (%s)", functions->count, functions->model_count,
		functions->model_count == 1 ? "" : "s", or_unnamed(functions->source));
	explain(out, "trace", "%zu requests in %.1f s (%s)", report->workload->count,
		(double)report->workload->end * 1e-9, or_unnamed(report->workload->source));
	explain(out, "seed", "%llu", (unsigned long long)report->seed);
	for (size_t p = 0; p < report->count; p++)
		explain(out, p ? "" : "policies", "%s: %s", report->results[p].policy->name,
			report->results[p].policy->summary);
}

/* Columns are as wide as the widest cell of the whole report, so that all tables are aligned. */
struct widths {
	int label, cell;
};

static int wider(int width, const char *text)
{
	int length = (int)strlen(text);
	return length > width ? length : width;
}

/* A title without rows stands in a line of its own. */
static bool is_line(const struct md_sim_figures *figures, size_t at)
{
	return !figures->rows[at].cells && (at + 1 == figures->count || !figures->rows[at + 1].cells);
}

static struct widths measure(const struct md_sim_report *report, const struct md_sim_figures *figures)
{
	struct widths widths = {0};
	for (size_t p = 0; p < report->count; p++)
		widths.cell = wider(widths.cell, report->results[p].policy->name);
	for (size_t i = 0; i < figures->count; i++) {
		if (!is_line(figures, i))
			widths.label = wider(widths.label, figures->rows[i].label);
		for (size_t p = 0; figures->rows[i].cells && p < figures->columns; p++)
			widths.cell = wider(widths.cell, figures->rows[i].cells[p]);
	}
	return widths;
}

struct abreast {
	size_t first, end; /* policies */
};

static void begin_table(struct md_table *table, const struct md_sim_report *report, const char *title,
			struct abreast policies, struct widths widths)
{
	MD_AUTO_FREE char *titles = NULL;
	size_t bytes;
	FILE *out = open_memstream(&titles, &bytes);
	if (out) {
		fprintf(out, "%-*s", widths.label, title);
		for (size_t p = policies.first; p < policies.end; p++)
			fprintf(out, "|>%*s", widths.cell, report->results[p].policy->name);
		fclose(out);
	}
	md_table_init(table, titles ? titles : "");
}

/* Prints the section that begins at row *at, and moves *at to the next. */
static void print_section(const struct md_sim_report *report, const struct md_sim_figures *figures, size_t *at,
			  struct abreast policies, struct widths widths, FILE *out)
{
	const struct md_sim_figure *row = &figures->rows[*at];
	struct md_table table;
	if (is_line(figures, (*at)++)) {
		fputs(*at < figures->count ? "\n" : "", out);
		md_plain_line(out, "%s", row->label);
		return;
	}
	fputc('\n', out);
	begin_table(&table, report, row->label, policies, widths);
	for (; *at < figures->count && figures->rows[*at].cells; ++*at) {
		row = &figures->rows[*at];
		md_table_cell(&table, "%s", row->label);
		for (size_t p = policies.first; p < policies.end; p++)
			md_table_cell(&table, "%s", row->cells[p]);
	}
	md_table_print(&table, 0, out);
}

/* ---- tenants ----------------------------------------------------------------------------------------------------- */

static void begin_tenants(struct md_table *table)
{
	char titles[256];
	size_t used = (size_t)snprintf(titles, sizeof(titles), "Tenant|policy");
	for (size_t c = 0; c < MD_SIM_TENANT_COLUMNS; c++)
		used += (size_t)snprintf(titles + used, sizeof(titles) - used, "|%s%s",
					 c == MD_SIM_TENANT_WORDS ? "" : ">", md_sim_tenant_titles[c]);
	md_table_init(table, titles);
}

static void print_tenant(const struct md_sim_report *report, uint32_t tenant, struct md_table *table)
{
	const char *name = md_sim_tenant_name(report->functions, tenant);
	size_t bytes = md_sim_report_name_bytes(name);
	struct md_sim_tenant_cells cells;
	for (size_t p = 0; p < report->count; p++) {
		md_table_cell(table, "%.*s%s", (int)bytes, name, name[bytes] ? "..." : "");
		md_table_cell(table, "%s", report->results[p].policy->name);
		md_sim_report_tenant(report, &report->results[p], tenant, &cells);
		for (size_t c = 0; c < MD_SIM_TENANT_COLUMNS; c++)
			md_table_cell(table, "%s", cells.text[c]);
	}
}

static void print_tenants(const struct md_sim_report *report, FILE *out)
{
	const struct md_sim_tenants_shown shown = md_sim_report_tenants(report);
	struct md_table table;
	if (!shown.count)
		return;
	fputc('\n', out);
	begin_tenants(&table);
	for (uint32_t i = 0; i < shown.count; i++)
		print_tenant(report, shown.tenants[i], &table);
	md_table_print(&table, 0, out);
	if (shown.left)
		fprintf(out, "(and %u tenants more: see the JSON)\n", shown.left);
	wrap(out, 0, md_sim_tenant_legend);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void print_verdict(const struct md_sim_report *report, FILE *out)
{
	MD_AUTO_FREE char *verdict = md_sim_report_verdict(report);
	fprintf(out, "\n%s\n", verdict ? verdict : "(out of memory for the conclusion)");
}

void md_sim_report_text(struct md_sim_report *report, FILE *out)
{
	struct md_sim_figures figures;
	struct abreast policies = {0};
	print_about(report, out);
	md_sim_figures_make(report, &figures);
	struct widths widths = measure(report, &figures);
	for (; policies.first < report->count; policies.first = policies.end) {
		policies.end = policies.first + POLICIES_ABREAST;
		if (policies.end > report->count)
			policies.end = report->count;
		for (size_t at = 0; at < figures.count;)
			print_section(report, &figures, &at, policies, widths, out);
	}
	print_tenants(report, out);
	print_verdict(report, out);
	if (figures.failed)
		fprintf(out, "(out of memory for all figures: some are missing)\n");
	md_sim_figures_finish(&figures);
}
