/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-verify: runs an engine and compares each restored graph with the one the engine captured live. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "format/artifact/artifact.h"
#include "tools/cache_unpack.h"
#include "tools/engine_device.h"
#include "tools/options.h"
#include "tools/stop.h"
#include "tools/tolerance.h"
#include "tools/verify_report.h"

static const char *junit_path, *until;
static const char *nondeterministic, *device;
static struct md_tolerance tolerance;
static struct md_cache_wish caches;
static bool as_json, allow_uncompared, accept_unvaried, stop;

static const struct md_option options[] = {
    {.name = "junit", .argument = "FILE", .help = "Write JUnit XML, one test case a graph.", .value = &junit_path},
    {.name = "nondeterministic", .argument = "ULPS", .help = MD_TOLERANCE_HELP, .value = &nondeterministic},
    MD_CACHE_OPTIONS(caches),
    MD_DEVICE_OPTION(device),
    {.name = "accept-unvaried",
     .help = "Accept graphs whose inputs held the same bytes in every comparison.",
     .flag = &accept_unvaried},
    {.name = "allow-uncompared",
     .help = "Graphs that were not compared do not fail the run.",
     .flag = &allow_uncompared},
    {.name = "until",
     .argument = "WHEN",
     .help = "When everything is compared: exit, graphs=N or mark=NAME; default: mark=complete, which also ends "
	     "CMD.",
     .value = &until},
    {.name = "stop", .help = MD_STOP_HELP, .flag = &stop},
    {.name = "json", .help = "Print the result as JSON.", .flag = &as_json},
};

static const struct md_command command = {
    .name = "medusa-verify",
    .usage = "X.medusa [OPTION...] -- CMD [ARG...]",
    .summary = "Runs CMD, lets it capture its graphs live, and compares each with the restored one.",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .exit_notes = "Exit code 1 also means that a graph was not compared (unless --allow-uncompared), that a graph "
		  "is\nnondeterministic (unless --nondeterministic), or that the report was cut short.\n",
};

/* Before the engine is started: is there anything to verify? -1 to go on. */
static int check_artifact(const char *path)
{
	struct md_artifact artifact;
	struct md_error error = {0};
	uint32_t graphs;
	if (md_artifact_read(path, &artifact, NULL, &error) != MD_OK) {
		md_options_report_file(&command, path, &error);
		return MD_EXIT_INPUT;
	}
	graphs = artifact.graph_count;
	bool doubtful = md_artifact_doubtful(&artifact) != NULL;
	md_artifact_finish(&artifact);
	if (doubtful) {
		md_options_say(&command, "%s has doubtful words, which only medusa-capture can settle: capture again",
			       path);
		return MD_EXIT_INPUT;
	}
	if (graphs)
		return -1;
	md_options_say(&command, "%s holds no graphs", path);
	return MD_EXIT_EMPTY;
}

/* report NULL: there is none, and why. */
static int write_junit(const struct md_verify_report *report, const char *why)
{
	FILE *out = junit_path ? md_file_open_output(junit_path) : NULL;
	bool failed = !out;
	if (!junit_path)
		return MD_EXIT_OK;
	if (out) {
		if (report)
			md_verify_print_junit(report, out);
		else
			md_verify_print_junit_error(why, out);
		failed = ferror(out) != 0;
		failed |= fclose(out) != 0;
	}
	if (!failed)
		return MD_EXIT_OK;
	md_options_say(&command, "%s: %s", junit_path, strerror(errno));
	return MD_EXIT_COMMAND;
}

static bool has_end(void)
{
	return until && strcmp(until, "exit");
}

