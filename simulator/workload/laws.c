/* SPDX-License-Identifier: Apache-2.0 */
/* Laws of arrivals: the list of them, their values, the load; and the laws poisson, mmpp and torpor. */
#include "simulator/workload/laws.h"

#include <inttypes.h>
#include <math.h> /* fmin is exact */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/units.h"

#define LAW_S_DEFAULT 600.0
#define TOKENS_STREAM 0x746f6b656e73u /* stream of random numbers */

/*
 * Bursts of mmpp: a tenth of the time, 10 s each on average, at `factor` times the mean rate; the remaining time is
 * slower accordingly.
 */
#define BURST_PART 0.1
#define BURST_S 10.0
#define BURST_FACTOR 5.0

enum md_status md_sim_law_add(struct md_sim_drawing *drawing, uint32_t function, double seconds)
{
	uint32_t tenant = drawing->builder->functions->functions[function].tenant;
	return md_sim_builder_add(
	    drawing->builder,
	    &(struct md_sim_request){.at = (uint64_t)(seconds * 1e9), .function = function, .tenant = tenant});
}

/* ---- poisson, mmpp ---- */

enum md_status md_sim_law_stretch(struct md_sim_drawing *drawing, uint32_t function, struct md_sim_random *random,
				  double per_s, double from, double to)
{
	if (per_s <= 0)
		return MD_OK;
	for (;;) {
		from += md_sim_random_exponential(random, 1 / per_s);
		if (from >= to)
			return MD_OK;
		MD_FORWARD(md_sim_law_add(drawing, function, from));
	}
}

static enum md_status draw_poisson_process(struct md_sim_drawing *drawing)
{
	for (uint32_t i = 0; i < drawing->builder->functions->count; i++) {
		struct md_sim_random random = md_sim_random_of(drawing->builder->options->seed, i);
		MD_FORWARD(md_sim_law_stretch(drawing, i, &random, drawing->rates[i], 0, drawing->end));
	}
	return MD_OK;
}

static enum md_status draw_phases(struct md_sim_drawing *drawing, uint32_t function, struct md_sim_random *random)
{
	double per_s = drawing->rates[function], slow = (1 - BURST_PART * BURST_FACTOR) / (1 - BURST_PART), from = 0;
	bool burst = md_sim_random_part(random) < BURST_PART;
	while (from < drawing->end) {
		double mean = burst ? BURST_S : BURST_S * (1 - BURST_PART) / BURST_PART;
		double to = fmin(from + md_sim_random_exponential(random, mean), drawing->end);
		MD_FORWARD(
		    md_sim_law_stretch(drawing, function, random, per_s * (burst ? BURST_FACTOR : slow), from, to));
		from = to;
		burst = !burst;
	}
	return MD_OK;
}

static enum md_status draw_mmpp(struct md_sim_drawing *drawing)
{
	for (uint32_t i = 0; i < drawing->builder->functions->count; i++) {
		struct md_sim_random random = md_sim_random_of(drawing->builder->options->seed, i);
		MD_FORWARD(draw_phases(drawing, i, &random));
	}
	return MD_OK;
}

/* ---- torpor ---- */

/* Draws from a Poisson distribution, in parts whose exponential is not 0. */
static double draw_poisson(struct md_sim_random *random, double mean)
{
	double count = 0;
	while (mean > 0) {
		double least = md_sim_exp(-fmin(mean, 500)), product = md_sim_random_part(random);
		while (product > least) {
			product *= md_sim_random_part(random);
			count++;
		}
		mean -= 500;
	}
	return count;
}

/*
 * As the load generator that Torpor's authors published: gaps between any two requests of the node are whole
 * milliseconds, drawn from a Poisson distribution (so arrivals are more regular than a Poisson process); the function
 * of each request is drawn in proportion to the rates.
 */
