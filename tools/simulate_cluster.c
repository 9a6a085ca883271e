/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-simulate --cluster: runs the routings one after the other, and reports them side by side. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/shipped.h"
#include "tools/simulate.h"
#include "tools/stop.h"

/* ---- the command line ---- */

static int add_routing(struct md_simulate *run, const char *name, size_t bytes)
{
	enum md_sim_routing routing;
	if (!md_sim_routing_find(name, bytes, &routing))
		return md_options_usage_error(run->given->command,
					      "--routing %.*s: expected, random, least-loaded or locality is expected",
					      (int)bytes, name);
	for (size_t i = 0; i < run->routing_count; i++)
		if (run->routings[i] == routing)
			return md_options_usage_error(run->given->command, "--routing: %s is there twice",
						      md_sim_routing_name(routing));
	run->routings[run->routing_count++] = routing;
	return -1;
}

static int refuse_options(const struct md_simulate_given *given)
{
	const struct {
		const char *name, *value, *why;
	} refused[] = {
	    {"html", given->html, "a cluster's report is text or JSON"},
	    {"faults", given->faults, "the cluster's file says which nodes are lost"},
	    {"load", given->load, "it is of one node; --speed, or rate_factor in the cluster's file, sets the rate"},
	    {"goal", given->goal, "it is of --gpus FROM-TO"},
	};
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		if (refused[i].value)
			return md_options_usage_error(given->command, "--%s has no effect with --cluster: %s",
						      refused[i].name, refused[i].why);
	if (given->gpus && strchr(given->gpus, '-'))
		return md_options_usage_error(given->command, "--gpus %s with --cluster: one number is expected",
					      given->gpus);
	if (strchr(given->policies, ','))
		return md_options_usage_error(given->command,
					      "--policy %s with --cluster: one policy is expected, of all nodes",
					      given->policies);
	return -1;
}

int md_simulate_take_routings(struct md_simulate *run)
{
	const struct md_simulate_given *given = run->given;
	int result;
	if (!given->cluster)
		return !given->routing
			   ? -1
			   : md_options_usage_error(given->command, "--routing has no effect without --cluster");
	if (!*given->cluster)
		return md_options_usage_error(given->command, "--cluster '': a file or a name is expected");
	if ((result = refuse_options(given)) >= 0)
		return result;
	const char *names = given->routing ? given->routing : "expected,random,least-loaded,locality";
	for (;; names++) {
		size_t bytes = strcspn(names, ",");
		if ((result = add_routing(run, names, bytes)) >= 0)
			return result;
		names += bytes;
		if (!*names)
			return -1;
	}
}

/* ---- inputs ---- */

enum md_status md_simulate_read_cluster(struct md_simulate *run, struct md_error *err)
{
	MD_FORWARD(md_shipped_find("clusters", run->given->cluster, &run->paths[2], err));
	MD_FORWARD(md_sim_cluster_read(run->paths[2], &run->cluster, err));
	return md_sim_cluster_load(&run->cluster, &run->functions, run->arrivals.seed, &run->workload, err);
}

/* Nothing is ignored in silence. */
static void remark(const struct md_simulate *run)
{
	const struct md_command *command = run->given->command;
	uint32_t in_host = 0;
	for (uint32_t i = 0; i < run->functions.count; i++)
		in_host += run->functions.functions[i].spec.in_host != 0;
	if (in_host)
		md_options_say(command,
			       "in_host of %" PRIu32
			       " functions has no effect in a cluster: all are on the nodes' disks at the "
			       "beginning, and host memory has what was loaded",
			       in_host);
	if (run->cluster.warmup_ns > run->workload.end)
		md_options_say(command, "%s: the warm-up is longer than the trace, so nothing is counted",
			       run->paths[2]);
}

/* ---- runs ---- */

struct progress {
	const char *routing;
	size_t number, of;
};

static void show_progress(void *user, double part, double simulated_s, uint64_t requests)
{
	const struct progress *progress = user;
	fprintf(stderr, "\r\033[K%s (%zu of %zu): %3.0f %%, %.0f s simulated, %" PRIu64 " requests", progress->routing,
		progress->number, progress->of, 100 * part, simulated_s, requests);
	fflush(stderr);
}

static enum md_status run_all(struct md_simulate *run, const struct md_sim_cluster_inputs *inputs, struct md_error *err)
{
	bool shown = !run->given->quiet && isatty(STDERR_FILENO);
	struct progress at = {.of = run->routing_count};
	const struct md_sim_progress progress = {.report = show_progress, .user = &at};
	enum md_status status = MD_OK;
	for (size_t i = 0; status == MD_OK && i < run->routing_count; i++) {
		at.routing = md_sim_routing_name(run->routings[i]);
		at.number = i + 1;
		status = md_sim_cluster_run(inputs, run->routings[i], shown ? &progress : NULL,
					    &run->cluster_results[i], err);
		run->cluster_result_count += status == MD_OK;
	}
	if (shown) {
		fputs("\r\033[K", stderr);
		fflush(stderr);
	}
	return status;
}

static int report(struct md_simulate *run, const struct md_sim_cluster_inputs *inputs)
{
	const struct md_simulate_given *given = run->given;
	struct md_sim_cluster_report results = {.inputs = inputs,
						.results = run->cluster_results,
						.count = run->cluster_result_count,
						.no_real = given->no_real};
	struct md_error err = {0};
	int result = MD_EXIT_OK;
	if (!given->quiet && !(given->json && !strcmp(given->json, "-")))
		md_sim_cluster_text(&results, stdout);
	md_stop_hold(); /* until the file has its name, or is gone */
	bool written = !given->json || md_sim_cluster_json(&results, given->json, &err) == MD_OK;
	md_stop_release();
	if (!written) {
		md_options_say(given->command, "%s", err.message);
		return MD_EXIT_COMMAND;
	}
	for (size_t i = 0; i < run->cluster_result_count; i++) {
		if (!run->cluster_results[i].unfinished)
			continue;
		md_options_say(given->command, "%s left %" PRIu64 " requests unfinished",
			       md_sim_routing_name(run->cluster_results[i].routing),
			       run->cluster_results[i].unfinished);
		result = MD_EXIT_FAILED;
	}
	return result;
}

int md_simulate_cluster(struct md_simulate *run)
{
	const struct md_sim_cluster_inputs inputs = {.cluster = &run->cluster,
						     .node = &run->node,
						     .functions = &run->functions,
						     .workload = &run->workload,
						     .policy = run->policies[0],
						     .seed = run->arrivals.seed};
	struct md_error err = {0};
	remark(run);
	int result =
	    run_all(run, &inputs, &err) == MD_OK ? report(run, &inputs) : md_options_report(run->given->command, &err);
	while (run->cluster_result_count)
		md_sim_cluster_result_finish(&run->cluster_results[--run->cluster_result_count]);
	return result;
}
