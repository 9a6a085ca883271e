/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-analyze: makes an artifact of one or two traces of the same warm start. */
#include <inttypes.h>
#include <stdio.h>

#include "analyze/analyze.h"
#include "base/clock.h"
#include "base/plain.h"
#include "tools/options.h"
#include "tools/stop.h"

static const char *out_path;
static struct md_argument_list vary;
static bool single, no_images, store_images, accept_process_values, refuse_unset, accept_unvaried, verbose;

static const struct md_option options[] = {
    {.name = "output", .letter = 'o', .argument = "FILE", .help = "The artifact to write.", .value = &out_path},
    {.name = "single",
     .help = "One trace: words that point into live memory count as pointers, unproven.",
     .flag = &single},
    {.name = "no-images",
     .help = "Store and reference no kernel images: restore needs triggering kernels.",
     .flag = &no_images},
    {.name = "store-images", .help = "Store images that lie in a file, too.", .flag = &store_images},
    {.name = "vary",
     .argument = "PATTERN",
     .list = &vary,
     .help = "Arguments of the engine that may differ at a cold start; may be repeated."},
    {.name = "accept-process-values", .help = MD_PROCESS_VALUES_HELP, .flag = &accept_process_values},
    {.name = "refuse-unset", .help = MD_REFUSE_UNSET_HELP, .flag = &refuse_unset},
    {.name = "accept-unvaried",
     .flag = &accept_unvaried,
     .help = "Accept graphs that read memory which other kernels may write, if it never varied."},
    {.name = "verbose", .letter = 'v', .help = "Print how long each pass took.", .flag = &verbose},
};

static const struct md_command command = {
    .name = "medusa-analyze",
    .usage = "-o OUT.medusa FIRST.mtrace [SECOND.mtrace] [OPTION...]",
    .summary = "Makes an artifact from two traces of an engine's warm starts (from one, with --single).",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .exit_notes =
	"Graphs that were left out are named on stderr (exit code 1); the artifact is written without them.\n",
};

static void say_time(void *user, const char *pass, uint64_t ns)
{
	(void)user;
	if (verbose)
		fprintf(stderr, "  %-12s %9.3f ms\n", pass, (double)ns / 1e6);
}

/* Every graph that is missing in the artifact is named, with the reason. */
static int conclude(const struct md_artifact *artifact, const struct md_artifact_sizes *sizes)
{
	for (uint32_t i = 0; i < artifact->refusal_count; i++)
		md_options_say(&command, "left out: %s/%" PRIu32 ": %s",
			       artifact->refusals[i].label ? artifact->refusals[i].label : "(no label)",
			       artifact->refusals[i].batch, artifact->refusals[i].why);
	md_plain_line(stdout, "%s: %" PRIu32 " graphs, %" PRIu32 " left out, %" PRIu64 " bytes", out_path,
		      artifact->graph_count, artifact->refusal_count, sizes->file);
	if (md_options_flush(&command) != MD_EXIT_OK)
		return MD_EXIT_COMMAND;
	if (!artifact->graph_count && !artifact->refusal_count) {
		md_options_say(&command, "the traces hold no graphs");
		return MD_EXIT_EMPTY;
	}
	return artifact->refusal_count ? MD_EXIT_FAILED : MD_EXIT_OK;
}

static int write_artifact(const struct md_artifact *artifact)
{
	struct md_artifact_sizes sizes = {0};
	struct md_error err = {0};
	uint64_t start = md_clock_ns();
	md_stop_hold(); /* until the file has its name, or is gone */
	enum md_status status = md_artifact_write(artifact, out_path, &sizes, &err);
	md_stop_release();
	if (status != MD_OK)
		return md_options_report_file(&command, out_path, &err);
	say_time(NULL, "write", md_clock_ns() - start);
	return conclude(artifact, &sizes);
}

static int analyze(const struct md_trace *first, const struct md_trace *second)
{
	const struct md_analyze_options how = {.size = sizeof(how),
					       .no_images = no_images,
					       .store_file_images = store_images,
					       .pass_done = say_time,
					       .vary = &vary,
					       .accept_process_values = accept_process_values,
					       .refuse_unset = refuse_unset,
					       .accept_unvaried = accept_unvaried};
	struct md_artifact artifact;
	struct md_error err = {0};
	int result;
	if (md_analyze(first, second, &how, &artifact, &err) != MD_OK) {
		result = md_options_report(&command, &err);
		return result == MD_EXIT_FAILED ? MD_EXIT_INPUT : result; /* the traces do not belong together */
	}
	result = write_artifact(&artifact);
	md_artifact_finish(&artifact);
	return result;
}

static int read_and_analyze(const struct md_arguments *arguments)
{
	struct md_trace traces[2];
	struct md_error err = {0};
	uint64_t start = md_clock_ns();
	size_t count = arguments->file_count, failed = 0;
	enum md_status status = count == 2
				    ? md_trace_read_two((const char *const *)arguments->files, traces, &failed, &err)
				    : md_trace_read(arguments->files[0], &traces[0], &err);
	if (status != MD_OK)
		return md_options_report_file(&command, arguments->files[failed], &err);
	say_time(NULL, "read", md_clock_ns() - start);
	int result = analyze(&traces[0], count == 2 ? &traces[1] : NULL);
	while (count)
		md_trace_finish(&traces[--count]);
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
	if (arguments.command)
		return md_options_usage_error(&command, "this command starts no engine: nothing may follow --");
	if (!out_path)
		return md_options_usage_error(&command, "-o FILE is needed");
	if (no_images && store_images)
		return md_options_usage_error(&command, "--no-images and --store-images exclude each other");
	if (single && (accept_process_values || refuse_unset))
		return md_options_usage_error(&command, "--%s: with --single nothing is compared",
					      refuse_unset ? "refuse-unset" : "accept-process-values");
	if (arguments.file_count != (single ? 1 : 2))
		return md_options_usage_error(&command, single ? "--single takes one trace"
							       : "two traces are needed (or one, with --single)");
	if (md_analyze_time(created, &err) != MD_OK)
		return md_options_usage_error(&command, "%s", err.message);
	return read_and_analyze(&arguments);
}