static enum md_status draw_even(struct md_sim_drawing *drawing)
{
	struct md_sim_builder *builder = drawing->builder;
	double sum = 0, at = 0;
	builder->cumulated = malloc(builder->functions->count * sizeof(*builder->cumulated));
	if (!builder->cumulated)
		return md_sim_builder_memory(builder);
	for (uint32_t i = 0; i < builder->functions->count; i++)
		builder->cumulated[i] = sum += drawing->rates[i];
	for (;;) {
		at += draw_poisson(&builder->random, 1000 / drawing->total) / 1000;
		if (at >= drawing->end)
			return MD_OK;
		MD_FORWARD(md_sim_law_add(drawing, md_sim_builder_draw(builder), at));
	}
}

/* ---- the list ---- */

static const struct md_sim_law laws[] = {
    {.name = "poisson", .draw = draw_poisson_process},
    {.name = "mmpp", .draw = draw_mmpp},
    {.name = "torpor", .draw = draw_even},
    {.name = "bursty",
     .values = {{"cov", MD_SIM_LAW_NUMBER, 2, 0.1, 20},
		{"zipf", MD_SIM_LAW_NUMBER, 1, 0, 10},
		{"requests", MD_SIM_LAW_COUNT, 27000, 1, MD_SIM_REQUESTS_MAX}},
     .shape = md_sim_bursty_shape,
     .draw = md_sim_bursty_draw},
    {.name = "diurnal",
     .values = {{"day", MD_SIM_LAW_TIME, 0, 1, 3.2e6}, {"night", MD_SIM_LAW_NUMBER, 0.15, 0, 1}},
     .draw = md_sim_diurnal_draw},
    {.name = "burst",
     .values = {{"factor", MD_SIM_LAW_NUMBER, 100, 1, 1e6},
		{"length", MD_SIM_LAW_TIME, 5, 0.001, 3600},
		{"bursts", MD_SIM_LAW_COUNT, 6, 1, 10000},
		{"functions", MD_SIM_LAW_COUNT, 1, 1, 100000}},
     .draw = md_sim_burst_draw},
    {.name = "cyclic",
     .values = {{"set", MD_SIM_LAW_NUMBER, 1.1, 0.01, 1000}, {"cov", MD_SIM_LAW_NUMBER, 0, 0, 20}},
     .shape = md_sim_cyclic_shape,
     .draw = md_sim_cyclic_draw},
};

const struct md_sim_law *md_sim_law_find(const char *spec)
{
	size_t length = strcspn(spec, ":");
	for (size_t i = 0; i < sizeof(laws) / sizeof(laws[0]); i++)
		if (strlen(laws[i].name) == length && memcmp(laws[i].name, spec, length) == 0)
			return &laws[i];
	return NULL;
}

/* ---- values ---- */

static enum md_status refuse_value(const struct md_sim_drawing *drawing, const char *name, const char *text,
				   const char *what)
{
	return md_error_set(drawing->builder->err, MD_ERR_INVALID, "%s: %.40s%s%.40s: %s", drawing->builder->name, name,
			    text ? "=" : "", text ? text : "", what);
}

static const char *parse_value(const struct md_sim_law_value *value, const char *text, double *out)
{
	uint64_t ns;
	const char *wrong;
	if (value->unit != MD_SIM_LAW_TIME) {
		wrong = md_units_number(text, out);
		return !wrong && value->unit == MD_SIM_LAW_COUNT && *out != floor(*out) ? "a whole number is expected"
											: wrong;
	}
	wrong = md_units_time(text, &ns);
	*out = wrong ? 0 : (double)ns / 1e9;
	return wrong;
}

