/* SPDX-License-Identifier: Apache-2.0 */
/* How many GPUs are needed: the same requests on nodes of one GPU more each time, until each policy serves enough in time. */
#include <stdio.h>
#include <string.h>

#include "simulator/report/report.h"
#include "tools/simulate.h"

struct sizes {
	struct md_simulate *run;
	uint32_t from, to;
	uint32_t enough[MD_SIMULATE_POLICIES_MAX]; /* by policy: the fewest GPUs; 0: not found yet */
	bool unfinished;
};

static bool has_objective(const struct md_sim_functions *functions)
{
	for (uint32_t i = 0; i < functions->count; i++)
		if (functions->functions[i].spec.slo_ns)
			return true;
	return false;
}

#define CELL 9 /* "100.0 %", and blanks before it */

static int width_of(const struct md_simulate *run, size_t policy)
{
	int length = (int)strlen(run->policies[policy]->name) + 2;
	return length > CELL ? length : CELL;
}

static void print_head(const struct md_simulate *run)
{
	printf("%s\nRequests in time of %zu in %.1f s, by the number of GPUs:\n\nGPUs",
	       "Simulated: no GPU was used, and nothing was measured.", run->workload.count,
	       (double)run->workload.end * 1e-9);
	for (size_t i = 0; i < run->policy_count; i++)
		printf("%*s", width_of(run, i), run->policies[i]->name);
	putchar('\n');
}

/* A row for the number of GPUs that was tried, as soon as it was. */
static void take_row(struct sizes *sizes)
{
	const struct md_simulate *run = sizes->run;
	if (!run->given->quiet)
		printf("%4u", run->gpus);
	for (size_t i = 0; i < run->policy_count; i++) {
		const struct md_sim_result *result = &run->results[i];
		double met = (double)result->met, all = (double)result->requests;
		if (!run->given->quiet)
			printf("%*.1f %%", width_of(run, i) - 2, md_sim_report_percent(met, all));
		/* the margin covers rounding of the product */
		if (!sizes->enough[i] && met >= run->goal * all - 1e-9)
			sizes->enough[i] = run->gpus;
	}
	if (!run->given->quiet)
		putchar('\n');
	fflush(stdout);
}

/* Whether each policy has been found a number of GPUs. */
static bool all_found(const struct sizes *sizes)
{
	for (size_t i = 0; i < sizes->run->policy_count; i++)
		if (!sizes->enough[i])
			return false;
	return true;
}

static enum md_status try_size(struct sizes *sizes, uint32_t gpus, struct md_error *err)
{
	struct md_simulate *run = sizes->run;
	md_simulate_forget_inputs(run);
	run->gpus = gpus;
	MD_FORWARD(md_simulate_read(run, err));
	enum md_status status = md_simulate_run(run, err);
	if (status == MD_OK) {
		sizes->unfinished |= md_simulate_unfinished(run) != MD_EXIT_OK;
		take_row(sizes);
	}
	md_simulate_forget_results(run);
	return status;
}

/* Returns whether any policy is good enough. */
static bool print_answer(const struct sizes *sizes)
{
	const struct md_simulate *run = sizes->run;
	bool any = false;
	printf("%sFewest GPUs with %.6g %% of the requests in time: ", run->given->quiet ? "" : "\n", 100 * run->goal);
	for (size_t i = 0; i < run->policy_count; i++) {
		printf("%s%s ", i ? ", " : "", run->policies[i]->name);
		if (sizes->enough[i])
			printf("%u", sizes->enough[i]);
		else
			printf("none of %u to %u", sizes->from, sizes->to);
		any |= sizes->enough[i] > 0;
	}
	puts(".");
	return any;
}

int md_simulate_sizes(struct md_simulate *run)
{
	struct sizes sizes = {.run = run, .from = run->gpus_least, .to = run->gpus};
	const struct md_command *command = run->given->command;
	struct md_error err = {0};
	enum md_status status = MD_OK;
	if (!run->workload.count || !has_objective(&run->functions)) {
		md_options_say(command, "--gpus %s: %s", run->given->gpus,
			       run->workload.count ? "no function has an objective (slo), so no request can be in time"
						   : "there are no requests");
		return MD_EXIT_INPUT;
	}
	if (!run->given->quiet)
		print_head(run);
	for (uint32_t gpus = sizes.from; status == MD_OK && gpus <= sizes.to && !all_found(&sizes); gpus++)
		status = try_size(&sizes, gpus, &err);
	if (status != MD_OK)
		return md_options_report(command, &err);
	bool any = print_answer(&sizes);
	int result = md_options_flush(command);
	return result == MD_EXIT_OK && (!any || sizes.unfinished) ? MD_EXIT_FAILED : result;
}
