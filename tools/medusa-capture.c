/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-capture: records an engine's warm start twice, analyzes the traces, verifies by replay, writes the artifact.
 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analyze/analyze.h"
#include "base/clock.h"
#include "format/order.h"
#include "format/trace_part.h"
#include "tools/capture_third.h"
#include "tools/options.h"
#include "tools/repeat.h"
#include "tools/stop.h"
#include "tools/tolerance.h"
#include "tools/verify_report.h"
#include "tools/workplace.h"

/* Any number but 0 moves a run's addresses; a third run's are those of neither of the others. */
static const char *const shift_seeds[MD_CAPTURES_MOST] = {NULL, "20240915", "20240916"};

static struct md_argument_list vary;
static const char *output, *until, *second, *nondeterministic;
static struct md_tolerance tolerance;
static bool single, keep_traces, store_images, no_images, no_verify, allow_uncompared, accept_unvaried;

static const struct md_option options[] = {
    {.name = "output", .letter = 'o', .argument = "FILE", .value = &output, .help = "The artifact to write."},
    {.name = "until",
     .argument = "WHEN",
     .value = &until,
     .help = "When recording ends: exit (default), graphs=N or mark=NAME."},
    {.name = "vary",
     .argument = "PATTERN",
     .list = &vary,
     .help = "Arguments (--port=*) that may be others at a cold start; may be repeated."},
    {.name = "second",
     .argument = "COMMAND",
     .value = &second,
     .help = "A shell command for the second capture: the same engine with other weights."},
    {.name = "single", .flag = &single, .help = "One capture alone: pointers are guessed, not proven."},
    {.name = "keep-traces", .flag = &keep_traces, .help = "Keep the traces beside the artifact."},
    {.name = "store-images", .flag = &store_images, .help = "Store also images that lie in files."},
    {.name = "no-images", .flag = &no_images, .help = "Store and reference no images: kernels are triggered."},
    {.name = "no-verify", .flag = &no_verify, .help = "Leave out the run that compares restored with live graphs."},
    {.name = "nondeterministic", .argument = "ULPS", .value = &nondeterministic, .help = MD_TOLERANCE_HELP},
    {.name = "accept-unvaried",
     .flag = &accept_unvaried,
     .help = "Also graphs whose inputs held the same bytes whenever they were compared."},
    {.name = "allow-uncompared",
     .flag = &allow_uncompared,
     .help = "Keep graphs that this run did not compare; the artifact says so."},
};

static const struct md_command command = {
    .name = "medusa-capture",
    .usage = "-o X.medusa [OPTION...] -- CMD [ARG...]",
    .summary = "Materializes the CUDA graphs of CMD's warm start.",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .exit_notes = "1 means that some graphs were not materialized; they are listed with the reason.\n",
};

/* Everything that one call of the command makes and removes. */
struct job {
	char **argv;
	struct md_workplace workplace;
	char traces[MD_CAPTURES_MOST][PATH_MAX]; /* in the workplace; "" before the run */
	char order[PATH_MAX + 24];               /* where a later run's allocations go */
	struct md_trace runs[MD_CAPTURES_MOST];
	unsigned run_count;
	struct md_artifact artifact;
	bool analyzed;
	struct md_artifact_sizes sizes;
	struct md_repeat repeat;
	bool traces_needed; /* something went wrong that they may explain */
};

#define say(...) md_options_say(&command, __VA_ARGS__)

static int fail(const struct md_error *err, int exit_code)
{
	say("%s", err->message);
	return exit_code;
}

/* ---- capture ---- */

static bool valid_until(void)
{
	char *end;

	if (!until || !strcmp(until, "exit"))
		return true;
	if (!strncmp(until, "mark=", 5))
		return until[5] != 0;
	return !strncmp(until, "graphs=", 7) && until[7] >= '1' && until[7] <= '9' &&
	       (strtoull(until + 7, &end, 10), *end == 0);
}

static bool has_end(void)
{
	return until && strcmp(until, "exit");
}

/* An engine that becomes a daemon is recorded on after the command has ended. */
static enum md_run_left recording_left(void *user, pid_t *pid)
{
	const char *path = user;
	char part[PATH_MAX + 8];
	struct stat info;

