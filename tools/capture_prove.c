/* SPDX-License-Identifier: Apache-2.0 */
/* Makes an artifact from traces, and has its graphs compared with live ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/analyze.h"
#include "base/clock.h"
#include "ranks/rank_bundle.h"
#include "tools/capture_job.h"
#include "tools/stop.h"
#include "tools/verify_report.h"

/* Prints how many graphs were left out: an engine that labels some graphs cannot ask for those without a label. */
static void say_helpers(const struct md_job *job, const struct md_trace *trace)
{
	uint32_t labelled = md_trace_labelled(trace);
	if (labelled && labelled < trace->graph_count)
		md_job_say(job, "skipped %u unlabelled graphs, since other graphs have labels",
			   trace->graph_count - labelled);
}

static const char hint[] =
    "an engine that chooses kernels by measuring them (max-autotune) chooses the same ones again when its starts share "
    "the compiler's cache: set TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR, here and at a cold start";

static struct md_analyze_options options_of(struct md_job *job, uint32_t *disagreed)
{
	return (struct md_analyze_options){.size = sizeof(struct md_analyze_options),
					   .no_images = job->wish->no_images,
					   .store_file_images = job->wish->store_images,
					   .keep_doubtful = !job->wish->no_verify && !job->wish->single,
					   .vary = &job->wish->vary,
					   .accept_unvaried = job->wish->accept_unvaried,
					   .disagreed = disagreed,
					   .accept_process_values = job->wish->accept_process_values,
					   .untouched = &job->at->untouched,
					   .refuse_unset = job->wish->refuse_unset};
}

static int analyze_two(struct md_job *job)
{
	struct md_job_rank *rank = job->at;
	struct md_analyze_options wanted = options_of(job, &rank->disagreed);
	struct md_error err = {0};
	uint64_t start = md_clock_ns();
	if (md_analyze(&rank->runs[0], job->wish->single ? NULL : &rank->runs[1], &wanted, &rank->artifact, &err) !=
	    MD_OK) {
		job->traces_needed = true;
		return md_job_fail(job, &err, MD_EXIT_FAILED);
	}
	rank->analyzed = true;
	md_job_say(job, "analysis: %u graphs, %u refused in %.1f s", rank->artifact.graph_count,
		   rank->artifact.refusal_count, (double)(md_clock_ns() - start) / 1e9);
	say_helpers(job, &rank->runs[0]);
	return -1;
}

/* A third capture may agree with one of the others about all graphs. */
static int choose_two(struct md_job *job)
{
	struct md_job_rank *rank = job->at;
	struct md_third what = {0, 1, rank->disagreed};
	struct md_analyze_options wanted = options_of(job, &rank->disagreed);
	struct md_error err = {0};
	if (!rank->disagreed)
		return -1;
	if (md_third_choose(rank->runs, &wanted, job->wish->second != NULL, &rank->artifact, &what, &err) != MD_OK) {
		job->traces_needed = true;
		return md_job_fail(job, &err, MD_EXIT_FAILED);
	}
	rank->artifact.kv = rank->runs[0].kv; /* later runs were told the capacity, and measured nothing */
	md_job_say(job, "using captures %u and %u: %u graphs, %u refused", what.first + 1, what.second + 1,
		   rank->artifact.graph_count, rank->artifact.refusal_count);
	if (what.disagreed)
		md_job_say(job, "%s", hint);
	return -1;
}

int md_job_analyze(struct md_job *job)
{
	uint32_t disagreed = 0;
	int result = md_job_each(job, analyze_two);
	for (uint32_t i = 0; result < 0 && !job->wish->single && i < job->rank_count; i++) {
		job->at = &job->ranks[i];
		disagreed += job->at->disagreed;
		if (job->at->disagreed)
			md_job_say(job,
				   "the captures disagree about the kernels or nodes of %u graphs: a third capture may "
				   "agree with one of them",
				   job->at->disagreed);
	}
	job->at = job->bundle ? NULL : job->ranks;
	if (result < 0 && disagreed)
		result = md_job_capture(job, 2);
	return result < 0 && disagreed ? md_job_each(job, choose_two) : result;
}