/* item: "name=value" */
static enum md_status take_value(struct md_sim_drawing *drawing, const struct md_sim_law *law, char *item,
				 unsigned *seen)
{
	char *text = strchr(item, '='), range[80];
	const char *wrong;
	int i = 0;
	if (!text)
		return refuse_value(drawing, item, NULL, "name=value is expected");
	*text++ = '\0';
	while (i < MD_SIM_LAW_VALUES && law->values[i].name && strcmp(law->values[i].name, item))
		i++;
	if (i == MD_SIM_LAW_VALUES || !law->values[i].name)
		return refuse_value(drawing, item, text, "the law has no such value; medusa-simulate(1) lists them");
	if (*seen >> i & 1)
		return refuse_value(drawing, item, text, "it is given twice");
	*seen |= 1u << i;
	if ((wrong = parse_value(&law->values[i], text, &drawing->values[i])))
		return refuse_value(drawing, item, text, wrong);
	snprintf(range, sizeof(range), "%.15g to %.15g%s is possible", law->values[i].low, law->values[i].high,
		 law->values[i].unit == MD_SIM_LAW_TIME ? " seconds" : "");
	if (drawing->values[i] < law->values[i].low || drawing->values[i] > law->values[i].high)
		return refuse_value(drawing, item, text, range);
	return MD_OK;
}

static enum md_status take_values(struct md_sim_drawing *drawing, const struct md_sim_law *law, const char *spec)
{
	const char *colon = strchr(spec, ':');
	MD_AUTO_FREE char *copy = strdup(colon ? colon + 1 : "");
	char *rest = copy, *item;
	unsigned seen = 0;
	if (!copy)
		return md_sim_builder_memory(drawing->builder);
	for (int i = 0; i < MD_SIM_LAW_VALUES; i++)
		drawing->values[i] = law->values[i].usual;
	while (colon && (item = strsep(&rest, ",")))
		MD_FORWARD(take_value(drawing, law, item, &seen));
	return MD_OK;
}

/* ---- rates, load and end ---- */

static double sum_rates(const struct md_sim_drawing *drawing)
{
	double sum = 0;
	for (uint32_t i = 0; i < drawing->builder->functions->count; i++)
		sum += drawing->rates[i];
	return sum;
}

static enum md_status scale_rates(struct md_sim_drawing *drawing)
{
	const struct md_sim_workload_options *options = drawing->builder->options;
	const struct md_sim_functions *functions = drawing->builder->functions;
	double factor = options->speed > 0 ? options->speed : 1, offered = 0;
	for (uint32_t i = 0; options->node && i < functions->count; i++)
		offered += drawing->rates[i] * md_sim_offered_mean_s(options->node, &functions->functions[i]);
	if (options->load > 0 && offered <= 0)
		return md_error_set(drawing->builder->err, MD_ERR_INVALID, "%s: load %g: its requests compute nothing",
				    drawing->builder->name, options->load);
	if (options->load > 0)
		factor = options->load * options->node->gpu_count / offered;
	for (uint32_t i = 0; i < functions->count; i++)
		drawing->rates[i] *= factor;
	drawing->total = sum_rates(drawing);
	return MD_OK;
}

static enum md_status start_rates(struct md_sim_drawing *drawing, const struct md_sim_law *law)
{
	const struct md_sim_functions *functions = drawing->builder->functions;
	drawing->rates = malloc(functions->count * sizeof(*drawing->rates));
	if (!drawing->rates)
		return md_sim_builder_memory(drawing->builder);
	for (uint32_t i = 0; i < functions->count; i++)
		drawing->rates[i] = functions->functions[i].rate_per_min / 60;
	drawing->total = sum_rates(drawing);
	if (drawing->total <= 0)
		return md_error_set(drawing->builder->err, MD_ERR_INVALID,
				    "%s: no function has a rate: set it in the file of the functions, such as rate: "
				    "5/min, for one of them or in defaults",
				    drawing->builder->name);
	if (law->shape)
		MD_FORWARD(law->shape(drawing));
	return scale_rates(drawing);
}

/* The law's value "requests"; -1: it has none. */
static int number_of(const struct md_sim_law *law)
{
	for (int i = 0; i < MD_SIM_LAW_VALUES && law->values[i].name; i++)
		if (strcmp(law->values[i].name, "requests") == 0)
			return i;
	return -1;
}