	snprintf(part, sizeof(part), "%s.part", path);
	if (!access(path, F_OK) || stat(part, &info))
		return MD_RUN_OVER;
	if (md_trace_part_is_held(part, pid))
		return MD_RUN_AT_WORK;
	return info.st_size ? MD_RUN_OVER : MD_RUN_UNKNOWN;
}

static int run_under_capture(struct job *job, unsigned index, int *code)
{
	char trace[PATH_MAX + 32], when[512], images[64], kv[64], order[PATH_MAX + 64], shift[64];
	const char *env[6] = {trace, when, images};
	char *shell[] = {"sh", "-c", (char *)second, NULL};
	struct md_run run = {"libmedusa-capture.so", env, 3, index && second ? shell : job->argv, recording_left,
			     job->traces[index]};
	enum md_repeat_outcome outcome;
	struct md_error err = {0};
	char number[12];

	snprintf(number, sizeof(number), "%u", index + 1);
	if (md_workplace_file(&job->workplace, number, ".mtrace", job->traces[index], &err) != MD_OK)
		return md_options_report(&command, &err);
	snprintf(trace, sizeof(trace), "MEDUSA_TRACE=%s", job->traces[index]);
	snprintf(when, sizeof(when), "MEDUSA_UNTIL=%s", until ? until : "exit");
	/* Images that lie in files are taken from there by the analysis; see struct md_analyze_options. */
	snprintf(images, sizeof(images), "MEDUSA_STORE_IMAGES=%s", no_images ? "none" : "anonymous");
	if (index) {
		snprintf(shift, sizeof(shift), "MEDUSA_SHIFT=%s", shift_seeds[index]);
		env[run.env_count++] = shift;
		snprintf(order, sizeof(order), "MEDUSA_ORDER=%s", job->order);
		env[run.env_count++] = order;
		if (job->runs[0].kv.present) {
			snprintf(kv, sizeof(kv), "MEDUSA_KV_BYTES=%llu", (unsigned long long)job->runs[0].kv.kv_bytes);
			env[run.env_count++] = kv;
		}
	}
	do {
		if (md_repeat_run(&job->repeat, &run, -1, code, &outcome, &err) != MD_OK ||
		    (outcome == MD_REPEAT_AGAIN && md_workplace_renew(job->traces[index], ".mtrace", &err) != MD_OK))
			return fail(&err, MD_EXIT_COMMAND);
	} while (outcome == MD_REPEAT_AGAIN);
	return outcome == MD_REPEAT_GIVEN_UP ? MD_EXIT_COMMAND : -1;
}

/* An engine that has given up its rights completes a trace, but cannot give it its name. */
static enum md_status read_named_or_part(const char *path, struct md_trace *out, struct md_error *err)
{
	char part[PATH_MAX + 8];
	struct stat info;

	if (!access(path, F_OK))
		return md_trace_read(path, out, err);
	snprintf(part, sizeof(part), "%s.part", path);
	if (stat(part, &info) || !info.st_size)
		return md_error_set(err, MD_ERR_NOT_FOUND, "the command made no call to the CUDA driver that was seen");
	MD_FORWARD(md_trace_read(part, out, err));
	if (out->complete)
		return MD_OK;
	md_trace_finish(out);
	return md_error_set(err, MD_ERR_TRUNCATED,
			    "recording was cut short, the trace is incomplete (MEDUSA_LOG=info "
			    "tells more)");
}

/* A server that has done what --until names is ended by a terminal's Ctrl-C, which we get as well. */
static void forget_terminal(bool done)
{
	if (has_end() && done && md_stop_signal() == SIGINT && md_stop_came_from_terminal())
		md_stop_forget();
}

/* A server is told to stop once what --until names has happened; its trace is complete by then. */
static int judge_run(int code, enum md_status trace)
{
	bool recorded = has_end() && trace == MD_OK;

	forget_terminal(recorded);
	if (md_stop_signal())
		return 128 + md_stop_signal();
	if (code && !recorded) {
		say("the command ended with %d; " MD_REPEAT_OWN, code);
		return MD_EXIT_COMMAND;
	}
	if (code)
		say("the command ended with %d after recording was complete", code);
	return -1;
}