static void say_outcomes(const struct md_job *job, const struct md_verify_report *report)
{
	unsigned words = 0;
	md_job_say(job, "verification: %zu passed, %zu failed, %zu not compared",
		   md_verify_count(report, MD_VERIFY_PASSED), md_verify_count(report, MD_VERIFY_FAILED),
		   md_verify_count(report, MD_VERIFY_SKIPPED));
	for (size_t i = 0; i < report->graph_count; i++)
		if (job->wish->tolerance.given &&
		    report->graphs[i].outcome == MD_VERIFY_NONDETERMINISTIC) /* else it is refused */
			md_job_say(job, "nondeterministic: %s/%u: %s", report->graphs[i].label, report->graphs[i].batch,
				   report->graphs[i].reason);
	for (uint32_t i = 0; i < job->at->artifact.graph_count; i++)
		words += job->at->artifact.graphs[i].doubtful_count;
	if (words)
		md_job_say(job, "verification: %u doubtful words, each also replayed with other values", words);
	for (size_t i = 0; i < report->graph_count; i++) /* others are listed as refused */
		if (job->wish->allow_uncompared && report->graphs[i].outcome == MD_VERIFY_SKIPPED)
			md_job_say(job, "not compared: %s/%u: %s", report->graphs[i].label, report->graphs[i].batch,
				   report->graphs[i].reason);
}

static uint32_t count_neighbours(const struct md_job *job)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < job->at->artifact.binding_count; i++)
		count += job->at->artifact.bindings[i].adjoins;
	return count;
}

static int apply_to_artifact(struct md_job *job, const struct md_verify_report *report)
{
	uint32_t before = count_neighbours(job), after;
	struct md_error err = {0};
	if (md_verify_apply(report, &job->at->artifact, &err) != MD_OK)
		return md_job_fail(job, &err, MD_EXIT_FAILED);
	after = count_neighbours(job);
	if (before > after)
		md_job_say(job, "verification: %u bindings may lie apart from those that they lay right behind",
			   before - after);
	if (after)
		md_job_say(
		    job,
		    "verification: %u bindings must lie right behind others again (medusa-inspect --json names them)",
		    after);
	return -1;
}

/* True if all graphs were compared, so that the end of the command does not matter. */
static bool has_ended(const struct md_job *job, const struct md_verify_report *report)
{
	return report->complete && (md_job_has_end(job) || (md_job_asks_engine(job) && report->reached));
}

static int apply_report(struct md_job *job, struct md_verify_report *report)
{
	bool ended = has_ended(job, report);
	if (report->exit_code && !ended) {
		md_job_say(job,
			   "the command ended with %d in the verification run; nothing was written; " MD_REPEAT_OWN,
			   report->exit_code);
		return MD_EXIT_COMMAND;
	}
	if (report->exit_code)
		md_job_say(job, "the command ended with %d after all graphs were compared", report->exit_code);
	if (md_verify_doubtful(report)) {
		md_job_say(job, "verification: %s; nothing was written", md_verify_doubtful(report));
		return MD_EXIT_COMMAND;
	}
	report->tolerance = job->wish->tolerance;
	report->allow_uncompared = job->wish->allow_uncompared;
	/* An engine goes on after --until, and captures graphs that are not recorded. */
	report->allow_strangers = job->wish->allow_uncompared || md_job_has_end(job) || ended;
	say_outcomes(job, report);
	return apply_to_artifact(job, report);
}

/* Records in the artifact which weaker checks the user accepted. */
static int state_verification(struct md_job *job)
{
	struct md_provenance *from = &job->at->artifact.provenance;
	const struct md_job_wish *wish = job->wish;
	free(from->verification);
	if (asprintf(&from->verification, "%s%s",
		     wish->allow_uncompared  ? "graphs that were not compared were allowed"
		     : wish->accept_unvaried ? "graphs that were always compared on the same inputs were allowed"
					     : "every graph was compared, on inputs that varied",
		     wish->accept_process_values ? "; " MD_PROCESS_VALUES_ACCEPTED : "") < 0)
		from->verification = NULL;
	if (from->verification)
		return -1;
	md_job_say(job, "out of memory for the verification of the artifact");
	return MD_EXIT_COMMAND;
}

