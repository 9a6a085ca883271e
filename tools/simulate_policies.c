/* SPDX-License-Identifier: Apache-2.0 */
/* The policies that medusa-simulate compares: by name, and with what the command line changes in each of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "simulator/config/fields.h"
#include "tools/shipped.h"
#include "tools/simulate.h"

static int choose_policies(struct md_simulate *run)
{
	const struct md_simulate_given *given = run->given;
	MD_AUTO_FREE char *names = strdup(given->policies);
	char *rest = names, *name;
	if (!names) {
		md_options_say(given->command, "out of memory for the names of policies");
		return MD_EXIT_COMMAND;
	}
	while ((name = strsep(&rest, ","))) {
		const struct md_sim_policy *policy = md_sim_policy_find(name);
		if (!*name)
			return md_options_usage_error(
			    given->command, "--policy '%s': a name is empty; --list prints those that there are",
			    given->policies);
		if (!policy)
			return md_options_usage_error(given->command, "--policy: there is no '%s'; --list prints them",
						      name);
		for (size_t i = 0; i < run->policy_count; i++)
			if (run->policies[i] == policy)
				return md_options_usage_error(given->command, "--policy: %s is given twice", name);
		run->policies[run->policy_count++] = policy;
	}
	return -1;
}

/* ---- changes of policies ---- */

static const char *const kind_names[MD_SIMULATE_KINDS] = {"queueing", "placement", "eviction", "batching",
							  "preloading"};

static const char **kind_of(struct md_sim_policy *policy, int kind)
{
	const char **fields[MD_SIMULATE_KINDS] = {&policy->queueing, &policy->placement, &policy->eviction,
						  &policy->batching, &policy->preloading};
	return fields[kind];
}

static int refuse_kind(const struct md_simulate_given *given, int kind, const struct medusa_sched_policy *known,
		       size_t count)
{
	char names[256];
	size_t used = 0;
	for (size_t i = 0; i < count && used < sizeof(names); i++)
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "", known[i].name);
	return md_options_usage_error(given->command, "--%s: there is no '%s'; there are %s", kind_names[kind],
				      given->kinds[kind], names);
}

static int check_kinds(const struct md_simulate_given *given)
{
	for (int kind = 0; kind < MD_SIMULATE_KINDS; kind++) {
		size_t count, i = 0;
		const struct medusa_sched_policy *known = medusa_sched_policies((enum medusa_sched_kind)kind, &count);
		while (given->kinds[kind] && i < count && strcmp(known[i].name, given->kinds[kind]))
			i++;
		if (given->kinds[kind] && i == count)
			return refuse_kind(given, kind, known, count);
	}
	return -1;
}

static int take_time(const struct md_simulate *run, const char *name, const char *text, uint64_t *ns)
{
	const char *wrong = text ? md_units_time(text, ns) : NULL;
	if (text && (wrong || !*ns))
		return md_options_usage_error(run->given->command, "--%s %s: %s", name, text,
					      wrong ? wrong : "more than 0 is expected");
	return -1;
}

/* The values that all policies of the run share; 0: not given. */
static int take_tuning(const struct md_simulate *run, struct md_sim_policy *tuning)
{
	const struct md_simulate_given *given = run->given;
	uint64_t queue = 0, retries = 0, batch = 0;
	int result;
	if ((result = md_simulate_integer(run, "max-queue", given->max_queue, UINT32_MAX, &queue)) >= 0 ||
	    (result = md_simulate_integer(run, "retries", given->retries, 1000, &retries)) >= 0 ||
	    (result = md_simulate_integer(run, "fixed-batch", given->fixed_batch, 65536, &batch)) >= 0 ||
	    (result = take_time(run, "fixed-delay", given->fixed_delay, &tuning->fixed_delay_ns)) >= 0 ||
	    (result = take_time(run, "preload-period", given->preload_period, &tuning->preload_period_ns)) >= 0 ||
	    (result = take_time(run, "transfer-timeout", given->transfer_timeout, &tuning->transfer_timeout_ns)) >= 0 ||
	    (result = take_time(run, "run-timeout", given->run_timeout, &tuning->run_timeout_ns)) >= 0 ||
	    (result = take_time(run, "max-wait", given->max_wait, &tuning->max_wait_ns)) >= 0)
		return result;
	const char *wrong = given->residency ? md_units_number(given->residency, &tuning->residency_per_switch) : NULL;
	if (given->residency && (wrong || tuning->residency_per_switch <= 0))
		return md_options_usage_error(given->command, "--residency %s: %s", given->residency,
					      wrong ? wrong : "more than 0 is expected");
	if ((given->max_queue && !queue) || (given->fixed_batch && !batch))
		return md_options_usage_error(given->command, "--%s 0: more than 0 is expected",
					      given->fixed_batch && !batch ? "fixed-batch" : "max-queue");
	tuning->max_queue = (uint32_t)queue;
	tuning->retries = (uint32_t)retries;
	tuning->fixed_batch = (uint32_t)batch;
	return -1;
}

