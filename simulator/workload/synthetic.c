/* SPDX-License-Identifier: Apache-2.0 */
/* Laws that stand for loads which schedulers find hard: bursty, diurnal, burst, cyclic. */
#include <inttypes.h>
#include <math.h> /* fmin, floor and sqrt are exact */
#include <stdlib.h>

#include "base/cleanup.h"
#include "simulator/workload/laws.h"

#define RANKS_STREAM 0x72616e6b73u /* streams of random numbers */
#define GAPS_STREAM 0x67617073u
#define BURSTS_STREAM 0x627572737473u

/* ---- bursty ---- */

enum { BURSTY_COV, BURSTY_ZIPF };

/* Popularity by Zipf's law over the functions in an order that the seed shuffles; the sum of the rates stays. */
enum md_status md_sim_bursty_shape(struct md_sim_drawing *drawing)
{
	uint32_t count = drawing->builder->functions->count;
	struct md_sim_random random = md_sim_random_of(drawing->builder->options->seed, RANKS_STREAM);
	MD_AUTO_FREE uint32_t *order = malloc(count * sizeof(*order));
	double sum = 0;
	if (!order)
		return md_sim_builder_memory(drawing->builder);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t at = (uint32_t)(md_sim_random_part(&random) * (i + 1.0));
		order[i] = order[at];
		order[at] = i;
	}
	for (uint32_t i = 0; i < count; i++)
		sum += drawing->rates[order[i]] = md_sim_pow(i + 1.0, -drawing->values[BURSTY_ZIPF]);
	for (uint32_t i = 0; i < count; i++)
		drawing->rates[i] *= drawing->total / sum;
	return MD_OK;
}

/* Gaps of one function. The process begins some bunches before time 0, so that time 0 is in no special place. */
static enum md_status draw_function(struct md_sim_drawing *drawing, uint32_t function)
{
	struct md_sim_random random = md_sim_random_of(drawing->builder->options->seed, function);
	double mean = 1 / drawing->rates[function], cov = drawing->values[BURSTY_COV];
	double at = -md_sim_random_part(&random) * 4 * (1 + cov * cov) * mean;
	for (; at < drawing->end; at += md_sim_random_gamma(&random, mean, cov))
		if (at >= 0)
			MD_FORWARD(md_sim_law_add(drawing, function, at));
	return MD_OK;
}

/* Moves the requests, in their order, to times whose gaps are the node's own: gamma with the same variation. */
static enum md_status bunch(struct md_sim_drawing *drawing)
{
	struct md_sim_workload *out = &drawing->builder->out;
	struct md_sim_random random = md_sim_random_of(drawing->builder->options->seed, GAPS_STREAM);
	MD_AUTO_FREE double *times = malloc((out->count + 1) * sizeof(*times));
	double at = 0;
	if (!times)
		return md_sim_builder_memory(drawing->builder);
	for (size_t i = 0; i <= out->count; i++) /* the last gap reaches the end */
		times[i] = at += md_sim_random_gamma(&random, 1, drawing->values[BURSTY_COV]);
	for (size_t i = 0; i < out->count; i++)
		out->requests[i].at = (uint64_t)(times[i] / at * drawing->end * 1e9);
	return MD_OK;
}

/*
 * Bursts on two levels. Each function's requests come in bunches: gaps of a gamma distribution with the coefficient of
 * variation. Merged, these would be smooth; so the order is kept, and the gaps between any two requests are drawn from
 * a gamma distribution with the same coefficient.
 */
enum md_status md_sim_bursty_draw(struct md_sim_drawing *drawing)
{
	for (uint32_t i = 0; i < drawing->builder->functions->count; i++)
		if (drawing->rates[i] > 0)
			MD_FORWARD(draw_function(drawing, i));
	md_sim_builder_sort(drawing->builder);
	return bunch(drawing);
}

/* ---- diurnal ---- */

