/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-capture: records an engine's warm start twice, analyzes the traces, verifies by replay,
 * writes the artifact. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/analyze.h"
#include "tools/cache_pack.h"
#include "tools/capture_job.h"
#include "tools/engine_device.h"
#include "tools/run_limit.h"
#include "tools/stop.h"

static struct md_job_wish wish;
static const char *device, *cache_limit, *timeout;
static uint64_t limit_ns;

static const struct md_option options[] = {
    {.name = "output",
     .letter = 'o',
     .argument = "FILE",
     .value = &wish.output,
     .help = "The artifact to write; a folder if CMD starts several ranks."},
    {.name = "until",
     .argument = "WHEN",
     .value = &wish.until,
     .help = "When recording ends: exit, graphs=N or mark=NAME; default: mark=complete, which also ends CMD."},
    {.name = "stop", .flag = &wish.stop, .help = MD_STOP_HELP},
    {.name = "timeout", .argument = "SECONDS", .value = &timeout, .help = MD_TIMEOUT_HELP},
    {.name = "vary",
     .argument = "PATTERN",
     .list = &wish.vary,
     .help = "Arguments (--port=*) that may differ at a cold start; may be repeated."},
    {.name = "with-cache",
     .argument = "DIR",
     .list = &wish.with_cache,
     .help = "Pack this folder of a compiler's cache; VARIABLE=DIR names it; may be repeated."},
    {.name = "cache-limit",
     .argument = "BYTES",
     .value = &cache_limit,
     .help = "The most bytes that these folders may have (300M, 2G; default: 1G)."},
    {.name = "second",
     .argument = "COMMAND",
     .value = &wish.second,
     .help = "A shell command for the second capture: the same engine with other weights."},
    {.name = "single", .flag = &wish.single, .help = "One capture alone: pointers are guessed, not proven."},
    {.name = "keep-traces", .flag = &wish.keep_traces, .help = "Keep the traces beside the artifact."},
    {.name = "store-images", .flag = &wish.store_images, .help = "Store also images that lie in files."},
    {.name = "no-images",
     .flag = &wish.no_images,
     .help = "Store and reference no images: a restore needs triggering kernels."},
    {.name = "no-verify",
     .flag = &wish.no_verify,
     .help = "Leave out the run that compares restored with live graphs."},
    {.name = "nondeterministic", .argument = "ULPS", .value = &wish.nondeterministic, .help = MD_TOLERANCE_HELP},
    MD_DEVICE_OPTION(device),
    {.name = "accept-unvaried",
     .flag = &wish.accept_unvaried,
     .help = "Accept graphs whose inputs, bound or not, always held the same bytes."},
    {.name = "accept-process-values", .flag = &wish.accept_process_values, .help = MD_PROCESS_VALUES_HELP},
    {.name = "refuse-unset", .flag = &wish.refuse_unset, .help = MD_REFUSE_UNSET_HELP},
    {.name = "allow-uncompared",
     .flag = &wish.allow_uncompared,
     .help = "Keep graphs that this run did not compare; the artifact says so."},
};

static const struct md_command command = {
    .name = "medusa-capture",
    .usage = "-o X.medusa [OPTION...] -- CMD [ARG...]",
    .summary = "Materializes the CUDA graphs of CMD's warm start.",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .exit_notes = "Exit code 1 means that some graphs were not materialized; they are listed with the reason.\n",
};

static bool valid_until(void)
{
	const char *until = wish.until;
	char *end;
	if (!until || !strcmp(until, "exit"))
		return true;
	if (!strncmp(until, "mark=", 5))
		return until[5] != 0;
	return !strncmp(until, "graphs=", 7) && until[7] >= '1' && until[7] <= '9' &&
	       (strtoull(until + 7, &end, 10), *end == 0);
}

static int carry_out(struct md_job *job)
{
	struct md_error err = {0};
	int result = -1;
	if (md_repeat_init(&job->repeat, &command, &job->workplace, &err) != MD_OK)
		result = md_job_fail(job, &err, MD_EXIT_COMMAND);
	job->repeat.stop = wish.stop || md_job_asks_engine(job);
	job->repeat.limit_ns = limit_ns;
	if (result < 0)
		result = md_job_capture(job, 0);
	if (result < 0)
		result = md_job_check_caches(job);
	if (result < 0 && !wish.single)
		result = md_job_capture(job, 1);
	if (result < 0)
		result = md_job_check_caches(job);
	if (result < 0)
		result = md_job_analyze(job);
	if (result < 0)
		result = md_job_verify(job);
	return result < 0 ? md_job_publish(job) : result;
}

