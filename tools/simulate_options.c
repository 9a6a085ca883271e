/* SPDX-License-Identifier: Apache-2.0 */
/* Options of medusa-simulate that are numbers: seed, rates, sizes, and how functions are drawn. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simulator/config/fields.h"
#include "tools/simulate.h"

#define GOAL 0.95 /* part of the requests that is to be in time, if --goal does not say it */

int md_simulate_integer(const struct md_simulate *run, const char *name, const char *text, uint64_t most,
			uint64_t *value)
{
	char *end;
	if (!text)
		return -1;
	errno = 0;
	*value = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || *value > most)
		return md_options_usage_error(
		    run->given->command, "--%s %s: a whole number up to %" PRIu64 " is expected", name, text, most);
	return -1;
}

static int take_mapping(struct md_simulate *run)
{
	const struct md_simulate_given *given = run->given;
	struct md_sim_workload_options *arrivals = &run->arrivals;
	const char *wrong = NULL;
	arrivals->zipf = 1;
	if (!given->mapping || strcmp(given->mapping, "round-robin") == 0)
		return -1;
	if (strncmp(given->mapping, "zipf", 4) || (given->mapping[4] && given->mapping[4] != ':'))
		return md_options_usage_error(
		    given->command, "--mapping %s: round-robin or zipf[:EXPONENT] is expected", given->mapping);
	arrivals->mapping = MD_SIM_ZIPF;
	if (given->mapping[4])
		wrong = md_units_number(given->mapping + 5, &arrivals->zipf);
	return wrong ? md_options_usage_error(given->command, "--mapping %s: %s", given->mapping, wrong) : -1;
}

/* A number above 0; NULL: it was not given, and *number stays. */
static int take_number(const struct md_simulate *run, const char *name, const char *text, double *number)
{
	const char *wrong = text ? md_units_number(text, number) : NULL;
	if (text && (wrong || *number <= 0))
		return md_options_usage_error(run->given->command, "--%s %s: %s", name, text,
					      wrong ? wrong : "more than 0 is expected");
	return -1;
}

/* "4", or "1-8" */
static int take_gpus(struct md_simulate *run)
{
	const struct md_simulate_given *given = run->given;
	const char *dash = given->gpus ? strchr(given->gpus, '-') : NULL;
	uint64_t from = 0, to = 0;
	char low[16];
	int result;
	if (!dash || dash == given->gpus || (size_t)(dash - given->gpus) >= sizeof(low)) {
		if ((result = md_simulate_integer(run, "gpus", given->gpus, MD_SIM_GPUS_MAX, &from)) >= 0)
			return result;
	} else {
		snprintf(low, sizeof(low), "%.*s", (int)(dash - given->gpus), given->gpus);
		if ((result = md_simulate_integer(run, "gpus", low, MD_SIM_GPUS_MAX, &from)) >= 0 ||
		    (result = md_simulate_integer(run, "gpus", dash + 1, MD_SIM_GPUS_MAX, &to)) >= 0)
			return result;
		if (from > to)
			return md_options_usage_error(given->command, "--gpus %s: the first number is the greater one",
						      given->gpus);
	}
	if (given->gpus && !from)
		return md_options_usage_error(given->command, "--gpus %s: at least one GPU is needed", given->gpus);
	run->gpus_least = to ? (uint32_t)from : 0;
	run->gpus = (uint32_t)(to ? to : from);
	return -1;
}

/* What makes no sense for several numbers of GPUs. */
static int check_sizes(const struct md_simulate *run)
{
	const struct md_simulate_given *given = run->given;
	if (run->goal > 1)
		return md_options_usage_error(given->command, "--goal %s: a part of the requests, such as 95%%",
					      given->goal);
	if (!run->gpus_least)
		return !given->goal
			   ? -1
			   : md_options_usage_error(given->command, "--goal has no effect without --gpus FROM-TO");
	if (given->load || strncmp(given->trace, "cyclic", 6) == 0)
		return md_options_usage_error(
		    given->command,
		    "--gpus %s with %s: the requests would grow with the GPUs; --speed sets a "
		    "rate that does not",
		    given->gpus, given->load ? "--load" : "the law cyclic");
	if (given->json || given->html)
		return md_options_usage_error(given->command,
					      "--gpus %s with --%s: reports are of one number of GPUs; give the one "
					      "that was found",
					      given->gpus, given->json ? "json" : "html");
	return -1;
}

int md_simulate_take_numbers(struct md_simulate *run)
{
	const struct md_simulate_given *given = run->given;
	uint64_t count = 0;
	const char *wrong = NULL;
	int result;
	run->arrivals.seed = 1;
	run->goal = GOAL;
	if ((result = md_simulate_integer(run, "seed", given->seed, UINT64_MAX, &run->arrivals.seed)) >= 0 ||
	    (result = md_simulate_integer(run, "count", given->count, 100000, &count)) >= 0 ||
	    (result = take_gpus(run)) >= 0 || (result = take_mapping(run)) >= 0 ||
	    (result = take_number(run, "speed", given->speed, &run->arrivals.speed)) >= 0 ||
	    (result = take_number(run, "load", given->load, &run->arrivals.load)) >= 0 ||
	    (result = take_number(run, "goal", given->goal, &run->goal)) >= 0)
		return result;
	if (given->count && !count)
		return md_options_usage_error(given->command, "--count 0: there is nothing to simulate");
	if (given->load && given->speed)
		return md_options_usage_error(given->command, "--load and --speed: one of them, as both set the rate");
	if (given->duration &&
	    ((wrong = md_units_time(given->duration, &run->arrivals.duration_ns)) || !run->arrivals.duration_ns))
		return md_options_usage_error(given->command, "--duration %s: %s", given->duration,
					      wrong ? wrong : "more than 0 is expected");
	run->count = (uint32_t)count;
	return check_sizes(run);
}
