/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the policies of medusa-simulate one after the other, and says on a terminal how far they are. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "tools/simulate.h"

/* ---- progress ---- */

struct progress {
	const char *policy;
	size_t number, of;
};

static void show_progress(void *user, double part, double simulated_s, uint64_t requests)
{
	const struct progress *progress = user;
	fprintf(stderr, "\r\033[K%s (%zu of %zu): %3.0f %%, %.0f s simulated, %" PRIu64 " requests", progress->policy,
		progress->number, progress->of, 100 * part, simulated_s, requests);
	fflush(stderr);
}

static void clear_progress(void)
{
	fputs("\r\033[K", stderr);
	fflush(stderr);
}

enum md_status md_simulate_run(struct md_simulate *run, struct md_error *err)
{
	bool shown = !run->given->quiet && isatty(STDERR_FILENO);
	struct progress at = {.of = run->policy_count};
	const struct md_sim_progress progress = {.report = show_progress, .user = &at};
	enum md_status status = MD_OK;
	for (; status == MD_OK && run->result_count < run->policy_count; run->result_count++) {
		at.policy = run->policies[run->result_count]->name;
		at.number = run->result_count + 1;
		status =
		    md_sim_run(&run->node, &run->functions, &run->workload, run->policies[run->result_count],
			       run->arrivals.seed, shown ? &progress : NULL, &run->results[run->result_count], err);
		if (status != MD_OK)
			break;
	}
	if (shown)
		clear_progress();
	return status;
}

void md_simulate_forget_results(struct md_simulate *run)
{
	while (run->result_count)
		md_sim_result_finish(&run->results[--run->result_count]);
}

int md_simulate_unfinished(const struct md_simulate *run)
{
	int result = MD_EXIT_OK;
	for (size_t i = 0; i < run->result_count; i++) {
		if (!run->results[i].unfinished)
			continue;
		md_options_say(run->given->command, "%s left %" PRIu64 " requests unfinished", run->policies[i]->name,
			       run->results[i].unfinished);
		result = MD_EXIT_FAILED;
	}
	return result;
}
