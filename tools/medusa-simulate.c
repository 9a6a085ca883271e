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
#include "simulator/workload/fault_file.h"
#include "simulator/workload/trace_functions.h"
#include "tools/options.h"
#include "tools/shipped.h"
#include "tools/stop.h"

#define POLICIES_MAX 64

static const char *node_path, *functions_path, *trace, *policy_names = "torpor,fifo-lru,medusa", *mapping_text,
						       *seed_text, *speed_text, *load_text, *gpus_text, *duration_text,
						       *count_text, *json_path, *html_path;
static const char *kinds[5], *max_wait_text, *max_queue_text, *retries_text, *preload_period_text, *batch_text,
    *delay_text, *transfer_timeout_text, *run_timeout_text, *faults_path, *residency_text;
static bool no_real, quiet, list;

static const struct md_option options[] = {
    {.name = "node",
     .argument = "FILE|NAME",
     .help = "GPUs, links and prices (YAML, or a shipped one).",
     .value = &node_path},
    {.name = "functions",
     .argument = "FILE|NAME",
     .help = "Models and functions (YAML, or shipped ones).",
     .value = &functions_path},
    {.name = "trace",
     .argument = "FILE|LAW",
     .help = "Requests; or a law, such as poisson or bursty:cov=4.",
     .value = &trace},
    {.name = "policy",
     .argument = "NAME,...",
     .help = "Policies to compare (torpor,fifo-lru,medusa).",
     .value = &policy_names},
    {.name = "queueing", .argument = "NAME", .help = "Queueing, instead of the policies' own.", .value = &kinds[0]},
    {.name = "placement", .argument = "NAME", .help = "Placement, likewise.", .value = &kinds[1]},
    {.name = "eviction", .argument = "NAME", .help = "Eviction, likewise.", .value = &kinds[2]},
    {.name = "batching", .argument = "NAME", .help = "Batching, likewise.", .value = &kinds[3]},
    {.name = "preloading", .argument = "NAME", .help = "Preloading, likewise.", .value = &kinds[4]},
    {.name = "fixed-batch", .argument = "N", .help = "Batching fixed: requests in a batch.", .value = &batch_text},
    {.name = "fixed-delay", .argument = "TIME", .help = "Batching fixed: longest wait for them.", .value = &delay_text},
    {.name = "preload-period",
     .argument = "TIME",
     .help = "How often to plan preloads (1s).",
     .value = &preload_period_text},
    {.name = "residency",
     .argument = "X",
     .help = "Eviction medusa: least stay, in times that loading takes (1).",
     .value = &residency_text},
    {.name = "max-wait",
     .argument = "TIME",
     .help = "Refuse what waited longer for its start (600s).",
     .value = &max_wait_text},
    {.name = "max-queue",
     .argument = "N",
     .help = "Refuse more requests waiting for one function.",
     .value = &max_queue_text},
    {.name = "retries",
     .argument = "N",
     .help = "Try a request again after its batch failed (0).",
     .value = &retries_text},
    {.name = "transfer-timeout",
     .argument = "TIME",
     .help = "Take a transfer as lost after it.",
     .value = &transfer_timeout_text},
    {.name = "run-timeout", .argument = "TIME", .help = "Take a run as lost after it.", .value = &run_timeout_text},
    {.name = "faults", .argument = "FILE", .help = "What goes wrong, when and where (CSV).", .value = &faults_path},
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
    {.name = "list", .help = "Print the policies and where they come from, and what is shipped.", .flag = &list},
};

