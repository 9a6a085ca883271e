/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that the formats of a report share: figures as rows of text, distributions as points, plots. */
#ifndef MD_SIMULATOR_REPORT_REPORT_H
#define MD_SIMULATOR_REPORT_REPORT_H

#include "simulator/simulator.h"

/* ---- figures (figures.c) ---------------------------------------------------------------------------------------- */

#define MD_SIM_CELL_TEXT 40
#define MD_SIM_MODELS_SHOWN 64 /* further models are only in the JSON */

/* A row of the table; without cells, the title of the rows below it. */
struct md_sim_figure {
	char *label;
	char (*cells)[MD_SIM_CELL_TEXT]; /* one per policy */
};

struct md_sim_figures {
	struct md_sim_figure *rows;
	size_t count, capacity;
	size_t columns; /* policies */
	bool failed;    /* out of memory: rows are missing */
};

void md_sim_figures_make(struct md_sim_report *report, struct md_sim_figures *figures);
void md_sim_figures_finish(struct md_sim_figures *figures);

struct md_sim_share {
	uint32_t compliant, counted; /* functions */
};

struct md_sim_share md_sim_report_share(const struct md_sim_result *result);
/* The same for each model; shares has functions->model_count entries. */
void md_sim_report_shares(const struct md_sim_report *report, const struct md_sim_result *result,
			  struct md_sim_share *shares);
uint64_t md_sim_report_rejected(const struct md_sim_result *result);
/* Functions that had requests. */
uint32_t md_sim_report_asked(const struct md_sim_result *result);
/* Functions that had requests, none of which was served. */
uint32_t md_sim_report_never_served(const struct md_sim_result *result);
/* Which policies are the best, in a sentence or two, or why that cannot be said; the caller frees it. NULL: out of memory. */
char *md_sim_report_verdict(const struct md_sim_report *report);
/* The line that says what of a report is real. */
const char *md_sim_report_claim(const struct md_sim_report *report);
/* Bytes of the first MD_SIM_NAME_SHOWN characters. */
size_t md_sim_report_name_bytes(const char *name);
double md_sim_report_percent(double part, double whole); /* 0 if whole is 0 */
/* The variance of the GPUs' loads, each divided by the greatest load (Torpor, figures 9 and 14). */
double md_sim_report_load_variance(const struct md_sim_result *result);
const char *md_sim_report_reason(size_t reason); /* "never fits"; never NULL */

/* ---- tenants (tenant_rows.c) ------------------------------------------------------------------------------------- */

#define MD_SIM_TENANTS_SHOWN 64 /* of each policy; further ones are only in the JSON */

enum md_sim_tenant_column {
	MD_SIM_TENANT_WEIGHT,
	MD_SIM_TENANT_REQUESTS,
	MD_SIM_TENANT_SERVED,
	MD_SIM_TENANT_MET,
	MD_SIM_TENANT_WAITING,
	MD_SIM_TENANT_WAIT,
	MD_SIM_TENANT_GPU,
	MD_SIM_TENANT_SHARE,
	MD_SIM_TENANT_CONTENDED,
	MD_SIM_TENANT_REJECTED,
	MD_SIM_TENANT_COLUMNS
};

/* By column; words are aligned to the left, all others to the right. */
extern const char *const md_sim_tenant_titles[MD_SIM_TENANT_COLUMNS];
#define MD_SIM_TENANT_WORDS MD_SIM_TENANT_REJECTED

struct md_sim_tenant_cells {
	char text[MD_SIM_TENANT_COLUMNS][160];
};

/* What the columns mean. */
extern const char md_sim_tenant_legend[];
struct md_sim_tenants_shown {
	uint32_t tenants[MD_SIM_TENANTS_SHOWN], count; /* not the default one if nobody asked as it */
	uint32_t left;                                 /* so many more there are */
};

struct md_sim_tenants_shown md_sim_report_tenants(const struct md_sim_report *report);
void md_sim_report_tenant(const struct md_sim_report *report, struct md_sim_result *result, uint32_t tenant,
			  struct md_sim_tenant_cells *cells);
double md_sim_report_tenant_share(const struct md_sim_result *result, uint32_t tenant); /* of GPU time; 0..1 */

/* ---- distributions ---------------------------------------------------------------------------------------------- */

#define MD_SIM_CDF_MAX 200

