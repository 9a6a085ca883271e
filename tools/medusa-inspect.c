/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-inspect: shows what an artifact or a trace holds, and turns an artifact into text and back. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "tools/diff.h"
#include "tools/inspect.h"
#include "tools/options.h"
#include "tools/stop.h"

static bool as_json, as_text, as_diff;
static const char *from_text, *out_path, *graph_name;

static const struct md_option options[] = {
    {.name = "json", .help = "Print JSON.", .flag = &as_json},
    {.name = "text", .help = "Print the text twin: every field, one item a line.", .flag = &as_text},
    {.name = "graph", .argument = "LABEL/BATCH", .help = "List the nodes of one graph.", .value = &graph_name},
    {.name = "diff", .help = "Print what differs between two artifacts; 1 if anything does.", .flag = &as_diff},
    {.name = "from-text",
     .argument = "FILE",
     .help = "Make an artifact from a text twin ('-' is stdin).",
     .value = &from_text},
    {.name = "output", .letter = 'o', .argument = "OUT", .help = "Where --from-text writes it.", .value = &out_path},
};

static const struct md_command command = {
    .name = "medusa-inspect",
    .usage = "FILE [--json | --text] [--graph LABEL/BATCH] | --diff A B [--json] | --from-text FILE -o OUT",
    .summary = "Shows what an artifact (.medusa) or a trace (.mtrace) holds.",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
};

static int report_file(const char *path, const struct md_error *err)
{
	return md_options_report_file(&command, path, err);
}

static int make_artifact(void)
{
	MD_AUTO_FILE FILE *opened = strcmp(from_text, "-") == 0 ? NULL : fopen(from_text, "r");
	FILE *in = strcmp(from_text, "-") == 0 ? stdin : opened;
	struct md_artifact artifact;
	struct md_error err = {0};
	enum md_status status;
	if (!in) {
		md_options_say(&command, "%s: %s", from_text, strerror(errno));
		return MD_EXIT_INPUT;
	}
	if (md_artifact_parse_text(in, &artifact, &err) != MD_OK)
		return report_file(from_text, &err);
	md_stop_hold(); /* until the file has its name, or is gone */
	status = md_artifact_write(&artifact, out_path, NULL, &err);
	md_stop_release();
	md_artifact_finish(&artifact);
	return status == MD_OK ? MD_EXIT_OK : report_file(out_path, &err);
}

static int show_text(const char *path, const struct md_artifact *artifact)
{
	struct md_error err = {0};
	if (md_artifact_print_text(artifact, stdout, &err) == MD_OK)
		return MD_EXIT_OK;
	return ferror(stdout) ? md_options_flush(&command) : report_file(path, &err);
}

static int show_graph(const char *path, const struct md_artifact *artifact)
{
	const struct md_artifact_graph *graph = md_inspect_find(artifact, graph_name);
	if (!graph) {
		md_options_say(&command, "%s holds no graph '%s' (write LABEL/BATCH)", path, graph_name);
		return MD_EXIT_USAGE;
	}
	if (as_json)
		md_inspect_graph_json(artifact, graph, stdout);
	else
		md_inspect_graph(artifact, graph, stdout);
	return MD_EXIT_OK;
}

static int inspect_artifact(const char *path)
{
	struct md_artifact artifact;
	struct md_artifact_sizes sizes = {0};
	struct md_error err = {0};
	int result = MD_EXIT_OK;
	if (md_artifact_read(path, &artifact, &sizes, &err) != MD_OK)
		return report_file(path, &err);
	if (graph_name)
		result = show_graph(path, &artifact);
	else if (as_text)
		result = show_text(path, &artifact);
	else if (as_json)
		md_inspect_json(path, &artifact, &sizes, stdout);
	else
		md_inspect_print(path, &artifact, &sizes, stdout);
	md_artifact_finish(&artifact);
	return result;
}

static int show_diff(const struct md_artifact *a, const struct md_artifact *b, char *const paths[2])
{
	struct md_diff diff;
	int result = MD_EXIT_COMMAND;
	if (!md_diff_artifacts(a, b, &diff)) {
		md_options_say(&command, "out of memory for the differences");
	} else {
		if (as_json)
			md_diff_print_json(&diff, paths[0], paths[1], stdout);
		else
			md_diff_print(&diff, paths[0], paths[1], stdout);
		result = md_options_flush(&command);
		if (result == MD_EXIT_OK && diff.real)
			result = MD_EXIT_FAILED;
	}
	md_diff_finish(&diff);
	return result;
}

static int diff_artifacts(char *const paths[2])
{
	struct md_artifact a, b;
	struct md_error err = {0};
	int result;
	if (md_artifact_read(paths[0], &a, NULL, &err) != MD_OK)
		return report_file(paths[0], &err);
	if (md_artifact_read(paths[1], &b, NULL, &err) == MD_OK) {
		result = show_diff(&a, &b, paths);
		md_artifact_finish(&b);
	} else {
		result = report_file(paths[1], &err);
	}
	md_artifact_finish(&a);
	return result;
}

static int inspect_trace(const char *path)
{
	struct md_trace trace;
	struct md_error err = {0};
	if (as_text || graph_name)
		return md_options_usage_error(&command, "%s is a trace: --text and --graph are for artifacts", path);
	if (md_trace_read(path, &trace, &err) != MD_OK)
		return report_file(path, &err);
	if (as_json)
		md_inspect_trace_json(path, &trace, stdout);
	else
		md_inspect_trace(path, &trace, stdout);
	md_trace_finish(&trace);
	return MD_EXIT_OK;
}

/* Recognized by its magic; anything else is left to the artifact's reader, which says what is wrong. */
static bool is_trace(const char *path)
{
	MD_AUTO_FD int fd = -1;
	uint64_t size;
	char magic[8];
	return md_file_open(path, UINT64_MAX, &fd, &size, NULL) == MD_OK &&
	       md_file_read_at(fd, 0, magic, sizeof(magic), NULL) == MD_OK && memcmp(magic, "MDTRACE", 8) == 0;
}

int main(int argc, char *argv[])
{
	struct md_arguments arguments;
	int result = md_options_parse(&command, argc, argv, &arguments);
	if (result >= 0)
		return result;
	if (arguments.command)
		return md_options_usage_error(&command, "this command starts no engine: nothing may follow --");
	if (as_json && as_text)
		return md_options_usage_error(&command, "--json and --text exclude each other");
	if (from_text || out_path) {
		if (!from_text || !out_path || arguments.file_count)
			return md_options_usage_error(&command,
						      "--from-text FILE and -o OUT go together, without another file");
		return make_artifact();
	}
	if (as_diff) {
		if (arguments.file_count != 2 || graph_name || as_text)
			return md_options_usage_error(&command, "--diff takes two artifacts, and no --graph or --text");
		return diff_artifacts(arguments.files);
	}
	if (arguments.file_count != 1)
		return md_options_usage_error(&command, "exactly one file is needed");
	if (graph_name && as_text)
		return md_options_usage_error(&command, "--graph and --text exclude each other");
	result =
	    is_trace(arguments.files[0]) ? inspect_trace(arguments.files[0]) : inspect_artifact(arguments.files[0]);
	return result == MD_EXIT_OK ? md_options_flush(&command) : result;
}
