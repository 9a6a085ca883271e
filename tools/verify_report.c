/* SPDX-License-Identifier: Apache-2.0 */
/* Runs an engine in verify mode, reads the restore library's report and applies it to the artifact. */
#include "tools/verify_report.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "format/verify_line.h"
#include "ranks/rank_bundle.h"
#include "tools/run.h"
#include "tools/run_limit.h"
#include "tools/told.h"

#define LINE_MAX_BYTES (32u << 20) /* a label of the greatest length that a file may hold, with each byte escaped */

static const char never_compared[] = "the engine never instantiated a graph of this label and batch size";
static const char unlabelled[] =
    "it carries no label, by which a cold start asks for it: take it through medusa.torch.Graphs, or label it "
    "(medusa_graph_label); graphs of torch.compile's mode reduce-overhead never have one (medusa-torch(7), "
    "TORCH.COMPILE)";
static const char cut_short[] = "the verify run ended early";
static const char never_ended[] = "the engine ended while this graph was being compared";

/* ---- reading ---- */

static enum md_status add_graph(struct md_verify_report *report, const char *label, uint32_t batch, bool stranger,
				struct md_error *err)
{
	struct md_verify_graph graph = {.label = strdup(label), .batch = batch, .stranger = stranger};
	bool room = MD_ARRAY_EXTEND(report->graphs, report->graph_count);
	if (room)
		report->graphs[report->graph_count++] = graph;
	else
		free(graph.label);
	if (!room || !graph.label)
		return md_error_set(err, MD_ERR_NO_MEMORY, "verify report: out of memory for graph %s/%u", label,
				    batch);
	return MD_OK;
}

static enum md_status add_graphs(const struct md_artifact *artifact, struct md_verify_report *report,
				 struct md_error *err)
{
	for (uint32_t i = 0; i < artifact->graph_count; i++) {
		const struct md_artifact_graph *graph = &artifact->graphs[i];
		MD_FORWARD(add_graph(report, graph->label ? graph->label : "", graph->batch, false, err));
	}
	return MD_OK;
}

struct md_verify_graph *md_verify_find(const struct md_verify_report *report, const char *label, uint32_t batch)
{
	for (size_t i = 0; i < report->graph_count; i++)
		if (report->graphs[i].batch == batch && !strcmp(report->graphs[i].label, label))
			return &report->graphs[i];
	return NULL;
}

static enum md_verify_outcome outcome_of(enum md_verdict verdict)
{
	return verdict == MD_VERDICT_PASS               ? MD_VERIFY_PASSED
	       : verdict == MD_VERDICT_FAIL             ? MD_VERIFY_FAILED
	       : verdict == MD_VERDICT_NONDETERMINISTIC ? MD_VERIFY_NONDETERMINISTIC
							: MD_VERIFY_SKIPPED;
}

static unsigned weight_of(enum md_verify_outcome outcome)
{
	static const unsigned weights[] = {
	    [MD_VERIFY_PASSED] = 0, [MD_VERIFY_NONDETERMINISTIC] = 1, [MD_VERIFY_SKIPPED] = 2, [MD_VERIFY_FAILED] = 3};
	return weights[outcome];
}

/* Keeps the first reason of those with the greatest weight. */
static bool keep_reason(struct md_verify_graph *graph, enum md_verify_outcome outcome, const char *reason)
{
	char *copy;
	if (outcome == MD_VERIFY_PASSED || (graph->reason && weight_of(outcome) <= weight_of(graph->reason_of)))
		return true;
	copy = strdup(*reason ? reason : "no reason given");
	if (!copy)
		return false;
	free(graph->reason);
	graph->reason = copy;
	graph->reason_of = outcome;
	return true;
}

/* No comparison was expected of these graphs: they were left out, for a reason that the artifact holds. */
static bool was_left_out(const struct md_artifact *artifact, const char *label, uint32_t batch)
{
	for (uint32_t i = 0; i < artifact->refusal_count; i++) {
		const struct md_artifact_refusal *refusal = &artifact->refusals[i];
		if (refusal->batch == batch && !strcmp(refusal->label ? refusal->label : "", label))
			return true;
	}
	return false;
}

