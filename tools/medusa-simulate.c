/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-simulate: replays a trace through the scheduler over a model of a node, policies side by side. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "simulator/config/fields.h"
#include "simulator/simulator.h"
#include "tools/options.h"
#include "tools/stop.h"

#define POLICIES_MAX 64

static const char *node_path, *functions_path, *trace, *policy_names = "torpor,fifo-lru,medusa", *mapping_text,
						       *seed_text, *speed_text, *load_text, *gpus_text, *duration_text,
						       *count_text, *json_path, *html_path;
static bool no_real, quiet, list;

static const struct md_option options[] = {
    {.name = "node", .argument = "FILE", .help = "GPUs, links and prices (YAML).", .value = &node_path},
    {.name = "functions", .argument = "FILE", .help = "Models and functions (YAML).", .value = &functions_path},
    {.name = "trace",
     .argument = "FILE|LAW",
     .help = "Requests; or a law, such as poisson or bursty:cov=4.",
     .value = &trace},
    {.name = "policy",
     .argument = "NAME,...",
     .help = "Policies to compare (torpor,fifo-lru,medusa).",
     .value = &policy_names},
    {.name = "count", .argument = "N", .help = "Number of functions; takes the models in turn.", .value = &count_text},
    {.name = "mapping",
     .argument = "HOW",
     .help = "Functions of a trace that names none: round-robin, zipf[:EXPONENT].",
     .value = &mapping_text},
    {.name = "seed", .argument = "N", .help = "Seed of everything that is drawn at random (1).", .value = &seed_text},
    {.name = "speed",
     .argument = "X",
     .help = "Speed of the trace; 2 is twice as many requests a second (1).",
     .value = &speed_text},
    {.name = "load",
     .argument = "X",
     .help = "Load to offer: GPU seconds of computing for each second of a GPU.",
     .value = &load_text},
    {.name = "gpus", .argument = "N", .help = "Number of the node's GPUs to use (all).", .value = &gpus_text},
    {.name = "duration",
     .argument = "TIME",
     .help = "Time of the last arrival (the whole trace; 10min for a law).",
     .value = &duration_text},
    {.name = "json", .argument = "FILE", .help = "Write all results as JSON.", .value = &json_path},
    {.name = "html", .argument = "FILE", .help = "Write a report with plots.", .value = &html_path},
    {.name = "no-real",
     .help = "Leave out what was measured in real time: the same inputs give the same bytes.",
     .flag = &no_real},
    {.name = "quiet", .help = "Print no progress and no tables.", .flag = &quiet},
    {.name = "list", .help = "Print the policies and where they come from.", .flag = &list},
};

static const struct md_command command = {
    .name = "medusa-simulate",
    .usage = "--node FILE --functions FILE --trace FILE|LAW [--policy NAME,...] [--json FILE] [--html FILE]",
    .summary = "Replays requests through the scheduler over a model of a worker node, one policy after the other.",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .exit_notes = "Exit code 1 means that a policy left requests that neither ran nor were refused.\n",
};

struct run {
	struct md_sim_node node;
	struct md_sim_functions functions;
	struct md_sim_workload_options arrivals;
	struct md_sim_workload workload;
	const struct md_sim_policy *policies[POLICIES_MAX];
	struct md_sim_result results[POLICIES_MAX];
	size_t policy_count, result_count;
	uint32_t count, gpus; /* numbers of functions and GPUs; 0: as the files have them */
};

/* ---- options ---- */

/* -1 to go on, else an exit code. */
static int take_integer(const char *name, const char *text, uint64_t most, uint64_t *value)
{
	char *end;
	if (!text)
		return -1;
	errno = 0;
	*value = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || *value > most)
		return md_options_usage_error(&command, "--%s %s: a whole number up to %" PRIu64 " is expected", name,
					      text, most);
	return -1;
}

static int take_mapping(struct md_sim_workload_options *arrivals)
{
	const char *wrong = NULL;
	arrivals->zipf = 1;
	if (!mapping_text || strcmp(mapping_text, "round-robin") == 0)
		return -1;
	if (strncmp(mapping_text, "zipf", 4) || (mapping_text[4] && mapping_text[4] != ':'))
		return md_options_usage_error(&command, "--mapping %s: round-robin or zipf[:EXPONENT] is expected",
					      mapping_text);
	arrivals->mapping = MD_SIM_ZIPF;
	if (mapping_text[4])
		wrong = md_units_number(mapping_text + 5, &arrivals->zipf);
	return wrong ? md_options_usage_error(&command, "--mapping %s: %s", mapping_text, wrong) : -1;
}