/* A law with a number of requests ends when so many are expected. */
static enum md_status set_end(struct md_sim_drawing *drawing, const struct md_sim_law *law)
{
	const struct md_sim_workload_options *options = drawing->builder->options;
	drawing->end = options->duration_ns ? (double)options->duration_ns / 1e9 : LAW_S_DEFAULT;
	if (!options->duration_ns && number_of(law) >= 0)
		drawing->end = drawing->values[number_of(law)] / drawing->total;
	if (drawing->total * drawing->end > MD_SIM_REQUESTS_MAX)
		return md_error_set(drawing->builder->err, MD_ERR_TOO_LARGE, "%s: %.0f requests, over %u",
				    drawing->builder->name, drawing->total * drawing->end, MD_SIM_REQUESTS_MAX);
	if (drawing->end > 3e9)
		return md_error_set(drawing->builder->err, MD_ERR_INVALID, "%s: it lasts %.0f seconds, over 3000000000",
				    drawing->builder->name, drawing->end);
	return MD_OK;
}

/* ---- tokens ---- */

static uint32_t draw_tokens(struct md_sim_random *random, uint32_t low, uint32_t high)
{
	return low + (uint32_t)(md_sim_random_part(random) * ((double)high - low + 1));
}

/* Tokens are drawn by the order of the requests, from a stream of their own: arrivals do not depend on them. */
static void add_tokens(struct md_sim_builder *builder)
{
	struct md_sim_random random = md_sim_random_of(builder->options->seed, TOKENS_STREAM);
	for (size_t i = 0; i < builder->out.count; i++) {
		struct md_sim_request *request = &builder->out.requests[i];
		const struct md_sim_function *function = &builder->functions->functions[request->function];
		if (function->prompt_high)
			request->context_tokens = draw_tokens(&random, function->prompt_low, function->prompt_high);
		if (function->generated_high)
			request->generated_tokens =
			    draw_tokens(&random, function->generated_low, function->generated_high);
	}
}

/* ---- a law draws ---- */

/* A law that is to give a number of requests, however long that takes, is stretched until its load is the wanted one. */
static void stretch(struct md_sim_drawing *drawing)
{
	struct md_sim_workload *out = &drawing->builder->out;
	double load, factor;
	out->end = (uint64_t)(drawing->end * 1e9);
	load = md_sim_offered_load(drawing->builder);
	factor = load > 0 ? load / drawing->builder->options->load : 1;
	for (size_t i = 0; i < out->count; i++)
		out->requests[i].at = (uint64_t)((double)out->requests[i].at * factor);
	drawing->end *= factor;
}

static enum md_status draw_all(struct md_sim_drawing *drawing, const struct md_sim_law *law, const char *spec)
{
	struct md_sim_builder *builder = drawing->builder;
	MD_FORWARD(take_values(drawing, law, spec));
	MD_FORWARD(start_rates(drawing, law));
	MD_FORWARD(set_end(drawing, law));
	MD_FORWARD(law->draw(drawing));
	builder->sorted = false; /* requests of the same moment are ordered by function */
	md_sim_builder_sort(builder);
	add_tokens(builder);
	if (builder->options->load > 0 && !builder->options->duration_ns && number_of(law) >= 0)
		stretch(drawing);
	builder->out.end = (uint64_t)(drawing->end * 1e9);
	if (asprintf(&builder->out.source, "%s, %zu requests, %.1f a second in the mean, seed %" PRIu64, spec,
		     builder->out.count, (double)builder->out.count / drawing->end, builder->options->seed) >= 0)
		return MD_OK;
	builder->out.source = NULL;
	return md_sim_builder_memory(builder);
}

enum md_status md_sim_law_draw(struct md_sim_builder *builder, const struct md_sim_law *law, const char *spec)
{
	struct md_sim_drawing drawing = {.builder = builder};
	enum md_status status = draw_all(&drawing, law, spec);
	free(drawing.rates);
	return status;
}