static enum md_status take_begins(const struct md_verify_line *line, const struct md_artifact *artifact,
				  struct md_verify_graph *graph, struct md_error *err)
{
	if (line->bytes >= artifact->binding_count)
		return md_error_set(err, MD_ERR_CORRUPT, "a binding has an index that is too large");
	if (!MD_ARRAY_EXTEND(graph->begins, graph->begins_count))
		return md_error_set(err, MD_ERR_NO_MEMORY, "verify report: out of memory for bindings");
	graph->begins[graph->begins_count++] = (uint32_t)line->bytes;
	return MD_OK;
}

/* Verdicts that say what a graph needs besides comparisons. */
static bool is_of_proof(enum md_verdict verdict)
{
	return verdict == MD_VERDICT_OWED || verdict == MD_VERDICT_SETTLED;
}

static enum md_status take_owed(const struct md_verify_line *line, struct md_verify_graph *graph, struct md_error *err)
{
	char *owed = line->verdict == MD_VERDICT_OWED ? strdup(line->reason) : NULL;
	if (line->verdict == MD_VERDICT_OWED && !owed)
		return md_error_set(err, MD_ERR_NO_MEMORY, "verify report: out of memory for a reason");
	free(graph->owed);
	graph->owed = owed;
	return MD_OK;
}

static enum md_status count_line(const struct md_verify_line *line, const struct md_artifact *artifact,
				 struct md_verify_graph *graph, struct md_error *err)
{
	enum md_verify_outcome outcome = outcome_of(line->verdict);
	if (line->verdict == MD_VERDICT_BEGUN) {
		graph->begun++;
		return MD_OK;
	}
	if (line->verdict == MD_VERDICT_NOISE) {
		if (line->bytes >= MD_DOUBTFUL_MAX)
			return md_error_set(err, MD_ERR_CORRUPT, "a doubtful word has an index that is too large");
		graph->noise[line->bytes / 64] |= UINT64_C(1) << line->bytes % 64;
		return MD_OK;
	}
	if (is_of_proof(line->verdict))
		return take_owed(line, graph, err);
	if (line->verdict == MD_VERDICT_BEGINS)
		return take_begins(line, artifact, graph, err);
	graph->begun -= graph->begun != 0;
	if (line->verdict == MD_VERDICT_DROPPED)
		return MD_OK;
	if (!keep_reason(graph, outcome, line->reason))
		return md_error_set(err, MD_ERR_NO_MEMORY, "verify report: out of memory for a reason");
	graph->comparisons++;
	graph->passed += outcome == MD_VERIFY_PASSED;
	graph->nondeterministic += outcome == MD_VERIFY_NONDETERMINISTIC;
	graph->bytes += line->bytes;
	if (outcome == MD_VERIFY_FAILED)
		graph->outcome = MD_VERIFY_FAILED;
	return MD_OK;
}

static enum md_status take_line(char *text, size_t size, const struct md_artifact *artifact,
				struct md_verify_report *report, struct md_error *err)
{
	struct md_verify_line line;
	struct md_verify_graph *graph;
	MD_FORWARD(md_verify_line_read(text, size, &line, err));
	if (line.verdict == MD_VERDICT_UNTIL) {
		report->reached = true;
		return MD_OK;
	}
	if (line.verdict == MD_VERDICT_END) {
		report->complete = true; /* a child process of the engine may have a report of its own */
		return MD_OK;
	}
	graph = md_verify_find(report, line.label, line.batch);
	if (!graph && (is_of_proof(line.verdict) || was_left_out(artifact, line.label, line.batch)))
		return MD_OK;
	if (!graph &&
	    (line.verdict == MD_VERDICT_PASS || line.verdict == MD_VERDICT_BEGUN || line.verdict == MD_VERDICT_NOISE ||
	     line.verdict == MD_VERDICT_BEGINS || line.verdict == MD_VERDICT_DROPPED))
		return md_error_set(err, MD_ERR_CORRUPT, "compares graph %.200s/%u, which the artifact does not hold",
				    line.label, line.batch);
	if (!graph) {
		MD_FORWARD(add_graph(report, line.label, line.batch, true, err));
		graph = &report->graphs[report->graph_count - 1];
	}
	return count_line(&line, artifact, graph, err);
}

