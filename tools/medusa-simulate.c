/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-simulate: replays a trace through the scheduler over a model of a node, policies side by side. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/simulate.h"
#include "tools/stop.h"

static struct md_simulate_given given;

static const struct md_option options[] = {
    {.name = "node",
     .argument = "FILE|NAME",
     .help = "GPUs, links and prices (YAML, or a shipped one).",
     .value = &given.node},
    {.name = "functions",
     .argument = "FILE|NAME",
     .help = "Models and functions (YAML, or shipped ones).",
     .value = &given.functions},
    {.name = "trace",
     .argument = "FILE|LAW",
     .help = "Requests; or a law, such as poisson or bursty:cov=4.",
     .value = &given.trace},
    {.name = "policy",
     .argument = "NAME,...",
     .help = "Policies to compare (torpor,fifo-lru,medusa).",
     .value = &given.policies},
    {.name = "queueing",
     .argument = "NAME",
     .help = "Queueing, instead of the policies' own.",
     .value = &given.kinds[0]},
    {.name = "placement", .argument = "NAME", .help = "Placement, likewise.", .value = &given.kinds[1]},
    {.name = "eviction", .argument = "NAME", .help = "Eviction, likewise.", .value = &given.kinds[2]},
    {.name = "batching", .argument = "NAME", .help = "Batching, likewise.", .value = &given.kinds[3]},
    {.name = "preloading", .argument = "NAME", .help = "Preloading, likewise.", .value = &given.kinds[4]},
    {.name = "fixed-batch",
     .argument = "N",
     .help = "Batching fixed: requests in a batch.",
     .value = &given.fixed_batch},
    {.name = "fixed-delay",
     .argument = "TIME",
     .help = "Batching fixed: longest wait for them.",
     .value = &given.fixed_delay},
    {.name = "preload-period",
     .argument = "TIME",
     .help = "How often to plan preloads (1s).",
     .value = &given.preload_period},
    {.name = "residency",
     .argument = "X",
     .help = "Eviction medusa: least stay, in times that loading takes (1).",
     .value = &given.residency},
    {.name = "max-wait",
     .argument = "TIME",
     .help = "Refuse what waited longer for its start (600s).",
     .value = &given.max_wait},
    {.name = "max-queue",
     .argument = "N",
     .help = "Refuse more requests waiting for one function.",
     .value = &given.max_queue},
    {.name = "retries",
     .argument = "N",
     .help = "Try a request again after its batch failed (0).",
     .value = &given.retries},
    {.name = "transfer-timeout",
     .argument = "TIME",
     .help = "Take a transfer as lost after it.",
     .value = &given.transfer_timeout},
    {.name = "run-timeout", .argument = "TIME", .help = "Take a run as lost after it.", .value = &given.run_timeout},
    {.name = "faults", .argument = "FILE", .help = "What goes wrong, when and where (CSV).", .value = &given.faults},
    {.name = "cluster",
     .argument = "FILE|NAME",
     .help = "Many such nodes that are one cluster (YAML, or a shipped one).",
     .value = &given.cluster},
    {.name = "routing",
     .argument = "NAME,...",
     .help = "How a cluster's requests find their nodes (all four ways).",
     .value = &given.routing},
    {.name = "count", .argument = "N", .help = "Number of functions; takes the models in turn.", .value = &given.count},
    {.name = "mapping",
     .argument = "HOW",
     .help = "Functions of a trace that names none: round-robin, zipf[:EXPONENT].",
     .value = &given.mapping},
    {.name = "seed", .argument = "N", .help = "Seed of everything that is drawn at random (1).", .value = &given.seed},
    {.name = "speed",
     .argument = "X",
     .help = "Speed of the trace; 2 is twice as many requests a second (1).",
     .value = &given.speed},
    {.name = "load",
     .argument = "X",
     .help = "Load to offer: GPU seconds of computing for each second of a GPU.",
     .value = &given.load},
    {.name = "gpus",
     .argument = "N|FROM-TO",
     .help = "Number of the node's GPUs to use (all); FROM-TO: the smallest that is enough.",
     .value = &given.gpus},
    {.name = "goal",
     .argument = "PART",
     .help = "Requests in time that are enough, for --gpus FROM-TO (95%).",
     .value = &given.goal},
    {.name = "duration",
     .argument = "TIME",
     .help = "Time of the last arrival (the whole trace; 10min for a law).",
     .value = &given.duration},
    {.name = "json", .argument = "FILE", .help = "Write all results as JSON; - is stdout.", .value = &given.json},
    {.name = "html", .argument = "FILE", .help = "Write a report with plots; - is stdout.", .value = &given.html},
    {.name = "no-real",
     .help = "Leave out what was measured in real time: the same inputs give the same bytes.",
     .flag = &given.no_real},
    {.name = "quiet", .help = "Print no progress and no tables.", .flag = &given.quiet},
    {.name = "list", .help = "Print the policies and where they come from, and what is shipped.", .flag = &given.list},
};