static int explain(struct job *job, const struct md_error *err)
{
	if (err->status == MD_ERR_NOT_FOUND)
		return fail(err, MD_EXIT_EMPTY);
	job->traces_needed = true;
	return fail(err, err->status == MD_ERR_TRUNCATED ? MD_EXIT_COMMAND : MD_EXIT_INPUT);
}

static int record(struct job *job, unsigned index)
{
	struct md_trace *trace = &job->runs[index];
	struct md_error err = {0};
	int code = 0, result = run_under_capture(job, index, &code);

	if (result >= 0)
		return result;
	enum md_status status = read_named_or_part(job->traces[index], trace, &err);
	if (status == MD_OK)
		job->run_count = index + 1;
	result = judge_run(code, status);
	if (result >= 0)
		return result;
	if (status != MD_OK)
		return explain(job, &err);
	if (trace->graph_count)
		return -1;
	say("no graph was captured");
	return MD_EXIT_EMPTY;
}

/*
 * Caching allocators decide by size and address: only where addresses compare as in the first run does the second one
 * put the same things into the same places.
 */
static int write_order(struct job *job, unsigned index)
{
	struct md_order order;
	struct md_error err = {0};

	snprintf(job->order, sizeof(job->order), "%s/order.%u", job->workplace.folder, index + 1);
	if (md_order_make(&job->runs[0], strtoull(shift_seeds[index], NULL, 10), &order, &err) != MD_OK)
		return fail(&err, MD_EXIT_COMMAND);
	if (md_order_write(&order, job->order, &err) != MD_OK) {
		md_order_finish(&order);
		return fail(&err, MD_EXIT_INPUT);
	}
	md_order_finish(&order);
	md_workplace_share(job->order);
	return -1;
}

static int capture(struct job *job, unsigned index)
{
	uint64_t start = md_clock_ns();
	int result;

	say("capture %u of %u", index + 1, single ? 1 : index < 2 ? 2 : 3);
	result = index ? write_order(job, index) : -1;
	if (result < 0)
		result = record(job, index);
	if (result < 0)
		say("capture %u: %u graphs, %u allocations, %u images in %.1f s", index + 1,
		    job->runs[index].graph_count, job->runs[index].alloc_count, job->runs[index].image_count,
		    (double)(md_clock_ns() - start) / 1e9);
	return result;
}

/* ---- analysis, verification ---- */

/* What an engine did not label although it labels others, it has no way to ask for. */
static void say_helpers(const struct md_trace *trace)
{
	uint32_t labelled = md_trace_labelled(trace);

	if (labelled && labelled < trace->graph_count)
		say("left out: %u graphs that have no label, as others have", trace->graph_count - labelled);
}

static const char hint[] =
    "an engine that chooses kernels by measuring them (max-autotune) chooses the same ones again when its starts share "
    "the compiler's cache: set TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR, here and at a cold start";

/* Two captures disagree about kernels: a third one may agree with either, and then about all graphs. */
static int capture_third(struct job *job, const struct md_analyze_options *wanted, uint32_t disagreed)
{
	struct md_third what = {0, 1, disagreed};
	struct md_error err = {0};
	int result;

	say("the captures disagree about the kernels or nodes of %u graphs: a third one may agree with either",
	    disagreed);
	result = capture(job, 2);
	if (result >= 0)
		return result;
	if (md_third_choose(job->runs, wanted, second != NULL, &job->artifact, &what, &err) != MD_OK) {
		job->traces_needed = true;
		return fail(&err, MD_EXIT_FAILED);
	}
	job->artifact.kv = job->runs[0].kv; /* later runs were told, and measured nothing */
	say("captures %u and %u are taken: %u graphs, %u refused", what.first + 1, what.second + 1,
	    job->artifact.graph_count, job->artifact.refusal_count);
	if (what.disagreed)
		say("%s", hint);
	return -1;
}