enum { DIURNAL_DAY, DIURNAL_NIGHT };
#define HOURS 24

/* A working day, hour by hour, between the least rate (0) and the highest (1); the shape is assumed. */
static const double hours[HOURS] = {0.20, 0.12, 0.06, 0.02, 0.00, 0.02, 0.08, 0.22, 0.48, 0.76, 0.93, 0.98,
				    0.88, 0.90, 1.00, 0.99, 0.93, 0.82, 0.70, 0.66, 0.64, 0.56, 0.42, 0.30};

/* The rate at the start of each hour, with mean 1, and the requests up to then; straight lines in between. */
static void fill_day(double night, double *rate, double *until)
{
	double sum = 0;
	for (int i = 0; i < HOURS; i++)
		sum += night + (1 - night) * hours[i];
	for (int i = 0; i <= HOURS; i++)
		rate[i] = (night + (1 - night) * hours[i % HOURS]) / sum * HOURS;
	until[0] = 0;
	for (int i = 0; i < HOURS; i++)
		until[i + 1] = until[i] + (rate[i] + rate[i + 1]) / 2 / HOURS;
}

/* The part of the day by which this part of a day's requests has come. */
static double part_of_day(const double *rate, const double *until, double requests)
{
	int hour = 0;
	double left, slope, start, root;
	while (hour < HOURS - 1 && until[hour + 1] <= requests)
		hour++;
	left = (requests - until[hour]) * HOURS;
	start = rate[hour];
	slope = rate[hour + 1] - start;
	root = start * start + 2 * slope * left; /* left = start x + slope x^2 / 2 */
	root = sqrt(root > 0 ? root : 0);
	return (hour + fmin(start + root > 0 ? 2 * left / (start + root) : 0, 1)) / HOURS;
}

/* A Poisson process whose rate follows the day; it is drawn at an even rate, and its time is then bent. */
enum md_status md_sim_diurnal_draw(struct md_sim_drawing *drawing)
{
	struct md_sim_workload *out = &drawing->builder->out;
	double day = drawing->values[DIURNAL_DAY] > 0 ? drawing->values[DIURNAL_DAY] : drawing->end;
	double rate[HOURS + 1], until[HOURS + 1];
	fill_day(drawing->values[DIURNAL_NIGHT], rate, until);
	for (uint32_t i = 0; i < drawing->builder->functions->count; i++) {
		struct md_sim_random random = md_sim_random_of(drawing->builder->options->seed, i);
		/* whole days, so that a day that is cut off has the rates that it should have */
		MD_FORWARD(
		    md_sim_law_stretch(drawing, i, &random, drawing->rates[i], 0, ceil(drawing->end / day) * day));
	}
	for (size_t i = 0; i < out->count; i++) {
		double at = (double)out->requests[i].at / 1e9, start = floor(at / day) * day;
		out->requests[i].at = (uint64_t)((start + day * part_of_day(rate, until, (at - start) / day)) * 1e9);
	}
	md_sim_builder_sort(drawing->builder);
	while (out->count && out->requests[out->count - 1].at >= (uint64_t)(drawing->end * 1e9))
		out->count--;
	return MD_OK;
}

/* ---- burst ---- */

enum { BURST_FACTOR, BURST_LENGTH, BURST_BURSTS, BURST_FUNCTIONS };

/* Some functions are called `factor` times as often for a short time; which ones, and when, the seed says. */
static enum md_status draw_burst(struct md_sim_drawing *drawing, struct md_sim_random *random)
{
	const struct md_sim_functions *functions = drawing->builder->functions;
	double length = fmin(drawing->values[BURST_LENGTH], drawing->end);
	double from = md_sim_random_part(random) * (drawing->end - length);
	double wanted = fmin(drawing->values[BURST_FUNCTIONS], functions->count);
	/* each function in turn is taken with the probability that is left, so all sets are as likely */
	for (uint32_t i = 0; i < functions->count && wanted > 0; i++) {
		if (md_sim_random_part(random) * (functions->count - i) >= wanted)
			continue;
		wanted--;
		MD_FORWARD(md_sim_law_stretch(
		    drawing, i, random, drawing->rates[i] * (drawing->values[BURST_FACTOR] - 1), from, from + length));
	}
	return MD_OK;
}

