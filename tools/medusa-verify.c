/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-verify: runs an engine and compares each restored graph with the one the engine captured live. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/artifact.h"
#include "tools/options.h"
#include "tools/verify_report.h"

static const char *junit_path;
static bool as_json, allow_nondeterministic;

static const struct md_option options[] = {
    {.name = "junit", .argument = "FILE", .help = "Write JUnit XML, one test case a graph.", .value = &junit_path},
    {.name = "allow-nondeterministic",
     .help = "Graphs that differ only where live ones differ among themselves count as verified.",
     .flag = &allow_nondeterministic},
    {.name = "json", .help = "Print the result as JSON.", .flag = &as_json},
};

static const struct md_command command = {
    .name = "medusa-verify",
    .usage = "X.medusa [--junit FILE] [--json] [--allow-nondeterministic] -- CMD [ARG...]",
    .summary = "Runs CMD, lets it capture its graphs live, and compares each with the restored one.",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .exit_notes = "A graph that could not be compared counts as not verified (1), and so does a\n"
		  "nondeterministic one without --allow-nondeterministic.\n",
};

/* Before the engine is started: is there anything to verify? -1 to go on. */
static int check_artifact(const char *path)
{
	struct md_artifact artifact;
	struct md_error error = {0};
	uint32_t graphs;

	if (md_artifact_read(path, &artifact, NULL, &error) != MD_OK) {
		fprintf(stderr, "%s: %s\n", command.name, error.message);
		return MD_EXIT_INPUT;
	}
	graphs = artifact.graph_count;
	md_artifact_finish(&artifact);
	if (graphs)
		return -1;
	fprintf(stderr, "%s: %s holds no graphs\n", command.name, path);
	return MD_EXIT_EMPTY;
}

static int write_junit(const struct md_verify_report *report)
{
	FILE *out = fopen(junit_path, "w");
	bool failed = !out;

	if (out) {
		md_verify_print_junit(report, out);
		failed = ferror(out) != 0;
		failed |= fclose(out) != 0;
	}
	if (!failed)
		return MD_EXIT_OK;
	fprintf(stderr, "%s: %s: %s\n", command.name, junit_path, strerror(errno));
	return MD_EXIT_COMMAND;
}

static int conclude(const struct md_verify_report *report)
{
	if (md_verify_count(report, MD_VERIFY_FAILED))
		return MD_EXIT_FAILED;
	if (report->exit_code) {
		fprintf(stderr, "%s: the command ended with %d\n", command.name, report->exit_code);
		return MD_EXIT_COMMAND;
	}
	if (md_verify_count(report, MD_VERIFY_NONDETERMINISTIC) && !allow_nondeterministic)
		return MD_EXIT_FAILED;
	return md_verify_count(report, MD_VERIFY_SKIPPED) ? MD_EXIT_FAILED : MD_EXIT_OK;
}

static int verify(const char *path, char *const argv[])
{
	struct md_verify_report report;
	struct md_error error = {0};
	int result = MD_EXIT_OK;

	if (md_verify_run(path, argv, &report, &error) != MD_OK) {
		fprintf(stderr, "%s: %s\n", command.name, error.message);
		return MD_EXIT_COMMAND;
	}
	if (as_json)
		md_verify_print_json(&report, stdout);
	else
		md_verify_print_table(&report, stdout);
	if (junit_path)
		result = write_junit(&report);
	if (result == MD_EXIT_OK)
		result = conclude(&report);
	md_verify_finish(&report);
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
		return md_options_usage_error(&command, "put the command that starts the engine behind --");
	result = check_artifact(arguments.files[0]);
	return result >= 0 ? result : verify(arguments.files[0], arguments.command);
}
