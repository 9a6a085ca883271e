/* SPDX-License-Identifier: Apache-2.0 */
/* The HTML report by tenant: one table, in which the policies of a tenant stand below each other. */
#include "simulator/report/html.h"

static void write_head(FILE *out)
{
	fputs("<thead><tr><th scope=\"col\" class=\"text\">tenant</th><th scope=\"col\" class=\"text\">policy</th>",
	      out);
	for (size_t c = 0; c < MD_SIM_TENANT_COLUMNS; c++)
		fprintf(out, "<th scope=\"col\"%s>%s</th>", c == MD_SIM_TENANT_WORDS ? " class=\"text\"" : "",
			md_sim_tenant_titles[c]);
	fputs("</tr></thead>\n<tbody>\n", out);
}

static void write_row(const struct md_sim_report *report, struct md_sim_result *result, uint32_t tenant, FILE *out)
{
	struct md_sim_tenant_cells cells;
	fputs("<tr><th scope=\"row\">", out);
	md_sim_plot_escape_most(md_sim_tenant_name(report->functions, tenant), MD_SIM_NAME_SHOWN, out);
	fputs("</th><td class=\"text\">", out);
	md_sim_plot_escape(result->policy->name, out);
	fputs("</td>", out);
	md_sim_report_tenant(report, result, tenant, &cells);
	for (size_t c = 0; c < MD_SIM_TENANT_COLUMNS; c++)
		fprintf(out, "<td%s>%s</td>", c == MD_SIM_TENANT_WORDS ? " class=\"text\"" : "", cells.text[c]);
	fputs("</tr>\n", out);
}

void md_sim_html_tenants(struct md_sim_report *report, FILE *out)
{
	const struct md_sim_tenants_shown shown = md_sim_report_tenants(report);
	if (!shown.count)
		return;
	md_sim_html_element("h2", "By tenant", out);
	md_sim_html_element("p", md_sim_tenant_legend, out);
	fputs("<div class=\"scroll tall\" role=\"region\" aria-label=\"Tenants\" tabindex=\"0\">\n"
	      "<table>\n",
	      out);
	write_head(out);
	for (uint32_t i = 0; i < shown.count; i++)
		for (size_t p = 0; p < report->count; p++)
			write_row(report, &report->results[p], shown.tenants[i], out);
	fputs("</tbody>\n</table>\n</div>\n", out);
	if (shown.left)
		fprintf(out, "<p>And %u tenants more, which are in the JSON.</p>\n", shown.left);
}