static enum md_status write_unverified(struct md_job *job, const char *folder, struct md_error *err)
{
	struct md_bundle bundle = {.ranks = job->rank_count};
	char path[PATH_MAX];
	for (uint32_t i = 0; i < job->rank_count; i++) {
		if (!md_bundle_artifact(folder, i, path))
			return md_error_set(err, MD_ERR_INVALID, "%.200s...: the path is too long", folder);
		MD_FORWARD(md_artifact_write(&job->ranks[i].artifact, path, NULL, err));
		MD_FORWARD(md_artifact_identity(path, &bundle.artifacts[i], err));
		md_workplace_share(path);
	}
	return md_bundle_write(&bundle, folder, err);
}

/* A file, or a bundle, by a path that an engine can still open when it has given up its rights. */
static enum md_status make_unverified(struct md_job *job, char path[PATH_MAX], struct md_error *err)
{
	if (job->bundle) {
		MD_FORWARD(md_workplace_folder(&job->workplace, "unverified", path, err));
		return write_unverified(job, path, err);
	}
	MD_FORWARD(md_workplace_file(&job->workplace, "unverified", ".medusa", path, err));
	MD_FORWARD(md_artifact_write(&job->at->artifact, path, NULL, err));
	md_workplace_share(path);
	return MD_OK;
}

static int apply_reports(struct md_job *job, struct md_verify_report *reports)
{
	int result = -1;
	bool ended = true;
	for (uint32_t i = 0; i < job->rank_count; i++)
		ended &= has_ended(job, &reports[i]);
	md_job_forget_terminal(ended);
	if (md_stop_signal())
		return 128 + md_stop_signal();
	for (uint32_t i = 0; i < job->rank_count && result < 0; i++) {
		job->at = &job->ranks[i];
		result = apply_report(job, &reports[i]);
	}
	job->at = job->bundle ? NULL : job->ranks;
	return result < 0 ? md_job_agree(job) : result;
}

static int verify(struct md_job *job)
{
	struct md_verify_report *reports = calloc(job->rank_count, sizeof(*reports));
	struct md_error err = {0};
	char unverified[PATH_MAX];
	if (!reports)
		md_error_set(&err, MD_ERR_NO_MEMORY, "out of memory for the reports of a verification");
	else if (make_unverified(job, unverified, &err) == MD_OK) {
		md_verify_accept_unvaried(job->wish->accept_unvaried);
		md_verify_run(unverified, job->bundle ? job->rank_count : 0, job->argv, &job->repeat, reports, &err);
	}
	if (err.status) {
		free(reports);
		return md_stop_signal() ? 128 + md_stop_signal() : md_job_fail(job, &err, MD_EXIT_COMMAND);
	}
	if (job->repeat.late && !md_stop_signal())
		md_job_say(job, "verification: nothing was written");
	int result = job->repeat.late && !md_stop_signal() ? MD_EXIT_COMMAND : apply_reports(job, reports);
	job->traces_needed |= result >= 0;
	for (uint32_t i = 0; i < job->rank_count; i++)
		md_verify_finish(&reports[i]);
	free(reports);
	return result;
}

int md_job_verify(struct md_job *job)
{
	uint32_t graphs = 0;
	int agreed = md_job_agree(job);
	if (agreed >= 0)
		return agreed;
	for (uint32_t i = 0; i < job->rank_count; i++)
		graphs += job->ranks[i].artifact.graph_count;
	if (job->wish->no_verify || job->wish->single || !graphs)
		return -1;
	int result = md_job_each(job, state_verification);
	if (result >= 0)
		return result;
	md_job_say(job, "verification");
	unsetenv("MEDUSA_TRUSTED_KEYS"); /* the file is new, so nobody can have signed it */
	setenv("MEDUSA_UNTIL", md_job_until(job), 1);
	return verify(job);
}
