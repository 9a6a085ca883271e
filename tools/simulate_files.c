/* SPDX-License-Identifier: Apache-2.0 */
/* The files of medusa-simulate: what it reads, what it must not write over, and what of its inputs has no effect. */
#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "simulator/workload/fault_file.h"
#include "simulator/workload/laws.h"
#include "simulator/workload/trace_functions.h"
#include "tools/shipped.h"
#include "tools/simulate.h"

/* ---- inputs ---- */

/* The functions of the file; or, if the trace names models and adapters, one for each of those. */
static enum md_status read_functions(struct md_simulate *run, struct md_error *err)
{
	MD_FORWARD(md_shipped_find("functions", run->given->functions, &run->paths[1], err));
	MD_FORWARD(md_sim_functions_read(run->paths[1], &run->functions, err));
	MD_FORWARD(md_sim_functions_of_trace(run->given->trace, &run->functions, &run->from_trace, err));
	uint32_t count = run->count && !run->from_trace ? run->count : run->functions.count;
	return md_sim_functions_resize(&run->functions, count, run->arrivals.seed, err);
}

enum md_status md_simulate_read(struct md_simulate *run, struct md_error *err)
{
	const struct md_simulate_given *given = run->given;
	MD_FORWARD(md_shipped_find("nodes", given->node, &run->paths[0], err));
	MD_FORWARD(md_sim_node_read(run->paths[0], &run->node, err));
	if (run->gpus)
		MD_FORWARD(md_sim_node_resize(&run->node, run->gpus, err));
	run->arrivals.node = &run->node;
	MD_FORWARD(read_functions(run, err));
	MD_FORWARD(md_sim_workload_read(given->trace, &run->functions, &run->arrivals, &run->workload, err));
	if (given->faults)
		MD_FORWARD(md_sim_faults_read(given->faults, &run->node, &run->functions, &run->workload, err));
	return given->cluster ? md_simulate_read_cluster(run, err) : MD_OK;
}

void md_simulate_forget_inputs(struct md_simulate *run)
{
	md_sim_workload_finish(&run->workload);
	md_sim_functions_finish(&run->functions);
	md_sim_node_finish(&run->node);
	md_sim_cluster_finish(&run->cluster);
	for (int i = 0; i < 3; i++) {
		free(run->paths[i]);
		run->paths[i] = NULL;
	}
}

/* ---- outputs ---- */

/* The folder of a path that may not exist yet; false: there is none. */
static bool stat_folder(const char *path, struct stat *folder)
{
	MD_AUTO_FREE char *copy = strdup(path);
	return copy && stat(dirname(copy), folder) == 0;
}

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* Whether two paths are, or would be, one file. */
static bool same_file(const char *a, const char *b)
{
	struct stat left, right;
	bool there = stat(a, &left) == 0;
	if ((stat(b, &right) == 0) != there)
		return false;
	if (!there && (strcmp(last_part(a), last_part(b)) || !stat_folder(a, &left) || !stat_folder(b, &right)))
		return false;
	return left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

static int check_output(const struct md_simulate *run, const char *option, const char *output)
{
	const struct md_simulate_given *given = run->given;
	const struct {
		const char *option, *path;
	} inputs[] = {
	    {"--node", run->paths[0]},
	    {"--functions", run->paths[1]},
	    {"--trace", md_sim_law_find(given->trace) ? NULL : given->trace},
	    {"--faults", given->faults},
	    {"--cluster", run->paths[2]},
	};
	struct stat folder;
	if (!output)
		return -1;
	if (!*output)
		return md_options_usage_error(given->command, "--%s '': a file is expected, or - for stdout", option);
	if (!stat_folder(output, &folder)) { /* said before all is simulated, and not after it */
		md_options_say(given->command, "--%s %s: its folder: %s", option, output, strerror(errno));
		return MD_EXIT_COMMAND;
	}
	for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++)
		if (inputs[i].path && same_file(output, inputs[i].path))
			return md_options_usage_error(given->command,
						      "--%s %s: that is the file of %s, which would be lost; name "
						      "another one",
						      option, output, inputs[i].option);
	for (uint32_t i = 0; i < run->functions.artifact_count; i++)
		if (same_file(output, run->functions.artifacts[i]))
			return md_options_usage_error(given->command,
						      "--%s %s: that is an artifact of %s, which would be lost; name "
						      "another file",
						      option, output, run->paths[1]);
	return -1;
}