static enum md_status take_lines(FILE *in, const struct md_artifact *artifact, struct md_verify_report *report,
				 struct md_error *err)
{
	MD_AUTO_FREE char *line = NULL;
	size_t room = 0;
	bool whole = true;
	ssize_t size;
	for (size_t number = 1; whole && (size = getline(&line, &room, in)) >= 0; number++) {
		if (size > (ssize_t)LINE_MAX_BYTES)
			return md_error_set(err, MD_ERR_TOO_LARGE, "verify report, line %zu: longer than %u bytes",
					    number, LINE_MAX_BYTES);
		whole = size && line[size - 1] == '\n'; /* otherwise the writer was killed while it wrote the line */
		if (!whole)
			break;
		line[size - 1] = '\0';
		if (take_line(line, (size_t)size - 1, artifact, report, err) != MD_OK)
			return md_error_prefix(err, "verify report, line %zu", number);
	}
	if (ferror(in))
		return md_error_set(err, MD_ERR_IO, "verify report: %s", strerror(errno));
	report->complete &= whole;
	return MD_OK;
}

/* If an engine labels no graph, the analysis names graphs by their number, with batch size 0. */
static bool has_made_up_name(const struct md_verify_graph *graph)
{
	static const char prefix[] = "graph/";
	const char *number = graph->label + sizeof(prefix) - 1;
	return !graph->batch && !strncmp(graph->label, prefix, sizeof(prefix) - 1) && *number &&
	       strspn(number, "0123456789") == strlen(number);
}

static enum md_status conclude(struct md_verify_report *report, struct md_error *err)
{
	for (size_t i = 0; i < report->graph_count; i++) {
		struct md_verify_graph *graph = &report->graphs[i];
		if (graph->begun && graph->outcome != MD_VERIFY_FAILED) {
			graph->outcome = MD_VERIFY_FAILED;
			if (!keep_reason(graph, MD_VERIFY_FAILED, never_ended))
				return md_error_set(err, MD_ERR_NO_MEMORY, "verify report: out of memory for a reason");
		}
		if (graph->owed && !keep_reason(graph, MD_VERIFY_SKIPPED, graph->owed))
			return md_error_set(err, MD_ERR_NO_MEMORY, "verify report: out of memory for a reason");
		if (graph->outcome != MD_VERIFY_FAILED && graph->comparisons && !graph->owed &&
		    graph->passed + graph->nondeterministic == graph->comparisons)
			graph->outcome = graph->nondeterministic ? MD_VERIFY_NONDETERMINISTIC : MD_VERIFY_PASSED;
		if (!graph->reason)
			graph->reason = strdup(graph->outcome == MD_VERIFY_PASSED ? ""
					       : !report->complete                ? cut_short
					       : has_made_up_name(graph)          ? unlabelled
										  : never_compared);
		if (!graph->reason)
			return md_error_set(err, MD_ERR_NO_MEMORY, "verify report: out of memory for a reason");
	}
	return MD_OK;
}

enum md_status md_verify_parse(FILE *in, const struct md_artifact *artifact, struct md_verify_report *out,
			       struct md_error *err)
{
	struct md_verify_report report = {0};
	enum md_status status = add_graphs(artifact, &report, err);
	if (status == MD_OK)
		status = take_lines(in, artifact, &report, err);
	if (status == MD_OK)
		status = conclude(&report, err);
	if (status != MD_OK) {
		md_verify_finish(&report);
		return status;
	}
	*out = report;
	return MD_OK;
}

void md_verify_finish(struct md_verify_report *report)
{
	for (size_t i = 0; i < report->graph_count; i++) {
		free(report->graphs[i].label);
		free(report->graphs[i].reason);
		free(report->graphs[i].owed);
		free(report->graphs[i].begins);
	}
	free(report->graphs);
	*report = (struct md_verify_report){0};
}

/* ---- running ---- */

static bool has_verdict(const char *path, enum md_verdict verdict)
{
	MD_AUTO_FREE char *text = NULL;
	MD_AUTO_FILE FILE *in = fopen(path, "re");
	struct md_verify_line line;
	size_t room = 0;
	ssize_t size;
	while (in && (size = getline(&text, &room, in)) > 0) {
		if (text[size - 1] != '\n')
			return false;
		text[size - 1] = 0;
		if (md_verify_line_read(text, (size_t)size - 1, &line, NULL) == MD_OK && line.verdict == verdict)
			return true;
	}
	return false;
}

struct run { /* of a bundle, the reports have the rank behind this path */
	const char *artifact, *report;
	uint32_t ranks; /* 0: no bundle */
	struct md_repeat *repeat;
	struct md_quiet quiet;
	bool said_quiet, over; /* over: everything was compared when the time for the run had passed */
};