static int conclude(const struct md_verify_report *report)
{
	bool missed = false;
	if (md_verify_count(report, MD_VERIFY_FAILED))
		return MD_EXIT_FAILED;
	if (report->exit_code && !(report->complete && (until ? has_end() : report->reached))) {
		md_options_say(&command, "the command ended with %d; " MD_REPEAT_OWN, report->exit_code);
		return MD_EXIT_COMMAND;
	}
	if (md_verify_doubtful(report)) {
		md_options_say(&command, "%s", md_verify_doubtful(report));
		return MD_EXIT_FAILED;
	}
	if (md_verify_count(report, MD_VERIFY_NONDETERMINISTIC) && !tolerance.given)
		return MD_EXIT_FAILED;
	for (size_t i = 0; i < report->graph_count; i++)
		missed |= md_verify_missed(report, &report->graphs[i]);
	return missed ? MD_EXIT_FAILED : MD_EXIT_OK;
}

static int verify_in(const struct md_workplace *workplace, const char *path, char *const argv[])
{
	struct md_verify_report report;
	static struct md_repeat repeat;
	struct md_error error = {0};
	enum md_status status = md_repeat_init(&repeat, &command, workplace, &error);
	int result;
	md_verify_accept_unvaried(accept_unvaried);
	repeat.stop = stop || !until;
	if (status == MD_OK)
		status = md_verify_run(path, argv, &repeat, &report, &error);
	md_repeat_finish(&repeat);
	if (md_stop_signal()) {
		if (status == MD_OK)
			md_verify_finish(&report);
		return 128 + md_stop_signal();
	}
	if (status != MD_OK) {
		md_options_say(&command, "%s", error.message);
		write_junit(NULL, error.message);
		return MD_EXIT_COMMAND;
	}
	report.tolerance = tolerance;
	report.allow_uncompared = report.allow_strangers = allow_uncompared;
	if (as_json)
		md_verify_print_json(&report, stdout);
	else
		md_verify_print_table(&report, stdout);
	result = md_options_flush(&command);
	int junit = write_junit(&report, NULL), verdict = conclude(&report);
	md_verify_finish(&report);
	return verdict == MD_EXIT_FAILED ? verdict : result ? result : junit ? junit : verdict;
}

/* Errors that can be found before the engine runs are reported before. */
static int verify(const char *path, char *const argv[])
{
	static struct md_workplace workplace; /* large, as all that holds paths */
	struct md_error error = {0};
	md_stop_watch();
	setenv("MEDUSA_UNTIL", until ? until : MD_UNTIL_COMPLETE, 1);
	if ((junit_path && md_output_check_report(junit_path, &error) != MD_OK) ||
	    md_workplace_open_temporary(&workplace, &error) != MD_OK) {
		md_options_say(&command, "%s", error.message);
		return MD_EXIT_COMMAND;
	}
	int result = verify_in(&workplace, path, argv);
	md_stop_hold();
	md_workplace_close(&workplace);
	md_stop_release();
	return result;
}

int main(int argc, char *argv[])
{
	struct md_arguments arguments;
	int result = md_options_parse(&command, argc, argv, &arguments);
	if (result >= 0)
		return result;
	if (arguments.file_count != 1)
		return md_options_usage_error(&command, "name one artifact, not %zu", arguments.file_count);
	if (!arguments.command)
		return md_options_usage_error(&command, "put the command that starts the engine after --");
	if (has_end() && strncmp(until, "graphs=", 7) && strncmp(until, "mark=", 5))
		return md_options_usage_error(&command, "--until: \"%s\" is none of exit, graphs=N, mark=NAME", until);
	if (stop && !has_end())
		return md_options_usage_error(&command, MD_STOP_USAGE);
	result = md_tolerance_take(&command, nondeterministic, &tolerance);
	if (result < 0)
		result = md_cache_wish_check(&command, &caches);
	if (result < 0)
		result = check_artifact(arguments.files[0]);
	if (result < 0)
		result = md_device_choose(&command, device);
	if (result >= 0)
		return result;
	md_cache_unpack(&command, arguments.files[0], &caches); /* as a cold start does */
	return verify(arguments.files[0], arguments.command);
}
