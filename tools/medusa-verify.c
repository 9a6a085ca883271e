/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-verify: runs an engine and compares each restored graph with the one the engine captured live. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "format/artifact/artifact.h"
#include "ranks/rank_bundle.h"
#include "tools/cache_unpack.h"
#include "tools/engine_device.h"
#include "tools/options.h"
#include "tools/run_limit.h"
#include "tools/stop.h"
#include "tools/tolerance.h"
#include "tools/verify_report.h"

static const char *junit_path, *until, *timeout;
static uint64_t limit_ns;
static const char *nondeterministic, *device;
static struct md_tolerance tolerance;
static struct md_cache_wish caches;
static bool late, as_json, allow_uncompared, accept_unvaried, stop;

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
    {.name = "timeout", .argument = "SECONDS", .help = MD_TIMEOUT_HELP, .value = &timeout},
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

/* ---- before the engine is started: is there anything to verify? -1 to go on ---- */

static int check_file(const char *path)
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

static int check_bundled(const char *folder, const struct md_bundle *bundle, uint32_t rank)
{
	char path[PATH_MAX];
	struct md_error error = {0};
	struct md_hash identity = {0};
	if (!md_bundle_artifact(folder, rank, path)) {
		md_options_say(&command, "%s: the path is too long", folder);
		return MD_EXIT_INPUT;
	}
	int result = check_file(path);
	if (result >= 0)
		return result;
	if (md_artifact_identity(path, &identity, &error) != MD_OK) {
		md_options_say(&command, "%s", error.message);
		return MD_EXIT_INPUT;
	}
	if (md_hash_equal(&identity, &bundle->artifacts[rank]))
		return -1;
	md_options_say(&command, "%s: not the artifact that the bundle was made with for rank %u", path, rank);
	return MD_EXIT_INPUT;
}

static int check_artifact(const char *path, uint32_t *ranks)
{
	struct md_bundle bundle;
	struct md_error error = {0};
	int result = -1;
	*ranks = 0;
	if (!md_bundle_is(path))
		return check_file(path);
	if (md_bundle_read(path, &bundle, &error) != MD_OK) {
		md_options_say(&command, "%s", error.message);
		return MD_EXIT_INPUT;
	}
	*ranks = bundle.ranks;
	if (md_bundle_check_launched(path, &error) != MD_OK)
		return md_options_usage_error(&command, "%s", error.message);
	for (uint32_t i = 0; i < bundle.ranks && result < 0; i++)
		result = check_bundled(path, &bundle, i);
	return result;
}

/* reports NULL: there are none, and why. */
static int write_junit(const struct md_verify_report *reports, uint32_t ranks, const char *why)
{
	FILE *out = junit_path ? md_file_open_output(junit_path) : NULL;
	bool failed = !out;
	if (!junit_path)
		return MD_EXIT_OK;
	if (out) {
		if (reports)
			md_verify_print_junit(reports, ranks, out);
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

/* rank: "rank 0: ", or "" without a bundle */
static int conclude(const struct md_verify_report *report, const char *rank)
{
	bool missed = false;
	if (md_verify_count(report, MD_VERIFY_FAILED))
		return MD_EXIT_FAILED;
	if (late) /* which was said */
		return MD_EXIT_COMMAND;
	if (report->exit_code && !(report->complete && (until ? has_end() : report->reached))) {
		md_options_say(&command, "%sthe command ended with %d; " MD_REPEAT_OWN, rank, report->exit_code);
		return MD_EXIT_COMMAND;
	}
	if (md_verify_doubtful(report)) {
		md_options_say(&command, "%s%s", rank, md_verify_doubtful(report));
		return MD_EXIT_FAILED;
	}
	if (md_verify_count(report, MD_VERIFY_NONDETERMINISTIC) && !tolerance.given)
		return MD_EXIT_FAILED;
	for (size_t i = 0; i < report->graph_count; i++)
		missed |= md_verify_missed(report, &report->graphs[i]);
	return missed ? MD_EXIT_FAILED : MD_EXIT_OK;
}

/* A graph of any rank that failed weighs more than a command that did. */
static int conclude_all(struct md_verify_report *reports, uint32_t ranks)
{
	int verdict = MD_EXIT_OK;
	char rank[24] = "";
	for (uint32_t i = 0; !i || i < ranks; i++) {
		if (ranks)
			snprintf(rank, sizeof(rank), "rank %u: ", i);
		int one = conclude(&reports[i], rank);
		verdict = verdict == MD_EXIT_FAILED || one == MD_EXIT_OK ? verdict : one;
	}
	return verdict;
}

static void finish_all(struct md_verify_report *reports, uint32_t ranks)
{
	for (uint32_t i = 0; !i || i < ranks; i++)
		md_verify_finish(&reports[i]);
}

static int report_all(struct md_verify_report *reports, uint32_t ranks)
{
	for (uint32_t i = 0; !i || i < ranks; i++) {
		reports[i].tolerance = tolerance;
		reports[i].allow_uncompared = reports[i].allow_strangers = allow_uncompared;
	}
	if (as_json)
		md_verify_print_json(reports, ranks, stdout);
	else
		md_verify_print_table(reports, ranks, stdout);
	int result = md_options_flush(&command);
	int junit = write_junit(reports, ranks, NULL), verdict = conclude_all(reports, ranks);
	return verdict == MD_EXIT_FAILED ? verdict : result ? result : junit ? junit : verdict;
}

static int verify_in(const struct md_workplace *workplace, const char *path, uint32_t ranks, char *const argv[])
{
	static struct md_verify_report reports[MD_RANKS_MOST]; /* large */
	static struct md_repeat repeat;
	struct md_error error = {0};
	enum md_status status = md_repeat_init(&repeat, &command, workplace, &error);
	md_verify_accept_unvaried(accept_unvaried);
	repeat.stop = stop || !until;
	repeat.limit_ns = limit_ns;
	if (status == MD_OK)
		status = md_verify_run(path, ranks, argv, &repeat, reports, &error);
	late = repeat.late;
	md_repeat_finish(&repeat);
	if (md_stop_signal()) {
		if (status == MD_OK)
			finish_all(reports, ranks);
		return 128 + md_stop_signal();
	}
	if (status != MD_OK) {
		md_options_say(&command, "%s", error.message);
		write_junit(NULL, 0, error.message);
		return MD_EXIT_COMMAND;
	}
	int result = report_all(reports, ranks);
	finish_all(reports, ranks);
	return result;
}

/* Errors that can be found before the engine runs are reported before. */
static int verify(const char *path, uint32_t ranks, char *const argv[])
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
	int result = verify_in(&workplace, path, ranks, argv);
	md_stop_hold();
	md_workplace_close(&workplace);
	md_stop_release();
	return result;
}

int main(int argc, char *argv[])
{
	struct md_arguments arguments;
	uint32_t ranks = 0;
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
		result = md_run_limit_take(&command, timeout, &limit_ns);
	if (result < 0)
		result = md_cache_wish_check(&command, &caches);
	if (result < 0)
		result = check_artifact(arguments.files[0], &ranks);
	if (result < 0)
		result = md_device_choose(&command, device);
	if (result >= 0)
		return result;
	char with_caches[PATH_MAX];
	if (ranks && md_bundle_artifact(arguments.files[0], 0, with_caches))
		md_cache_unpack(&command, with_caches, &caches);
	else
		md_cache_unpack(&command, arguments.files[0], &caches); /* as a cold start does */
	return verify(arguments.files[0], ranks, arguments.command);
}