enum md_status md_sim_burst_draw(struct md_sim_drawing *drawing)
{
	struct md_sim_random bursts = md_sim_random_of(drawing->builder->options->seed, BURSTS_STREAM);
	for (uint32_t i = 0; i < drawing->builder->functions->count; i++) {
		struct md_sim_random random = md_sim_random_of(drawing->builder->options->seed, i);
		MD_FORWARD(md_sim_law_stretch(drawing, i, &random, drawing->rates[i], 0, drawing->end));
	}
	for (double i = 0; i < drawing->values[BURST_BURSTS]; i++)
		MD_FORWARD(draw_burst(drawing, &bursts));
	return MD_OK;
}

/* ---- cyclic ---- */

enum { CYCLIC_SET, CYCLIC_COV };

/* Bytes on a GPU that the functions from the first to this one need, if each lies on one GPU. */
static uint64_t add_bytes(const struct md_sim_functions *functions, uint32_t i, bool *backbones)
{
	const struct medusa_sched_function *spec = &functions->functions[i].spec;
	uint64_t bytes = spec->weight_bytes + spec->context_bytes;
	if (spec->backbone == MEDUSA_SCHED_NONE || backbones[spec->backbone])
		return bytes;
	backbones[spec->backbone] = true;
	return bytes + functions->backbones[spec->backbone].spec.bytes;
}

/* As many functions take part as fill the GPUs' memory `set` times, all at the same rate; the sum of rates stays. */
enum md_status md_sim_cyclic_shape(struct md_sim_drawing *drawing)
{
	const struct md_sim_builder *builder = drawing->builder;
	const struct md_sim_functions *functions = builder->functions;
	MD_AUTO_FREE bool *backbones = calloc(functions->backbone_count + 1, sizeof(*backbones));
	const struct md_sim_node *node = builder->options->node;
	double wanted = 0, bytes = 0;
	uint32_t count = 0;
	if (!backbones)
		return md_sim_builder_memory(builder);
	if (!node)
		return md_error_set(builder->err, MD_ERR_INVALID, "%s: the node is needed for it", builder->name);
	for (uint32_t i = 0; i < node->gpu_count; i++)
		wanted += drawing->values[CYCLIC_SET] * (double)node->gpus[i].memory_bytes;
	while (count < functions->count && bytes < wanted)
		bytes += (double)add_bytes(functions, count++, backbones);
	if (bytes < wanted)
		return md_error_set(
		    builder->err, MD_ERR_INVALID,
		    "%s: the %u functions take %.1f GB, and %.1f GB are wanted; more functions (--count) "
		    "or a smaller set",
		    builder->name, functions->count, bytes / 1e9, wanted / 1e9);
	for (uint32_t i = 0; i < functions->count; i++)
		drawing->rates[i] = i < count ? drawing->total / count : 0;
	return MD_OK;
}

/* The functions that take part are called in turn, at even gaps or, with a cov, at gaps of a gamma distribution. */
enum md_status md_sim_cyclic_draw(struct md_sim_drawing *drawing)
{
	double gap = 1 / drawing->total, cov = drawing->values[CYCLIC_COV], at = 0;
	uint32_t count = 0;
	while (count < drawing->builder->functions->count && drawing->rates[count] > 0)
		count++;
	for (uint64_t i = 0; at < drawing->end; i++) {
		MD_FORWARD(md_sim_law_add(drawing, (uint32_t)(i % count), at));
		at += cov > 0 ? md_sim_random_gamma(&drawing->builder->random, gap, cov) : gap;
	}
	return MD_OK;
}
