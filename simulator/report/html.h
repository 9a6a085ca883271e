/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the HTML report: its frame, and the sections below each other. */
#ifndef MD_SIMULATOR_REPORT_HTML_H
#define MD_SIMULATOR_REPORT_HTML_H

#include "simulator/report/report.h"

/* ---- html_frame.c ---- */
void md_sim_html_begin(FILE *out); /* up to the page's main part */
void md_sim_html_end(FILE *out);
/* <name>text</name>; name may have attributes, text is escaped. */
void md_sim_html_element(const char *name, const char *text, FILE *out);

/* ---- html_tenants.c: a table of all policies, if there are tenants ---- */
void md_sim_html_tenants(struct md_sim_report *report, FILE *out);

/* ---- html_plots.c: one plot for all policies ---- */
void md_sim_html_plots(struct md_sim_report *report, FILE *out);
/* The colours of the policies. */
void md_sim_html_legend(const struct md_sim_report *report, FILE *out);

/* ---- html_series.c: over time ---- */
#define MD_SIM_GPUS_SHOWN 16 /* further GPUs are only in the JSON */
void md_sim_html_series(struct md_sim_report *report, FILE *out);

/* ---- html_functions.c: a table for each policy ---- */
#define MD_SIM_FUNCTIONS_SHOWN 500 /* in each table: those with the most requests that were not in time */
void md_sim_html_functions(struct md_sim_report *report, FILE *out);

#endif