struct md_sim_cdf {
	double values[MD_SIM_CDF_MAX]; /* strictly rising */
	/* share of all values that are at most this one; 0..1, in fine steps beyond 0.98 */
	double parts[MD_SIM_CDF_MAX];
	size_t count;
};

void md_sim_report_cdf(struct md_sim_samples *samples, struct md_sim_cdf *cdf);
/* Each request's latency divided by its function's SLO; functions without one are left out. False: out of memory. */
bool md_sim_report_normalize(const struct md_sim_report *report, const struct md_sim_result *result,
			     struct md_sim_samples *samples);

/* ---- files ------------------------------------------------------------------------------------------------------ */

typedef void (*md_sim_report_writer)(void *report, FILE *out);

/* The file is written beside path and renamed, so that there is a whole file or none; "-" is stdout. */
enum md_status md_sim_report_publish(void *report, md_sim_report_writer writer, const char *path, struct md_error *err);

/* ---- plots, as SVG inside of HTML (plot.c) ----------------------------------------------------------------------- */

struct md_sim_curves {
	const char *id; /* unique in the file */
	const char *title, *x_label;
	const char *mark; /* meaning of the line at x = 1; NULL: no line */
	const char *const *names;
	struct md_sim_cdf *curves; /* one per name */
	size_t count;
};

struct md_sim_bars {
	const char *id;
	const char *title;
	const char *unit; /* " %" */
	int decimals;
	double full; /* value of a bar of full length; 0: the greatest value */
	const char *const *groups;
	size_t group_count;
	const char *const *names;
	size_t count;
	const double *values; /* group by group; negative: none */
};

/* Colours and strokes are classes of the page: s0, s1 ... in the order of the names. */
#define MD_SIM_PLOT_COLOURS 8
void md_sim_plot_curves(const struct md_sim_curves *plot, FILE *out);
void md_sim_plot_bars(const struct md_sim_bars *plot, FILE *out);

/* ---- plots over simulated time (plot_series.c) ------------------------------------------------------------------- */

struct md_sim_line {
	const double *values; /* each holds for an interval; not finite: none */
	size_t count;
	double interval_s, end_s;
};

struct md_sim_lines {
	const char *id, *title;
	const char *unit; /* " %" */
	double full;      /* the top of the axis; 0: as the values need */
	const char *const *names;
	const struct md_sim_line *lines; /* one per name */
	size_t count;
};

#define MD_SIM_MEMORY_PARTS 3 /* artifacts, residues, KV caches */

struct md_sim_memory_plot {
	const char *id, *title;
	double end_s, full_gb;
	struct md_sim_line sums[MD_SIM_MEMORY_PARTS]; /* GB: each part with those before it */
};

void md_sim_plot_lines(const struct md_sim_lines *plot, FILE *out);
void md_sim_plot_memory(const struct md_sim_memory_plot *plot, FILE *out);

/* ---- parts of plots (plot.c) -------------------------------------------------------------------------------------- */

#define MD_SIM_PLOT_WIDTH 400 /* narrow enough that its text can be read on a phone */

/* Up to the <desc>, which the caller fills and closes. */
void md_sim_plot_begin(const char *id, const char *title, int height, FILE *out);
void md_sim_plot_text(double x, double y, const char *class, const char *text, FILE *out);
/* Escapes text for HTML and XML; characters that neither allows become U+FFFD. */
void md_sim_plot_escape(const char *text, FILE *out);
/* The same of the first characters, and "..." if there are more. */
void md_sim_plot_escape_most(const char *text, size_t most, FILE *out);
#define MD_SIM_NAME_SHOWN 64 /* characters of a function's or a model's name; the JSON has all of them */

/* ---- parts of the JSON that reports of nodes and of clusters share (json_report.c) ---------------------------------- */

struct md_json;

void md_sim_json_node(struct md_json *json, const struct md_sim_node *node);
void md_sim_json_functions(struct md_json *json, const struct md_sim_functions *functions);
void md_sim_json_trace(struct md_json *json, const struct md_sim_workload *workload);
void md_sim_json_settings(struct md_json *json, const struct md_sim_policy *policy);
void md_sim_json_summary(struct md_json *json,
			 struct md_sim_samples *samples); /* what a distribution has but its curve */
void md_sim_json_reasons(struct md_json *json, const uint64_t rejected[MD_SIM_REASONS]); /* an object by reason */

#endif