static int analyze(struct job *job)
{
	uint32_t disagreed = 0;
	struct md_analyze_options wanted = {.size = sizeof(wanted),
					    .no_images = no_images,
					    .store_file_images = store_images,
					    .keep_doubtful = !no_verify && !single,
					    .vary = &vary,
					    .disagreed = &disagreed};
	struct md_error err = {0};
	uint64_t start = md_clock_ns();

	if (md_analyze(&job->runs[0], single ? NULL : &job->runs[1], &wanted, &job->artifact, &err) != MD_OK) {
		job->traces_needed = true;
		return fail(&err, MD_EXIT_FAILED);
	}
	job->analyzed = true;
	say("analysis: %u graphs, %u refused in %.1f s", job->artifact.graph_count, job->artifact.refusal_count,
	    (double)(md_clock_ns() - start) / 1e9);
	say_helpers(&job->runs[0]);
	return disagreed && !single ? capture_third(job, &wanted, disagreed) : -1;
}

static void say_outcomes(const struct md_verify_report *report, const struct md_artifact *artifact)
{
	unsigned words = 0;

	say("verification: %zu passed, %zu failed, %zu not compared", md_verify_count(report, MD_VERIFY_PASSED),
	    md_verify_count(report, MD_VERIFY_FAILED), md_verify_count(report, MD_VERIFY_SKIPPED));
	for (size_t i = 0; i < report->graph_count; i++)
		if (tolerance.given && report->graphs[i].outcome == MD_VERIFY_NONDETERMINISTIC) /* else it is refused */
			say("nondeterministic: %s/%u: %s", report->graphs[i].label, report->graphs[i].batch,
			    report->graphs[i].reason);
	for (uint32_t i = 0; i < artifact->graph_count; i++)
		words += artifact->graphs[i].doubtful_count;
	if (words)
		say("verification: %u words in doubt, each replayed as something else", words);
	for (size_t i = 0; i < report->graph_count; i++) /* others are listed as refused */
		if (allow_uncompared && report->graphs[i].outcome == MD_VERIFY_SKIPPED)
			say("not compared: %s/%u: %s", report->graphs[i].label, report->graphs[i].batch,
			    report->graphs[i].reason);
}

static int apply_report(struct job *job, struct md_verify_report *report)
{
	struct md_error err = {0};

	if (report->exit_code && !(has_end() && report->complete)) {
		say("the command ended with %d in the verification run; nothing was written; " MD_REPEAT_OWN,
		    report->exit_code);
		return MD_EXIT_COMMAND;
	}
	if (report->exit_code)
		say("the command ended with %d after all was compared", report->exit_code);
	if (md_verify_doubtful(report)) {
		say("verification: %s; nothing was written", md_verify_doubtful(report));
		return MD_EXIT_COMMAND;
	}
	report->tolerance = tolerance;
	report->allow_uncompared = allow_uncompared;
	/* An engine goes on after --until, and captures what was not to be recorded. */
	report->allow_strangers = allow_uncompared || has_end();
	say_outcomes(report, &job->artifact);
	if (md_verify_apply(report, &job->artifact, &err) != MD_OK)
		return fail(&err, MD_EXIT_FAILED);
	return -1;
}

/* Whoever reads the artifact is to know what was asked of it. */
static int state_verification(struct job *job)
{
	struct md_provenance *from = &job->artifact.provenance;

	free(from->verification);
	from->verification =
	    strdup(allow_uncompared  ? "graphs that were not compared were allowed"
		   : accept_unvaried ? "graphs that were always compared on the same inputs were allowed"
				     : "every graph was compared, on inputs that varied");
	if (from->verification)
		return -1;
	say("out of memory");
	return MD_EXIT_COMMAND;
}

/* A signal that ends us waits until the file has its name. */
static enum md_status write_held(const struct md_artifact *artifact, const char *path, struct md_artifact_sizes *sizes,
				 struct md_error *err)
{
	md_stop_hold();
	enum md_status status = md_artifact_write(artifact, path, sizes, err);
	md_stop_release();
	return status;
}