static void report_of(const struct run *run, uint32_t rank, char path[PATH_MAX])
{
	int length = snprintf(path, PATH_MAX, "%.*s", PATH_MAX - 32, run->report);
	if (run->ranks)
		snprintf(path + length, 32, ".rank-%u", rank);
}

static enum md_run_left report_left(const char *report)
{
	struct stat info;
	if (stat(report, &info) || has_verdict(report, MD_VERDICT_END))
		return MD_RUN_OVER;
	return info.st_size ? MD_RUN_AT_WORK : MD_RUN_UNKNOWN;
}

/* An engine that becomes a daemon goes on comparing after the command has ended. */
static enum md_run_left comparing_left(void *user, pid_t *pid)
{
	const struct run *run = user;
	enum md_run_left all = MD_RUN_OVER;
	char report[PATH_MAX];
	*pid = 0;
	for (uint32_t i = 0; all != MD_RUN_AT_WORK && (!i || i < run->ranks); i++) {
		report_of(run, i, report);
		enum md_run_left left = report_left(report);
		all = left == MD_RUN_OVER ? all : left;
	}
	return all;
}

static bool is_compared(void *user)
{
	const struct run *run = user;
	char report[PATH_MAX];
	for (uint32_t i = 0; !i || i < run->ranks; i++) {
		report_of(run, i, report);
		if (!has_verdict(report, MD_VERDICT_UNTIL) || !has_verdict(report, MD_VERDICT_END))
			return false;
	}
	return true;
}

static bool may_end(void *user)
{
	const struct run *run = user;
	return md_repeat_is_lost(run->repeat) || (run->repeat->stop && is_compared(user));
}

static void say_told(const struct run *run)
{
	static struct md_told told; /* large */
	md_told_read(run->repeat->told, &told);
	for (unsigned i = 0; i < told.count; i++)
		md_options_say(run->repeat->command, "plug-in %s", told.lines[i]);
}

static void say_late(void *user)
{
	struct run *run = user;
	double seconds = (double)run->repeat->limit_ns / 1e9;
	run->over = is_compared(run);
	if (run->over) {
		md_options_say(
		    run->repeat->command,
		    "everything is compared, and the command has not ended after %g s (--timeout): it is ended "
		    "(--stop ends it sooner)",
		    seconds);
		return;
	}
	md_options_say(run->repeat->command,
		       "%g s have passed (--timeout), and not everything has been compared that is to be compared: the "
		       "command is ended",
		       seconds);
	say_told(run);
}

/* Comparisons have begun, and the engine does nothing more. */
static void look(void *user)
{
	struct run *run = user;
	uint64_t limit = run->repeat->limit_ns, bytes = 0;
	char report[PATH_MAX], when[64] = "";
	struct stat info;
	for (uint32_t i = 0; !i || i < run->ranks; i++) {
		report_of(run, i, report);
		bytes += stat(report, &info) ? 0 : (uint64_t)info.st_size;
	}
	uint64_t quiet = md_quiet_for(&run->quiet, md_clock_ns(), bytes);
	if (run->said_quiet || !bytes || quiet < md_quiet_most(limit))
		return;
	run->said_quiet = true;
	if (limit)
		snprintf(when, sizeof(when), ", and --timeout after %g s", (double)limit / 1e9);
	md_options_say(run->repeat->command,
		       "nothing was compared for %.0f s, and the command goes on: Ctrl-C gives up%s",
		       (double)quiet / 1e9, when);
	say_told(run);
}

static enum md_status empty_reports(const struct run *run, struct md_error *err)
{
	char report[PATH_MAX];
	for (uint32_t i = 0; !i || i < run->ranks; i++) {
		report_of(run, i, report);
		if (truncate(report, 0))
			return md_error_set(err, MD_ERR_IO, "%s: %s", report, strerror(errno));
	}
	return MD_OK;
}

