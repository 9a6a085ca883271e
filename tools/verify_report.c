/* SPDX-License-Identifier: Apache-2.0 */
/* Runs an engine in verify mode, reads the restore library's report and applies it to the artifact. */
#include "tools/verify_report.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tools/run.h"

#define LINE_MAX_BYTES 65536
#define FIELDS 5

static const char never_compared[] = "the engine never instantiated a graph of this label and batch size";
static const char cut_short[] = "not compared: the verify run ended early";

/* ---- reading ---- */

static enum md_status add_graphs(const struct md_artifact *artifact, struct md_verify_report *report,
				 struct md_error *err)
{
	report->graphs = calloc(artifact->graph_count + (size_t)1, sizeof(*report->graphs));
	if (!report->graphs)
		return md_error_set(err, MD_ERR_NO_MEMORY, "verify report: out of memory");
	for (uint32_t i = 0; i < artifact->graph_count; i++) {
		struct md_verify_graph *graph = &report->graphs[report->graph_count++];
		graph->batch = artifact->graphs[i].batch;
		graph->label = strdup(artifact->graphs[i].label ? artifact->graphs[i].label : "");
		if (!graph->label)
			return md_error_set(err, MD_ERR_NO_MEMORY, "verify report: out of memory");
	}
	return MD_OK;
}

static struct md_verify_graph *find_graph(const struct md_verify_report *report, const char *label, uint32_t batch)
{
	for (size_t i = 0; i < report->graph_count; i++)
		if (report->graphs[i].batch == batch && !strcmp(report->graphs[i].label, label))
			return &report->graphs[i];
	return NULL;
}

/* Splits at tabs in place; the last field keeps further ones. False when there are too few. */
static bool split(char *line, char *fields[FIELDS])
{
	for (size_t i = 0; i < FIELDS; i++) {
		fields[i] = line;
		if (i == FIELDS - 1)
			return true;
		line = strchr(line, '\t');
		if (!line)
			return false;
		*line++ = '\0';
	}
	return false;
}

static bool parse_number(const char *text, uint64_t limit, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && !errno && *value <= limit;
}

static bool parse_outcome(const char *text, enum md_verify_outcome *outcome)
{
	static const char *const words[] = {"skipped", "pass", "fail", "nondeterministic"}; /* as the enum */

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcmp(text, words[i])) {
			*outcome = (enum md_verify_outcome)i;
			return true;
		}
	return false;
}

static unsigned weight_of(enum md_verify_outcome outcome)
{
	static const unsigned weights[] = {
	    [MD_VERIFY_PASSED] = 0, [MD_VERIFY_NONDETERMINISTIC] = 1, [MD_VERIFY_SKIPPED] = 2, [MD_VERIFY_FAILED] = 3};

	return weights[outcome];
}

/* The first reason of those that weigh most. */
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

static enum md_status take_line(char *line, size_t number, struct md_verify_report *report, struct md_error *err)
{
	struct md_verify_graph *graph;
	enum md_verify_outcome outcome;
	uint64_t batch, bytes;
	char *fields[FIELDS];

	if (!split(line, fields) || !parse_number(fields[1], UINT32_MAX, &batch) ||
	    !parse_outcome(fields[2], &outcome) || !parse_number(fields[3], UINT64_MAX, &bytes))
		return md_error_set(err, MD_ERR_CORRUPT,
				    "verify report, line %zu: not label, batch, verdict, bytes, reason", number);
	graph = find_graph(report, fields[0], (uint32_t)batch);
	if (!graph) {
		report->strangers++;
		return MD_OK;
	}
	if (!keep_reason(graph, outcome, fields[4]))
		return md_error_set(err, MD_ERR_NO_MEMORY, "verify report: out of memory");
	graph->comparisons++;
	graph->passed += outcome == MD_VERIFY_PASSED;
	graph->nondeterministic += outcome == MD_VERIFY_NONDETERMINISTIC;
	graph->bytes += bytes;
	if (outcome == MD_VERIFY_FAILED)
		graph->outcome = MD_VERIFY_FAILED;
	return MD_OK;
}

static enum md_status take_lines(FILE *in, struct md_verify_report *report, struct md_error *err)
{
	MD_AUTO_FREE char *line = malloc(LINE_MAX_BYTES);

	if (!line)
		return md_error_set(err, MD_ERR_NO_MEMORY, "verify report: out of memory");
	for (size_t number = 1; fgets(line, LINE_MAX_BYTES, in); number++) {
		size_t size = strlen(line);
		if (!size || line[size - 1] != '\n') {
			if (size == LINE_MAX_BYTES - 1)
				return md_error_set(err, MD_ERR_TOO_LARGE,
						    "verify report, line %zu: longer than %d bytes", number,
						    LINE_MAX_BYTES - 2);
			return MD_OK; /* the writer was killed within a line: that comparison did not take place */
		}
		line[size - 1] = '\0';
		if (!strcmp(line, "end")) {
			report->complete = true;
			continue; /* a child process of the engine may have a report of its own */
		}
		MD_FORWARD(take_line(line, number, report, err));
	}
	if (ferror(in))
		return md_error_set(err, MD_ERR_IO, "verify report: %s", strerror(errno));
	return MD_OK;
}