int md_simulate_check_outputs(const struct md_simulate *run)
{
	const struct md_simulate_given *given = run->given;
	int result;
	if (given->json && given->html &&
	    (strcmp(given->json, given->html) == 0 || same_file(given->json, given->html)))
		return md_options_usage_error(given->command, "--json and --html: %s for both; name two files",
					      given->json);
	if ((result = check_output(run, "json", given->json)) >= 0)
		return result;
	return check_output(run, "html", given->html);
}

/* ---- remarks ---- */

/* A policy that is the same as another one, because the files lack what tells them apart. */
static void remark_on_policy(const struct md_simulate *run, const struct md_sim_policy *policy)
{
	const struct md_command *command = run->given->command;
	bool captures = false;
	for (uint32_t i = 0; i < run->functions.count; i++)
		captures |= run->functions.functions[i].capture_ns > 0;
	if (policy->no_artifacts && !captures)
		md_options_say(command,
			       "%s: no function has a capture_time, so its contexts take context_time as "
			       "without " MD_SIM_CAPTURE,
			       policy->name);
	if (policy->no_blocks && !run->node.allocation_ns)
		md_options_say(command, "%s: the node has no allocation_time, so allocations take no time",
			       policy->name);
	if (policy->early_binding && run->functions.tenant_count)
		md_options_say(command, "%s: it knows no tenants; their weights and limits have no effect on it",
			       policy->name);
	if (policy->no_sharing && !run->functions.backbone_count)
		md_options_say(command, "%s: no function has a backbone, so there is nothing to be shared",
			       policy->name);
}

static void remark_on_replicas(const struct md_simulate *run, const struct md_sim_function *function)
{
	uint32_t wanted = function->spec.min_replicas, gpus = run->node.gpu_count;
	if (wanted > gpus && !run->gpus_least)
		md_options_say(run->given->command, "function %s: min_replicas is %u, and the node has %u %s: %s",
			       function->name, wanted, gpus, gpus == 1 ? "GPU" : "GPUs",
			       gpus == 1 ? "that one holds it" : "all of them hold it");
}

void md_simulate_remark(const struct md_simulate *run)
{
	const struct md_simulate_given *given = run->given;
	const struct md_sim_workload *workload = &run->workload;
	if (workload->reordered)
		md_options_say(given->command, "%s: not sorted by time; its requests were sorted", given->trace);
	if (workload->gap_ns)
		md_options_say(given->command,
			       "%s:%u: %.0f days without a request lie between this one and that of line %u; is its "
			       "time right?",
			       given->trace, workload->gap_lines[0], (double)workload->gap_ns / 86400e9,
			       workload->gap_lines[1]);
	if (run->count && run->from_trace)
		md_options_say(given->command, "--count has no effect: %s says which functions there are",
			       given->trace);
	if (given->mapping && !workload->mapped)
		md_options_say(given->command, "--mapping has no effect: %s says whose each request is", given->trace);
	if (workload->fault_count && workload->faults[workload->fault_count - 1].now > workload->end)
		md_options_say(given->command, "%s: some faults come after the last request", given->faults);
	for (uint32_t i = 0; i < run->functions.count; i++)
		remark_on_replicas(run, &run->functions.functions[i]);
	for (size_t i = 0; i < run->policy_count; i++)
		remark_on_policy(run, run->policies[i]);
}
