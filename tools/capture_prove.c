/* SPDX-License-Identifier: Apache-2.0 */
/* Makes an artifact from traces, and has its graphs compared with live ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/analyze.h"
#include "base/clock.h"
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

/* Two captures disagree about kernels: makes a third one, which may agree with one of them about all graphs. */
static int capture_third(struct md_job *job, const struct md_analyze_options *wanted, uint32_t disagreed)
{
	struct md_third what = {0, 1, disagreed};
	struct md_error err = {0};
	int result;
	md_job_say(
	    job,
	    "the captures disagree about the kernels or nodes of %u graphs: a third capture may agree with one of them",
	    disagreed);
	result = md_job_capture(job, 2);
	if (result >= 0)
		return result;
	if (md_third_choose(job->runs, wanted, job->wish->second != NULL, &job->artifact, &what, &err) != MD_OK) {
		job->traces_needed = true;
		return md_job_fail(job, &err, MD_EXIT_FAILED);
	}
	job->artifact.kv = job->runs[0].kv; /* later runs were told the capacity, and measured nothing */
	md_job_say(job, "using captures %u and %u: %u graphs, %u refused", what.first + 1, what.second + 1,
		   job->artifact.graph_count, job->artifact.refusal_count);
	if (what.disagreed)
		md_job_say(job, "%s", hint);
	return -1;
}

int md_job_analyze(struct md_job *job)
{
	uint32_t disagreed = 0;
	struct md_analyze_options wanted = {.size = sizeof(wanted),
					    .no_images = job->wish->no_images,
					    .store_file_images = job->wish->store_images,
					    .keep_doubtful = !job->wish->no_verify && !job->wish->single,
					    .vary = &job->wish->vary,
					    .accept_unvaried = job->wish->accept_unvaried,
					    .disagreed = &disagreed,
					    .accept_process_values = job->wish->accept_process_values,
					    .untouched = &job->untouched,
					    .refuse_unset = job->wish->refuse_unset};
	struct md_error err = {0};
	uint64_t start = md_clock_ns();
	if (md_analyze(&job->runs[0], job->wish->single ? NULL : &job->runs[1], &wanted, &job->artifact, &err) !=
	    MD_OK) {
		job->traces_needed = true;
		return md_job_fail(job, &err, MD_EXIT_FAILED);
	}
	job->analyzed = true;
	md_job_say(job, "analysis: %u graphs, %u refused in %.1f s", job->artifact.graph_count,
		   job->artifact.refusal_count, (double)(md_clock_ns() - start) / 1e9);
	say_helpers(job, &job->runs[0]);
	return disagreed && !job->wish->single ? capture_third(job, &wanted, disagreed) : -1;
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
	for (uint32_t i = 0; i < job->artifact.graph_count; i++)
		words += job->artifact.graphs[i].doubtful_count;
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
	for (uint32_t i = 0; i < job->artifact.binding_count; i++)
		count += job->artifact.bindings[i].adjoins;
	return count;
}

static int apply_to_artifact(struct md_job *job, const struct md_verify_report *report)
{
	uint32_t before = count_neighbours(job), after;
	struct md_error err = {0};
	if (md_verify_apply(report, &job->artifact, &err) != MD_OK)
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
	struct md_provenance *from = &job->artifact.provenance;
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

int md_job_verify(struct md_job *job)
{
	struct md_verify_report report;
	struct md_error err = {0};
	char unverified[PATH_MAX];
	int result;
	if (job->wish->no_verify || job->wish->single || !job->artifact.graph_count)
		return -1;
	result = state_verification(job);
	if (result >= 0)
		return result;
	md_job_say(job, "verification");
	unsetenv("MEDUSA_TRUSTED_KEYS"); /* the file is new, so nobody can have signed it */
	setenv("MEDUSA_UNTIL", md_job_until(job), 1);
	if (md_workplace_file(&job->workplace, "unverified", ".medusa", unverified, &err) != MD_OK ||
	    md_artifact_write(&job->artifact, unverified, NULL, &err) != MD_OK)
		return md_job_fail(job, &err, MD_EXIT_COMMAND);
	md_workplace_share(unverified);
	md_verify_accept_unvaried(job->wish->accept_unvaried);
	if (md_verify_run(unverified, job->argv, &job->repeat, &report, &err) != MD_OK)
		return md_stop_signal() ? 128 + md_stop_signal() : md_job_fail(job, &err, MD_EXIT_COMMAND);
	md_job_forget_terminal(has_ended(job, &report));
	result = md_stop_signal() ? 128 + md_stop_signal() : apply_report(job, &report);
	job->traces_needed |= result >= 0;
	md_verify_finish(&report);
	return result;
}