static int take_numbers(struct run *run)
{
	uint64_t count = 0, gpus = 0;
	const char *wrong = NULL;
	int result;
	run->arrivals.seed = 1;
	if ((result = take_integer("seed", seed_text, UINT64_MAX, &run->arrivals.seed)) >= 0 ||
	    (result = take_integer("count", count_text, 100000, &count)) >= 0 ||
	    (result = take_integer("gpus", gpus_text, 256, &gpus)) >= 0 || (result = take_mapping(&run->arrivals)) >= 0)
		return result;
	if (count_text && !count)
		return md_options_usage_error(&command, "--count 0: there is nothing to simulate");
	if (gpus_text && !gpus)
		return md_options_usage_error(&command, "--gpus 0: there is nothing to simulate");
	run->count = (uint32_t)count;
	run->gpus = (uint32_t)gpus;
	if (speed_text && ((wrong = md_units_number(speed_text, &run->arrivals.speed)) || run->arrivals.speed <= 0))
		return md_options_usage_error(&command, "--speed %s: %s", speed_text, wrong ? wrong : "more than 0");
	if (load_text && ((wrong = md_units_number(load_text, &run->arrivals.load)) || run->arrivals.load <= 0))
		return md_options_usage_error(&command, "--load %s: %s", load_text, wrong ? wrong : "more than 0");
	if (load_text && speed_text)
		return md_options_usage_error(&command, "--load and --speed: one of them, as both set the rate");
	if (duration_text &&
	    ((wrong = md_units_time(duration_text, &run->arrivals.duration_ns)) || !run->arrivals.duration_ns))
		return md_options_usage_error(&command, "--duration %s: %s", duration_text,
					      wrong ? wrong : "more than 0");
	return -1;
}

static int take_policies(struct run *run)
{
	MD_AUTO_FREE char *names = strdup(policy_names);
	char *rest = names, *name;
	if (!names) {
		md_options_say(&command, "out of memory for the names of policies");
		return MD_EXIT_COMMAND;
	}
	while ((name = strsep(&rest, ","))) {
		const struct md_sim_policy *policy = md_sim_policy_find(name);
		if (!policy)
			return md_options_usage_error(&command, "--policy: there is no '%s'; --list prints them", name);
		for (size_t i = 0; i < run->policy_count; i++)
			if (run->policies[i] == policy)
				return md_options_usage_error(&command, "--policy: %s is given twice", name);
		run->policies[run->policy_count++] = policy;
	}
	return -1;
}

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

/* ---- the run ---- */

static enum md_status read_inputs(struct run *run, struct md_error *err)
{
	MD_FORWARD(md_sim_node_read(node_path, &run->node, err));
	if (run->gpus)
		MD_FORWARD(md_sim_node_resize(&run->node, run->gpus, err));
	run->arrivals.node = &run->node;
	MD_FORWARD(md_sim_functions_read(functions_path, &run->functions, err));
	MD_FORWARD(md_sim_functions_resize(&run->functions, run->count ? run->count : run->functions.count,
					   run->arrivals.seed, err));
	return md_sim_workload_read(trace, &run->functions, &run->arrivals, &run->workload, err);
}

static enum md_status simulate(struct run *run, struct md_error *err)
{
	bool shown = !quiet && isatty(STDERR_FILENO);
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

static int report(struct run *run)
{
	struct md_sim_report results = {.node = &run->node,
					.functions = &run->functions,
					.workload = &run->workload,
					.seed = run->arrivals.seed,
					.no_real = no_real,
					.results = run->results,
					.count = run->result_count};
	struct md_error err = {0};
	if (!quiet)
		md_sim_report_text(&results, stdout);
	md_stop_hold(); /* until the files have their names, or are gone */
	bool written = (!json_path || md_sim_report_json(&results, json_path, &err) == MD_OK) &&
		       (!html_path || md_sim_report_html(&results, html_path, &err) == MD_OK);
	md_stop_release();
	if (!written) {
		md_options_say(&command, "%s", err.message);
		return MD_EXIT_COMMAND;
	}
	for (size_t i = 0; i < run->result_count; i++) {
		if (run->results[i].unfinished) {
			fprintf(stderr, "%s: %s left %" PRIu64 " requests unfinished\n", command.name,
				run->policies[i]->name, run->results[i].unfinished);
			return MD_EXIT_FAILED;
		}
	}
	return MD_EXIT_OK;
}

static int print_policies(void)
{
	size_t count;
	const struct md_sim_policy *policies = md_sim_policies(&count);
	for (size_t i = 0; i < count; i++)
		printf("%-15s %s\n", policies[i].name, policies[i].summary);
	printf("\nThese restore contexts from artifacts. NAME%s is the same combination with contexts that are "
	       "captured at "
	       "each cold start, as the\npapers' systems make them.\n",
	       MD_SIM_CAPTURE);
	return md_options_flush(&command);
}

static int run_all(struct run *run)
{
	struct md_error err = {0};
	int result;
	if (read_inputs(run, &err) != MD_OK || simulate(run, &err) != MD_OK)
		return md_options_report(&command, &err);
	result = report(run);
	return result == MD_EXIT_OK ? md_options_flush(&command) : result;
}

int main(int argc, char *argv[])
{
	static struct run run;
	struct md_arguments arguments;
	int result = md_options_parse(&command, argc, argv, &arguments);
	if (result >= 0)
		return result;
	if (arguments.command || arguments.file_count)
		return md_options_usage_error(&command, "files are named by --node, --functions and --trace");
	if (list)
		return print_policies();
	if (!node_path || !functions_path || !trace)
		return md_options_usage_error(&command, "--node, --functions and --trace are needed");
	if ((result = take_numbers(&run)) >= 0 || (result = take_policies(&run)) >= 0)
		return result;
	result = run_all(&run);
	for (size_t i = 0; i < run.result_count; i++)
		md_sim_result_finish(&run.results[i]);
	md_sim_workload_finish(&run.workload);
	md_sim_functions_finish(&run.functions);
	md_sim_node_finish(&run.node);
	return result;
}