static enum md_status run_engine(struct run *own, char *const argv[], struct md_repeat *repeat, int *exit_code,
				 struct md_error *err)
{
	enum md_repeat_outcome outcome = MD_REPEAT_AGAIN;
	static char artifact[PATH_MAX + 32], report[PATH_MAX + 32], absolute[PATH_MAX];
	const char *const env[] = {artifact, report, "MEDUSA_VERIFY=1", "MEDUSA_STOP=1"};
	struct md_run run = {.preload = "libmedusa-restore.so",
			     .env = env,
			     .env_count = sizeof(env) / sizeof(env[0]) - !repeat->stop,
			     .argv = argv,
			     .left = comparing_left,
			     .done = may_end,
			     .look = look,
			     .late = say_late,
			     .user = own};
	if (!realpath(own->artifact, absolute))
		return md_error_set(err, MD_ERR_IO, "%s: %s", own->artifact, strerror(errno));
	snprintf(artifact, sizeof(artifact), "MEDUSA_ARTIFACT=%s", absolute);
	snprintf(report, sizeof(report), "MEDUSA_VERIFY_REPORT=%s", own->report);
	while (outcome == MD_REPEAT_AGAIN) {
		MD_FORWARD(empty_reports(own, err));
		MD_FORWARD(md_repeat_run(repeat, &run, STDERR_FILENO, exit_code, &outcome, err));
	}
	repeat->late &= !own->over;
	if (outcome == MD_REPEAT_GIVEN_UP)
		return md_error_set(err, MD_ERR_UNPROVABLE, "the verification run was given up");
	return MD_OK;
}

static enum md_status parse_report(FILE *in, const char *artifact_path, int exit_code, struct md_verify_report *out,
				   struct md_error *err)
{
	struct md_artifact artifact;
	MD_FORWARD(md_artifact_read(artifact_path, &artifact, NULL, err));
	enum md_status status = md_verify_parse(in, &artifact, out, err);
	md_artifact_finish(&artifact);
	if (status == MD_OK)
		out->exit_code = exit_code;
	return status;
}

static enum md_status parse_rank(const struct run *run, FILE *in, uint32_t rank, int exit_code,
				 struct md_verify_report *out, struct md_error *err)
{
	char artifact[PATH_MAX];
	if (!run->ranks)
		return parse_report(in, run->artifact, exit_code, out, err);
	if (!md_bundle_artifact(run->artifact, rank, artifact))
		return md_error_set(err, MD_ERR_INVALID, "%.200s...: the path is too long", run->artifact);
	return parse_report(in, artifact, exit_code, out, err);
}

void md_verify_accept_unvaried(bool accept)
{
	if (accept)
		setenv("MEDUSA_ACCEPT_UNVARIED", "1", 1);
	else
		unsetenv("MEDUSA_ACCEPT_UNVARIED"); /* a setting left in the environment does not count */
}

/* The reports are opened before the engine can write over them. */
static enum md_status open_reports(const struct run *run, const struct md_workplace *workplace, FILE **in,
				   struct md_error *err)
{
	char name[32], suffix[32], path[PATH_MAX], report[PATH_MAX];
	for (uint32_t i = 0; !i || i < run->ranks; i++) {
		snprintf(name, sizeof(name), "report");
		snprintf(suffix, sizeof(suffix), run->ranks ? ".jsonl.rank-%u" : ".jsonl", i);
		MD_FORWARD(md_workplace_file(workplace, name, suffix, path, err));
		report_of(run, i, report);
		in[i] = fopen(report, "re");
		if (!in[i])
			return md_error_set(err, MD_ERR_IO, "%s: %s", report, strerror(errno));
	}
	return MD_OK;
}

enum md_status md_verify_run(const char *artifact_path, uint32_t ranks, char *const argv[], struct md_repeat *repeat,
			     struct md_verify_report *out, struct md_error *err)
{
	static char report[PATH_MAX];
	static FILE *in[MD_RANKS_MOST];
	struct run run = {.artifact = artifact_path, .report = report, .ranks = ranks, .repeat = repeat};
	uint32_t parsed = 0, count = ranks ? ranks : 1;
	int exit_code = 0;
	snprintf(report, sizeof(report), "%.*s/report-%s.jsonl", PATH_MAX - 64, repeat->workplace->folder,
		 repeat->workplace->secret);
	enum md_status status = open_reports(&run, repeat->workplace, in, err);
	if (status == MD_OK)
		status = run_engine(&run, argv, repeat, &exit_code, err);
	for (; status == MD_OK && parsed < count; parsed++) {
		status = parse_rank(&run, in[parsed], parsed, exit_code, &out[parsed], err);
		if (status != MD_OK && ranks)
			md_error_prefix(err, "rank %u", parsed);
		if (status != MD_OK)
			break;
	}
	for (uint32_t i = 0; status != MD_OK && i < parsed; i++)
		md_verify_finish(&out[i]);
	for (uint32_t i = 0; i < count; i++) {
		if (in[i])
			fclose(in[i]);
		in[i] = NULL;
	}
	return status;
}