static void clean_up(struct md_job *job)
{
	for (uint32_t at = 0; at < job->rank_count; at++) {
		struct md_job_rank *rank = &job->ranks[at];
		for (unsigned i = 0; i < rank->run_count; i++)
			md_trace_finish(&rank->runs[i]);
		if (rank->analyzed)
			md_artifact_finish(&rank->artifact);
	}
	md_repeat_finish(&job->repeat);
	md_stop_hold();
	if (!md_stop_signal() && (wish.keep_traces || job->traces_needed))
		md_job_keep_traces(job);
	md_workplace_close(&job->workplace);
	md_stop_release();
}

/* Before the engine is started: it would run for nothing if neither traces nor artifact could be written. */
static int work(char **argv)
{
	struct md_job *job = calloc(1, sizeof(*job));
	struct md_error err = {0};
	int result;
	if (!job || !(job->ranks = calloc(1, sizeof(*job->ranks)))) {
		md_options_say(&command, "out of memory for a capture");
		free(job);
		return MD_EXIT_COMMAND;
	}
	job->rank_count = 1;
	job->at = job->ranks;
	job->command = &command;
	job->wish = &wish;
	job->argv = argv;
	md_stop_watch();
	if (md_workplace_open(wish.output, &job->workplace, &err) != MD_OK) {
		result = md_options_report(&command, &err);
	} else {
		result = carry_out(job);
		clean_up(job);
	}
	free(job->ranks);
	free(job);
	return result;
}

int main(int argc, char *argv[])
{
	struct md_arguments arguments;
	char created[MD_ANALYZE_TIME_BYTES];
	struct md_error err = {0};
	int result = md_options_parse(&command, argc, argv, &arguments);
	if (result >= 0)
		return result;
	if (!wish.output)
		return md_options_usage_error(&command, "name the artifact to write with -o");
	if (strlen(wish.output) > PATH_MAX - 32)
		return md_options_usage_error(&command, "-o: the path is too long");
	if (arguments.file_count)
		return md_options_usage_error(&command, "%s: the artifact is named with -o", arguments.files[0]);
	if (!arguments.command)
		return md_options_usage_error(&command, "put the command that starts the engine after --");
	if (!valid_until() || (wish.until && strlen(wish.until) > 400))
		return md_options_usage_error(&command, "--until: \"%s\" is none of exit, graphs=N, mark=NAME",
					      wish.until);
	if (wish.stop && (!wish.until || !strcmp(wish.until, "exit")))
		return md_options_usage_error(&command, MD_STOP_USAGE);
	if (wish.single && wish.second)
		return md_options_usage_error(&command, "--single and --second exclude each other");
	if (wish.store_images && wish.no_images)
		return md_options_usage_error(&command, "--store-images and --no-images exclude each other");
	if (wish.accept_unvaried && (wish.no_verify || wish.single))
		return md_options_usage_error(&command,
					      "--accept-unvaried: with --no-verify or --single nothing is compared");
	if (wish.single && (wish.accept_process_values || wish.refuse_unset))
		return md_options_usage_error(&command, "--%s: with --single nothing is compared",
					      wish.refuse_unset ? "refuse-unset" : "accept-process-values");
	if (wish.allow_uncompared && (wish.no_verify || wish.single))
		return md_options_usage_error(&command,
					      "--allow-uncompared: with --no-verify or --single nothing is compared");
	if (md_analyze_time(created, &err) != MD_OK)
		return md_options_usage_error(&command, "%s", err.message);
	wish.cache_limit = MD_CACHE_LIMIT;
	if (cache_limit && md_cache_limit_parse(cache_limit, &wish.cache_limit, &err) != MD_OK)
		return md_options_usage_error(&command, "--cache-limit: %s", err.message);
	result = md_tolerance_take(&command, wish.nondeterministic, &wish.tolerance);
	if (result < 0)
		result = md_run_limit_take(&command, timeout, &limit_ns);
	if (result < 0)
		result = md_device_choose(&command, device);
	return result >= 0 ? result : work(arguments.command);
}