static const struct md_command command = {
    .name = "medusa-simulate",
    .usage = "--node FILE|NAME --functions FILE|NAME --trace FILE|LAW [--policy NAME,...] [--json FILE] [--html FILE]",
    .summary = "Replays requests through the scheduler over a model of a worker node, one policy after the other.",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .once = true,
    .exit_codes = "  0  all good\n"
		  "  1  a policy left requests that neither ran nor were refused; --gpus FROM-TO: none is enough\n"
		  "  2  usage\n"
		  "  3  a file is bad or cannot be read, or a function cannot run on the node\n"
		  "  4  an output could not be written, or there was no memory\n",
};

/* "-" is stdout, where tables would be in the way. */
static bool to_stdout(const char *path)
{
	return path && strcmp(path, "-") == 0;
}

static int report(struct md_simulate *run)
{
	struct md_sim_report results = {.node = &run->node,
					.functions = &run->functions,
					.workload = &run->workload,
					.seed = run->arrivals.seed,
					.no_real = given.no_real,
					.results = run->results,
					.count = run->result_count};
	struct md_error err = {0};
	if (!given.quiet && !to_stdout(given.json) && !to_stdout(given.html))
		md_sim_report_text(&results, stdout);
	md_stop_hold(); /* until the files have their names, or are gone */
	bool written = (!given.json || md_sim_report_json(&results, given.json, &err) == MD_OK) &&
		       (!given.html || md_sim_report_html(&results, given.html, &err) == MD_OK);
	md_stop_release();
	if (!written) {
		md_options_say(&command, "%s", err.message);
		return MD_EXIT_COMMAND;
	}
	return md_simulate_unfinished(run);
}

static int simulate(struct md_simulate *run)
{
	struct md_error err = {0};
	int result;
	if (md_simulate_read(run, &err) != MD_OK)
		return md_options_report(&command, &err);
	md_simulate_remark(run);
	if ((result = md_simulate_check_outputs(run)) >= 0)
		return result;
	if (run->gpus_least)
		return md_simulate_sizes(run);
	if (given.cluster) {
		result = md_simulate_cluster(run);
		return result == MD_EXIT_OK ? md_options_flush(&command) : result;
	}
	if (md_simulate_run(run, &err) != MD_OK)
		return md_options_report(&command, &err);
	result = report(run);
	return result == MD_EXIT_OK ? md_options_flush(&command) : result;
}

int main(int argc, char *argv[])
{
	static struct md_simulate run;
	struct md_arguments arguments;
	int result = md_options_parse(&command, argc, argv, &arguments);
	if (result >= 0)
		return result;
	if (arguments.command || arguments.file_count)
		return md_options_usage_error(&command, "files are named by --node, --functions and --trace");
	if (given.list)
		return md_simulate_list(&command);
	if (!given.node || !given.functions || !given.trace)
		return md_options_usage_error(&command, "--node, --functions and --trace are needed");
	if (!*given.node || !*given.functions || !*given.trace)
		return md_options_usage_error(&command,
					      "--%s '': a file or a name is expected; medusa-simulate(1) has examples",
					      !*given.node        ? "node"
					      : !*given.functions ? "functions"
								  : "trace");
	signal(SIGXFSZ, SIG_IGN); /* writing fails instead, and no half of a file stays */
	given.command = &command;
	run.given = &given;
	if (!given.policies)
		given.policies = given.cluster ? "medusa" : "torpor,fifo-lru,medusa";
	if ((result = md_simulate_take_routings(&run)) >= 0 || (result = md_simulate_take_numbers(&run)) >= 0 ||
	    (result = md_simulate_take_policies(&run)) >= 0)
		return result;
	result = simulate(&run);
	md_simulate_forget_results(&run);
	md_simulate_forget_inputs(&run);
	return result;
}