static enum md_status conclude(struct md_verify_report *report, struct md_error *err)
{
	for (size_t i = 0; i < report->graph_count; i++) {
		struct md_verify_graph *graph = &report->graphs[i];
		if (graph->outcome != MD_VERIFY_FAILED && graph->comparisons &&
		    graph->passed + graph->nondeterministic == graph->comparisons)
			graph->outcome = graph->nondeterministic ? MD_VERIFY_NONDETERMINISTIC : MD_VERIFY_PASSED;
		if (!graph->reason)
			graph->reason = strdup(graph->outcome == MD_VERIFY_PASSED ? ""
					       : report->complete                 ? never_compared
										  : cut_short);
		if (!graph->reason)
			return md_error_set(err, MD_ERR_NO_MEMORY, "verify report: out of memory");
	}
	return MD_OK;
}

enum md_status md_verify_parse(FILE *in, const struct md_artifact *artifact, struct md_verify_report *out,
			       struct md_error *err)
{
	struct md_verify_report report = {0};
	enum md_status status = add_graphs(artifact, &report, err);

	if (status == MD_OK)
		status = take_lines(in, &report, err);
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
	}
	free(report->graphs);
	*report = (struct md_verify_report){0};
}

/* ---- running ---- */

static enum md_status run_engine(const char *artifact_path, const char *report_path, char *const argv[], int *exit_code,
				 struct md_error *err)
{
	char artifact[PATH_MAX + 32], report[PATH_MAX + 32], absolute[PATH_MAX];
	const char *const env[] = {artifact, report, "MEDUSA_VERIFY=1"};
	struct md_run run = {"libmedusa-restore.so", env, sizeof(env) / sizeof(env[0]), argv};

	if (!realpath(artifact_path, absolute))
		return md_error_set(err, MD_ERR_IO, "%s: %s", artifact_path, strerror(errno));
	snprintf(artifact, sizeof(artifact), "MEDUSA_ARTIFACT=%s", absolute);
	snprintf(report, sizeof(report), "MEDUSA_VERIFY_REPORT=%s", report_path);
	return md_run_child_output(&run, STDERR_FILENO, exit_code, err);
}

static enum md_status run_and_parse(const char *artifact_path, char *const argv[], int fd, const char *report_path,
				    struct md_verify_report *out, struct md_error *err)
{
	MD_AUTO_FILE FILE *in = fdopen(fd, "r");
	struct md_artifact artifact;
	enum md_status status;
	int exit_code = 0;

	if (!in) {
		close(fd);
		return md_error_set(err, MD_ERR_IO, "%s: %s", report_path, strerror(errno));
	}
	MD_FORWARD(run_engine(artifact_path, report_path, argv, &exit_code, err));
	MD_FORWARD(md_artifact_read(artifact_path, &artifact, NULL, err));
	status = md_verify_parse(in, &artifact, out, err);
	md_artifact_finish(&artifact);
	if (status == MD_OK)
		out->exit_code = exit_code;
	return status;
}

enum md_status md_verify_run(const char *artifact_path, char *const argv[], struct md_verify_report *out,
			     struct md_error *err)
{
	const char *folder = getenv("TMPDIR");
	char path[PATH_MAX];
	enum md_status status;
	int fd;

	if ((size_t)snprintf(path, sizeof(path), "%s/medusa-verify-XXXXXX", folder && *folder ? folder : "/tmp") >=
	    sizeof(path))
		return md_error_set(err, MD_ERR_INVALID, "TMPDIR is longer than a path may be");
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return md_error_set(err, MD_ERR_IO, "%s: %s", path, strerror(errno));
	status = run_and_parse(artifact_path, argv, fd, path, out, err);
	unlink(path);
	return status;
}

/* ---- applying ---- */

/* Frees one graph with the format's own code, by way of an artifact that holds nothing else. */
static void free_graph(const struct md_artifact_graph *graph)
{
	struct md_artifact only = {.graph_count = 1};

	only.graphs = malloc(sizeof(*only.graphs));
	if (!only.graphs)
		return;
	*only.graphs = *graph;
	md_artifact_finish(&only);
}

static enum md_status refuse_graph(struct md_artifact *artifact, uint32_t index, const char *reason,
				   struct md_error *err)
{
	struct md_artifact_graph graph = artifact->graphs[index];
	struct md_artifact_refusal refusal = {strdup(graph.label), graph.batch, NULL};
	struct md_artifact_refusal *refusals =
	    realloc(artifact->refusals, (artifact->refusal_count + (size_t)1) * sizeof(*refusals));

	if (refusals)
		artifact->refusals = refusals;
	if (asprintf(&refusal.why, "verification failed: %s", reason) < 0)
		refusal.why = NULL;
	if (!refusals || !refusal.label || !refusal.why) {
		free(refusal.label);
		free(refusal.why);
		return md_error_set(err, MD_ERR_NO_MEMORY, "verify report: out of memory");
	}
	artifact->refusals[artifact->refusal_count++] = refusal;
	memmove(&artifact->graphs[index], &artifact->graphs[index + 1],
		(artifact->graph_count - index - 1) * sizeof(*artifact->graphs));
	artifact->graph_count--;
	free_graph(&graph);
	return MD_OK;
}

enum md_status md_verify_apply(const struct md_verify_report *report, struct md_artifact *artifact,
			       struct md_error *err)
{
	for (uint32_t i = 0; i < artifact->graph_count;) {
		struct md_artifact_graph *graph = &artifact->graphs[i];
		const struct md_verify_graph *found = find_graph(report, graph->label, graph->batch);
		if (found && found->outcome == MD_VERIFY_FAILED) {
			MD_FORWARD(refuse_graph(artifact, i, found->reason, err));
			continue;
		}
		if (found && found->outcome == MD_VERIFY_PASSED)
			graph->proof = MD_PROOF_REPLAY;
		i++;
	}
	return MD_OK;
}