/* The restored graphs against live ones, from a file that does not have the final name yet. */
static int verify(struct job *job)
{
	struct md_verify_report report;
	struct md_error err = {0};
	char unverified[PATH_MAX];
	int result;

	if (no_verify || single || !job->artifact.graph_count)
		return -1;
	result = state_verification(job);
	if (result >= 0)
		return result;
	say("verification");
	unsetenv("MEDUSA_TRUSTED_KEYS"); /* nobody can have signed what is made just now */
	setenv("MEDUSA_UNTIL", until ? until : "exit", 1);
	if (md_workplace_file(&job->workplace, "unverified", ".medusa", unverified, &err) != MD_OK ||
	    write_held(&job->artifact, unverified, NULL, &err) != MD_OK)
		return fail(&err, MD_EXIT_COMMAND);
	md_workplace_share(unverified);
	md_verify_accept_unvaried(accept_unvaried);
	if (md_verify_run(unverified, job->argv, &job->repeat, &report, &err) != MD_OK)
		return md_stop_signal() ? 128 + md_stop_signal() : fail(&err, MD_EXIT_COMMAND);
	forget_terminal(report.complete);
	result = md_stop_signal() ? 128 + md_stop_signal() : apply_report(job, &report);
	job->traces_needed |= result >= 0;
	md_verify_finish(&report);
	return result;
}

/* ---- result ---- */

/* What is saved of private memory may be made of the weights: then the graphs serve no others. */
static void say_constants(const struct md_artifact *artifact)
{
	uint32_t hashed = 0, same = 0, uncompared = 0;

	for (uint32_t i = 0; i < artifact->binding_count; i++) {
		hashed += artifact->bindings[i].hashed;
		same += artifact->bindings[i].hashed && !artifact->bindings[i].varied;
	}
	for (uint32_t i = 0; i < artifact->content_count; i++)
		uncompared += !artifact->contents[i].compared;
	if (hashed && (same || uncompared))
		say("graphs with contents serve these weights alone: no other value was seen of %u of %u constant "
		    "bindings, and %u of %u contents were found in one capture alone (--second, for a capture with "
		    "other "
		    "weights)",
		    same, hashed, uncompared, artifact->content_count);
}

static void summarize(const struct job *job)
{
	const struct md_artifact *artifact = &job->artifact;
	uint64_t nodes = 0, pointers = 0;

	for (uint32_t i = 0; i < artifact->graph_count; i++) {
		nodes += artifact->graphs[i].node_count;
		pointers += artifact->graphs[i].pointer_count;
	}
	say("%s: %u graphs, %llu nodes, %llu pointers, %u kernels from %u images, %u contents", output,
	    artifact->graph_count, (unsigned long long)nodes, (unsigned long long)pointers, artifact->kernel_count,
	    artifact->image_count, artifact->content_count);
	say("%llu bytes in the file, %llu bytes of private memory at restore", (unsigned long long)job->sizes.file,
	    (unsigned long long)artifact->arena_size);
	say_constants(artifact);
	for (uint32_t i = 0; i < artifact->refusal_count; i++) {
		const struct md_artifact_refusal *refusal = &artifact->refusals[i];
		say("refused: (%s, %u): %s", refusal->label ? refusal->label : "no label", refusal->batch,
		    refusal->why);
	}
}

/* An older artifact that holds graphs is of more use than a new one that holds none. */
static bool keeps_older(const struct job *job)
{
	struct md_artifact older;

	if (job->artifact.graph_count || md_artifact_read(job->workplace.output, &older, NULL, NULL) != MD_OK)
		return false;
	bool keeps = older.graph_count > 0;
	md_artifact_finish(&older);
	return keeps;
}

static int publish(struct job *job)
{
	struct md_error err = {0};
	bool kept = keeps_older(job);

	if (md_artifact_doubtful(&job->artifact)) {
		say("graph %s/%u has words in doubt that were not tested; nothing was written",
		    md_artifact_doubtful(&job->artifact)->label, md_artifact_doubtful(&job->artifact)->batch);
		return MD_EXIT_FAILED;
	}

	if (!kept && write_held(&job->artifact, job->workplace.output, &job->sizes, &err) != MD_OK) {
		job->traces_needed = true;
		return fail(&err, MD_EXIT_COMMAND);
	}
	summarize(job);
	if (kept)
		say("%s: the artifact that is there holds graphs, and stays as it was", output);
	return job->artifact.refusal_count || !job->artifact.graph_count ? MD_EXIT_FAILED : MD_EXIT_OK;
}