/* The name gets a star if the policy is no longer what its name says, and the summary says what was changed. */
static void rename_policy(struct md_simulate *run, size_t at, bool other)
{
	const struct md_simulate_given *given = run->given;
	struct md_sim_policy *policy = &run->changed[at];
	char *summary = run->summaries[at];
	size_t used = 0, room = sizeof(run->summaries[at]);
	snprintf(run->names[at], sizeof(run->names[at]), "%s%s", policy->name, other ? "*" : "");
	for (int kind = 0; kind < MD_SIMULATE_KINDS; kind++)
		if (given->kinds[kind])
			used += (size_t)snprintf(summary + used, room - used, "With %s %.20s. ", kind_names[kind],
						 given->kinds[kind]);
	snprintf(summary + used, room - used, "%s", policy->summary);
	policy->name = run->names[at];
	policy->summary = summary;
}

static int change_policy(struct md_simulate *run, size_t at, const struct md_sim_policy *tuning)
{
	const struct md_simulate_given *given = run->given;
	struct md_sim_policy *policy = &run->changed[at];
	bool other = false, any = tuning->max_wait_ns || tuning->preload_period_ns || tuning->transfer_timeout_ns ||
				  tuning->run_timeout_ns || tuning->max_queue || given->retries || given->residency;
	*policy = *run->policies[at];
	for (int kind = 0; kind < MD_SIMULATE_KINDS; kind++) {
		other |= given->kinds[kind] != NULL;
		if (given->kinds[kind])
			*kind_of(policy, kind) = given->kinds[kind];
	}
	if (policy->early_binding && (other || any || given->faults || given->fixed_batch || given->fixed_delay))
		return md_options_usage_error(given->command,
					      "--policy %s: options of the scheduler and faults have no effect on it",
					      policy->name);
	other |= given->fixed_batch || given->fixed_delay;
	policy->fixed_batch = tuning->fixed_batch ? tuning->fixed_batch : policy->fixed_batch;
	policy->fixed_delay_ns = given->fixed_delay ? tuning->fixed_delay_ns : policy->fixed_delay_ns;
	policy->max_wait_ns = tuning->max_wait_ns;
	policy->preload_period_ns = tuning->preload_period_ns;
	policy->transfer_timeout_ns = tuning->transfer_timeout_ns;
	policy->run_timeout_ns = tuning->run_timeout_ns;
	policy->max_queue = tuning->max_queue;
	policy->retries = tuning->retries;
	policy->residency_per_switch = tuning->residency_per_switch;
	if ((given->fixed_batch || given->fixed_delay) && strcmp(policy->batching, "fixed"))
		return md_options_usage_error(given->command, "--%s has no effect on %s, whose batching is %s",
					      given->fixed_batch ? "fixed-batch" : "fixed-delay", policy->name,
					      policy->batching);
	if (given->residency && strcmp(policy->eviction, "medusa"))
		return md_options_usage_error(given->command, "--residency has no effect on %s, whose eviction is %s",
					      policy->name, policy->eviction);
	if (given->preload_period && strcmp(policy->preloading, "none") == 0)
		return md_options_usage_error(
		    given->command, "--preload-period has no effect on %s, which preloads nothing", policy->name);
	if (strcmp(policy->batching, "fixed") == 0 && !policy->fixed_batch)
		return md_options_usage_error(given->command, "--batching fixed: --fixed-batch is needed for %s",
					      policy->name);
	rename_policy(run, at, other);
	run->policies[at] = policy;
	return -1;
}

int md_simulate_take_policies(struct md_simulate *run)
{
	struct md_sim_policy tuning = {0};
	int result;
	if ((result = choose_policies(run)) >= 0 || (result = check_kinds(run->given)) >= 0 ||
	    (result = take_tuning(run, &tuning)) >= 0)
		return result;
	for (size_t i = 0; i < run->policy_count; i++)
		if ((result = change_policy(run, i, &tuning)) >= 0)
			return result;
	return -1;
}

/* ---- what there is ---- */

int md_simulate_list(const struct md_command *command)
{
	size_t count;
	const struct md_sim_policy *policies = md_sim_policies(&count);
	for (size_t i = 0; i < count; i++)
		printf("%-15s %s\n", policies[i].name, policies[i].summary);
	printf("\nThese restore contexts from artifacts. NAME%s is the same combination with contexts that are "
	       "captured at "
	       "each cold start, as the\npapers' systems make them.\n",
	       MD_SIM_CAPTURE);
	putchar('\n');
	for (int kind = 0; kind < MD_SIMULATE_KINDS; kind++) {
		const struct medusa_sched_policy *known = medusa_sched_policies((enum medusa_sched_kind)kind, &count);
		printf("--%s:", kind_names[kind]);
		for (size_t i = 0; i < count; i++)
			printf(" %s%s", known[i].name, i + 1 < count ? "," : "\n");
	}
	static const char *const shipped[][2] = {
	    {"node", "nodes"}, {"functions", "functions"}, {"cluster", "clusters"}};
	for (int i = 0; i < 3; i++) {
		MD_AUTO_FREE char *names = md_shipped_names(shipped[i][1]);
		if (names && *names)
			printf("\n--%s by name: %s\n", shipped[i][0], names);
	}
	puts("");
	for (unsigned i = 0; i < MD_SIM_ROUTINGS; i++)
		printf("--routing %-13s %s\n", md_sim_routing_name((enum md_sim_routing)i),
		       md_sim_routing_summary((enum md_sim_routing)i));
	return md_options_flush(command);
}