static const struct md_command command = {
    .name = "medusa-simulate",
    .usage = "--node FILE|NAME --functions FILE|NAME --trace FILE|LAW [--policy NAME,...] [--json FILE] [--html FILE]",
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
	struct md_sim_policy changed[POLICIES_MAX]; /* policies that the command line changes */
	char names[POLICIES_MAX][32], summaries[POLICIES_MAX][512];
	struct md_sim_result results[POLICIES_MAX];
	size_t policy_count, result_count;
	uint32_t count, gpus; /* numbers of functions and GPUs; 0: as the files have them */
	bool from_trace;      /* the functions are those that the trace names */
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

/* ---- changes of policies ---- */

static const char *const kind_names[5] = {"queueing", "placement", "eviction", "batching", "preloading"};

static const char **kind_of(struct md_sim_policy *policy, int kind)
{
	const char **fields[5] = {&policy->queueing, &policy->placement, &policy->eviction, &policy->batching,
				  &policy->preloading};
	return fields[kind];
}

static int check_kinds(void)
{
	for (int kind = 0; kind < 5; kind++) {
		size_t count, i = 0;
		const struct medusa_sched_policy *known = medusa_sched_policies((enum medusa_sched_kind)kind, &count);
		while (kinds[kind] && i < count && strcmp(known[i].name, kinds[kind]))
			i++;
		if (kinds[kind] && i == count)
			return md_options_usage_error(&command, "--%s: there is no '%s'; docs/scheduler.md lists them",
						      kind_names[kind], kinds[kind]);
	}
	return -1;
}

static int take_time(const char *name, const char *text, uint64_t *ns)
{
	const char *wrong = text ? md_units_time(text, ns) : NULL;
	if (text && (wrong || !*ns))
		return md_options_usage_error(&command, "--%s %s: %s", name, text, wrong ? wrong : "more than 0");
	return -1;
}

/* The values that all policies of the run share; 0: not given. */
static int take_tuning(struct md_sim_policy *tuning)
{
	uint64_t queue = 0, retries = 0, batch = 0;
	int result;
	if ((result = take_integer("max-queue", max_queue_text, UINT32_MAX, &queue)) >= 0 ||
	    (result = take_integer("retries", retries_text, 1000, &retries)) >= 0 ||
	    (result = take_integer("fixed-batch", batch_text, 65536, &batch)) >= 0 ||
	    (result = take_time("fixed-delay", delay_text, &tuning->fixed_delay_ns)) >= 0 ||
	    (result = take_time("preload-period", preload_period_text, &tuning->preload_period_ns)) >= 0 ||
	    (result = take_time("transfer-timeout", transfer_timeout_text, &tuning->transfer_timeout_ns)) >= 0 ||
	    (result = take_time("run-timeout", run_timeout_text, &tuning->run_timeout_ns)) >= 0 ||
	    (result = take_time("max-wait", max_wait_text, &tuning->max_wait_ns)) >= 0)
		return result;
	const char *wrong = residency_text ? md_units_number(residency_text, &tuning->residency_per_switch) : NULL;
	if (residency_text && (wrong || tuning->residency_per_switch <= 0))
		return md_options_usage_error(&command, "--residency %s: %s", residency_text,
					      wrong ? wrong : "more than 0");
	if ((max_queue_text && !queue) || (batch_text && !batch))
		return md_options_usage_error(&command, "--%s 0: more than 0",
					      batch_text && !batch ? "fixed-batch" : "max-queue");
	tuning->max_queue = (uint32_t)queue;
	tuning->retries = (uint32_t)retries;
	tuning->fixed_batch = (uint32_t)batch;
	return -1;
}

/* The name gets a star if the policy is no longer what its name says, and the summary says what was changed. */
static void rename_policy(struct run *run, size_t at, bool other)
{
	struct md_sim_policy *policy = &run->changed[at];
	char *summary = run->summaries[at];
	size_t used = 0, room = sizeof(run->summaries[at]);
	snprintf(run->names[at], sizeof(run->names[at]), "%s%s", policy->name, other ? "*" : "");
	for (int kind = 0; kind < 5; kind++)
		if (kinds[kind])
			used += (size_t)snprintf(summary + used, room - used, "With %s %.20s. ", kind_names[kind],
						 kinds[kind]);
	snprintf(summary + used, room - used, "%s", policy->summary);
	policy->name = run->names[at];
	policy->summary = summary;
}

static int change_policy(struct run *run, size_t at, const struct md_sim_policy *tuning)
{
	struct md_sim_policy *policy = &run->changed[at];
	bool other = false, any = tuning->max_wait_ns || tuning->preload_period_ns || tuning->transfer_timeout_ns ||
				  tuning->run_timeout_ns || tuning->max_queue || retries_text || residency_text;
	*policy = *run->policies[at];
	for (int kind = 0; kind < 5; kind++) {
		other |= kinds[kind] != NULL;
		if (kinds[kind])
			*kind_of(policy, kind) = kinds[kind];
	}
	if (policy->early_binding && (other || any || faults_path || batch_text || delay_text))
		return md_options_usage_error(
		    &command, "--policy %s: options of the scheduler and faults have no effect on it", policy->name);
	other |= batch_text || delay_text;
	policy->fixed_batch = tuning->fixed_batch ? tuning->fixed_batch : policy->fixed_batch;
	policy->fixed_delay_ns = delay_text ? tuning->fixed_delay_ns : policy->fixed_delay_ns;
	policy->max_wait_ns = tuning->max_wait_ns;
	policy->preload_period_ns = tuning->preload_period_ns;
	policy->transfer_timeout_ns = tuning->transfer_timeout_ns;
	policy->run_timeout_ns = tuning->run_timeout_ns;
	policy->max_queue = tuning->max_queue;
	policy->retries = tuning->retries;
	policy->residency_per_switch = tuning->residency_per_switch;
	if ((batch_text || delay_text) && strcmp(policy->batching, "fixed"))
		return md_options_usage_error(&command, "--%s has no effect on %s, whose batching is %s",
					      batch_text ? "fixed-batch" : "fixed-delay", policy->name,
					      policy->batching);
	if (residency_text && strcmp(policy->eviction, "medusa"))
		return md_options_usage_error(&command, "--residency has no effect on %s, whose eviction is %s",
					      policy->name, policy->eviction);
	if (preload_period_text && strcmp(policy->preloading, "none") == 0)
		return md_options_usage_error(&command, "--preload-period has no effect on %s, which preloads nothing",
					      policy->name);
	if (strcmp(policy->batching, "fixed") == 0 && !policy->fixed_batch)
		return md_options_usage_error(&command, "--batching fixed: --fixed-batch is needed for %s",
					      policy->name);
	rename_policy(run, at, other);
	run->policies[at] = policy;
	return -1;
}

static int change_policies(struct run *run)
{
	struct md_sim_policy tuning = {0};
	int result;
	if ((result = check_kinds()) >= 0 || (result = take_tuning(&tuning)) >= 0)
		return result;
	for (size_t i = 0; i < run->policy_count; i++)
		if ((result = change_policy(run, i, &tuning)) >= 0)
			return result;
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

/* The functions of the file; or, if the trace names models and adapters, one for each of those. */
static enum md_status read_functions(struct run *run, struct md_error *err)
{
	MD_AUTO_FREE char *path = NULL;
	MD_FORWARD(md_shipped_find("functions", functions_path, &path, err));
	MD_FORWARD(md_sim_functions_read(path, &run->functions, err));
	MD_FORWARD(md_sim_functions_of_trace(trace, &run->functions, &run->from_trace, err));
	uint32_t count = run->count && !run->from_trace ? run->count : run->functions.count;
	return md_sim_functions_resize(&run->functions, count, run->arrivals.seed, err);
}

static enum md_status read_inputs(struct run *run, struct md_error *err)
{
	MD_AUTO_FREE char *path = NULL;
	MD_FORWARD(md_shipped_find("nodes", node_path, &path, err));
	MD_FORWARD(md_sim_node_read(path, &run->node, err));
	if (run->gpus)
		MD_FORWARD(md_sim_node_resize(&run->node, run->gpus, err));
	run->arrivals.node = &run->node;
	MD_FORWARD(read_functions(run, err));
	MD_FORWARD(md_sim_workload_read(trace, &run->functions, &run->arrivals, &run->workload, err));
	if (faults_path)
		MD_FORWARD(md_sim_faults_read(faults_path, &run->node, &run->functions, &run->workload, err));
	return MD_OK;
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
	int result = MD_EXIT_OK;
	for (size_t i = 0; i < run->result_count; i++) {
		if (!run->results[i].unfinished)
			continue;
		md_options_say(&command, "%s left %" PRIu64 " requests unfinished", run->policies[i]->name,
			       run->results[i].unfinished);
		result = MD_EXIT_FAILED;
	}
	return result;
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
	for (int i = 0; i < 2; i++) {
		MD_AUTO_FREE char *names = md_shipped_names(i ? "functions" : "nodes");
		if (names && *names)
			printf("\n--%s by name: %s\n", i ? "functions" : "node", names);
	}
	return md_options_flush(&command);
}

/* What the user may not expect of the inputs; nothing is ignored in silence. */
static void say_unused(const struct run *run)
{
	const struct md_sim_workload *workload = &run->workload;
	if (workload->reordered)
		md_options_say(&command, "%s: not sorted by time; its requests were sorted", trace);
	if (run->count && run->from_trace)
		md_options_say(&command, "--count has no effect: %s says which functions there are", trace);
	if (mapping_text && !workload->mapped)
		md_options_say(&command, "--mapping has no effect: %s says whose each request is", trace);
	if (workload->fault_count && workload->faults[workload->fault_count - 1].now > workload->end)
		md_options_say(&command, "%s: some faults come after the last request", faults_path);
}

static int run_all(struct run *run)
{
	struct md_error err = {0};
	int result;
	if (read_inputs(run, &err) != MD_OK)
		return md_options_report(&command, &err);
	say_unused(run);
	if (simulate(run, &err) != MD_OK)
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
	if ((result = take_numbers(&run)) >= 0 || (result = take_policies(&run)) >= 0 ||
	    (result = change_policies(&run)) >= 0)
		return result;
	result = run_all(&run);
	for (size_t i = 0; i < run.result_count; i++)
		md_sim_result_finish(&run.results[i]);
	md_sim_workload_finish(&run.workload);
	md_sim_functions_finish(&run.functions);
	md_sim_node_finish(&run.node);
	return result;
}