static int carry_out(struct job *job)
{
	struct md_error err = {0};
	int result = -1;

	if (md_repeat_init(&job->repeat, &command, &job->workplace, &err) != MD_OK)
		result = fail(&err, MD_EXIT_COMMAND);
	if (result < 0)
		result = capture(job, 0);
	if (result < 0 && !single)
		result = capture(job, 1);
	if (result < 0)
		result = analyze(job);
	if (result < 0)
		result = verify(job);
	return result < 0 ? publish(job) : result;
}

/* OUT.1.mtrace, or OUT.1.mtrace.part of a run that was cut short. */
static bool keep_trace(const struct job *job, unsigned index, char kept[PATH_MAX])
{
	const char *path = job->workplace.output;
	char part[PATH_MAX + 8];
	size_t size = strlen(path);
	struct stat info;

	if (size > 7 && !strcmp(path + size - 7, ".medusa"))
		size -= 7;
	snprintf(kept, PATH_MAX, "%.*s.%u.mtrace", (int)size, path, index + 1);
	if (!rename(job->traces[index], kept))
		return true;
	snprintf(part, sizeof(part), "%s.part", job->traces[index]);
	if (stat(part, &info) || !info.st_size)
		return false;
	snprintf(kept, PATH_MAX, "%.*s.%u.mtrace.part", (int)size, path, index + 1);
	return !rename(part, kept);
}

static void keep_all(const struct job *job)
{
	char kept[PATH_MAX];

	for (unsigned i = 0; i < MD_CAPTURES_MOST; i++)
		if (*job->traces[i] && keep_trace(job, i, kept) && !keep_traces)
			say("the trace is kept: %s", kept);
}

static void clean_up(struct job *job)
{
	for (unsigned i = 0; i < job->run_count; i++)
		md_trace_finish(&job->runs[i]);
	if (job->analyzed)
		md_artifact_finish(&job->artifact);
	md_repeat_finish(&job->repeat);
	md_stop_hold();
	if (!md_stop_signal() && (keep_traces || job->traces_needed))
		keep_all(job);
	md_workplace_close(&job->workplace);
	md_stop_release();
}

/* Before the engine is started: it would run for nothing if neither traces nor artifact could be written. */
static int work(char **argv)
{
	struct job *job = calloc(1, sizeof(*job));
	struct md_error err = {0};
	int result;

	if (!job) {
		say("out of memory");
		return MD_EXIT_COMMAND;
	}
	job->argv = argv;
	md_stop_watch();
	if (md_workplace_open(output, &job->workplace, &err) != MD_OK) {
		result = md_options_report(&command, &err);
	} else {
		result = carry_out(job);
		clean_up(job);
	}
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
	if (!output)
		return md_options_usage_error(&command, "name the artifact to write with -o");
	if (strlen(output) > PATH_MAX - 32)
		return md_options_usage_error(&command, "-o: the path is too long");
	if (arguments.file_count)
		return md_options_usage_error(&command, "%s: the artifact is named with -o", arguments.files[0]);
	if (!arguments.command)
		return md_options_usage_error(&command, "put the command that starts the engine behind --");
	if (!valid_until() || (until && strlen(until) > 400))
		return md_options_usage_error(&command, "--until: \"%s\" is none of exit, graphs=N, mark=NAME", until);
	if (single && second)
		return md_options_usage_error(&command, "--single and --second exclude each other");
	if (store_images && no_images)
		return md_options_usage_error(&command, "--store-images and --no-images exclude each other");
	if (accept_unvaried && (no_verify || single))
		return md_options_usage_error(&command,
					      "--accept-unvaried: with --no-verify or --single nothing is compared");
	if (allow_uncompared && (no_verify || single))
		return md_options_usage_error(&command,
					      "--allow-uncompared: with --no-verify or --single nothing is compared");
	if (md_analyze_time(created, &err) != MD_OK)
		return md_options_usage_error(&command, "%s", err.message);
	result = md_tolerance_take(&command, nondeterministic, &tolerance);
	return result >= 0 ? result : work(arguments.command);
}
