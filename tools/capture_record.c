/* SPDX-License-Identifier: Apache-2.0 */
/* One warm start under capture, and whether its trace can be used. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "format/trace/order.h"
#include "tools/capture_job.h"
#include "tools/capture_ranks.h"
#include "tools/capture_watch.h"
#include "tools/stop.h"

/* Any seed but 0 moves a run's addresses; all three runs have different ones. */
static const char *const shift_seeds[MD_CAPTURES_MOST] = {NULL, "20240915", "20240916"};

/* ---- the run ---- */

/* Each rank repeats what its own first capture has measured. */
static bool print_kv(const struct md_job *job, char *out, size_t room)
{
	size_t at = (size_t)snprintf(out, room, "MEDUSA_KV_BYTES=");
	bool present = false;
	for (uint32_t i = 0; i < job->rank_count && at < room; i++) {
		const struct md_kv *kv = &job->ranks[i].runs[0].kv;
		present |= kv->present;
		at += (size_t)snprintf(out + at, room - at, "%s%llu", i ? "," : "",
				       kv->present ? (unsigned long long)kv->kv_bytes : 0);
	}
	return present && at < room;
}

static enum md_status renew(const struct md_job *job, unsigned index, struct md_error *err)
{
	md_rank_traces_remove(job->traces[index]);
	return md_workplace_renew(job->traces[index], ".mtrace", err);
}

static int run_under_capture(struct md_job *job, unsigned index, int *code)
{
	static char trace[PATH_MAX + 32], when[512], images[64], kv[24 * MD_RANKS_MOST], order[PATH_MAX + 64],
	    shift[64];
	const char *env[7] = {trace, when, images, md_rank_is_own() ? "MEDUSA_BY_RANK=" : "MEDUSA_BY_RANK=1"};
	char *shell[] = {"sh", "-c", (char *)job->wish->second, NULL};
	struct md_run run = {.preload = "libmedusa-capture.so",
			     .env = env,
			     .env_count = 4,
			     .argv = index && job->wish->second ? shell : job->argv};
	struct md_job_watch watch = {.job = job, .index = index, .trace = job->traces[index]};
	enum md_repeat_outcome outcome;
	struct md_error err = {0};
	char number[12];
	md_job_watch(&watch, &run);
	snprintf(number, sizeof(number), "%u", index + 1);
	if (md_workplace_file(&job->workplace, number, ".mtrace", job->traces[index], &err) != MD_OK)
		return md_options_report(job->command, &err);
	snprintf(trace, sizeof(trace), "MEDUSA_TRACE=%s", job->traces[index]);
	snprintf(when, sizeof(when), "MEDUSA_UNTIL=%s", md_job_until(job));
	/* Images that lie in files are taken from there by the analysis; see struct md_analyze_options. */
	snprintf(images, sizeof(images), "MEDUSA_STORE_IMAGES=%s", job->wish->no_images ? "none" : "anonymous");
	if (index) {
		snprintf(shift, sizeof(shift), "MEDUSA_SHIFT=%s", shift_seeds[index]);
		env[run.env_count++] = shift;
		snprintf(order, sizeof(order), "MEDUSA_ORDER=%s/order.%u", job->workplace.folder, index + 1);
		env[run.env_count++] = order;
		if (print_kv(job, kv, sizeof(kv)))
			env[run.env_count++] = kv;
	}
	do {
		if (md_repeat_run(&job->repeat, &run, -1, code, &outcome, &err) != MD_OK ||
		    (outcome == MD_REPEAT_AGAIN && renew(job, index, &err) != MD_OK))
			return md_job_fail(job, &err, MD_EXIT_COMMAND);
	} while (outcome == MD_REPEAT_AGAIN);
	job->repeat.late = (job->repeat.late && !watch.over) || watch.stopped;
	return outcome == MD_REPEAT_GIVEN_UP ? MD_EXIT_COMMAND : -1;
}

/* An engine that has given up its rights can complete a trace, but not rename it. */
static enum md_status read_named_or_part(const char *path, struct md_trace *out, struct md_error *err)
{
	char part[PATH_MAX + 8];
	struct stat info;
	if (!access(path, F_OK))
		return md_trace_read(path, out, err);
	snprintf(part, sizeof(part), "%s.part", path);
	if (stat(part, &info) || !info.st_size) {
		MD_FORWARD(md_output_check_report(part, err)); /* the disk was full before recording could begin */
		return md_error_set(err, MD_ERR_NOT_FOUND, "no CUDA driver call was intercepted");
	}
	MD_FORWARD(md_trace_read(part, out, err));
	if (out->complete)
		return MD_OK;
	md_trace_finish(out);
	return md_error_set(
	    err, MD_ERR_TRUNCATED,
	    "recording was cut short, the trace is incomplete: the process was killed before it had said that "
	    "it is complete (MEDUSA_LOG=info tells more; vLLM says it if medusa-vllm is installed by pip, "
	    "medusa-vllm(7))");
}

/* A server is told to stop once what --until names has happened; its trace is complete by then. */
static int judge_run(const struct md_job *job, int code, enum md_status trace, bool said_complete)
{
	bool recorded = trace == MD_OK && (md_job_has_end(job) || (md_job_asks_engine(job) && said_complete));
	md_job_forget_terminal(recorded);
	if (md_stop_signal())
		return 128 + md_stop_signal();
	if (code && !recorded) {
		md_job_say(job, "the command ended with %d; " MD_REPEAT_OWN, code);
		return MD_EXIT_COMMAND;
	}
	if (code)
		md_job_say(job, "the command ended with %d after recording was complete", code);
	return -1;
}

/* ---- what has become of it ---- */

static int refuse_kind(const struct md_job *job)
{
	if (job->bundle)
		md_job_say(
		    job, "%s: is a file, and a bundle of %u ranks is a folder: remove the file, or name another output",
		    job->wish->output, job->rank_count);
	else
		md_job_say(job,
			   "%s: is a bundle, and no process of this command has said that it is one of several ranks: "
			   "remove the folder, or name another output",
			   job->wish->output);
	return MD_EXIT_INPUT;
}

/* The first run shows whether the command is a launcher, and how many ranks it starts. */
static int take_ranks(struct md_job *job, uint32_t ranks)
{
	struct stat info;
	if (ranks) {
		struct md_job_rank *all = calloc(ranks, sizeof(*all));
		if (!all) {
			md_job_say(job, "out of memory for %u ranks", ranks);
			return MD_EXIT_COMMAND;
		}
		free(job->ranks);
		job->ranks = all;
		job->rank_count = ranks;
		job->bundle = true;
		job->at = NULL;
	}
	if (!stat(job->workplace.output, &info) && S_ISDIR(info.st_mode) != job->bundle)
		return refuse_kind(job);
	if (job->bundle)
		md_job_say(job, "%u ranks: a bundle, with an artifact for each", ranks);
	return -1;
}

static int find_ranks(struct md_job *job, unsigned index, struct md_rank_traces *found)
{
	struct md_error err = {0};
	if (md_rank_traces_find(job->traces[index], found, &err) != MD_OK)
		return md_job_fail(job, &err, MD_EXIT_INPUT);
	int result = index ? -1 : take_ranks(job, found->ranks);
	if (result >= 0)
		return result;
	if (found->ranks && found->ranks != (job->bundle ? job->rank_count : 0)) {
		md_job_say(job, "capture %u has %u ranks, and the first one had %u", index + 1, found->ranks,
			   job->bundle ? job->rank_count : 1);
		return MD_EXIT_INPUT;
	}
	for (uint32_t i = 0; i < job->rank_count; i++)
		if (job->bundle)
			md_rank_trace(job->traces[index], i, job->rank_count, job->ranks[i].traces[index]);
		else
			memcpy(job->ranks[i].traces[index], job->traces[index], PATH_MAX);
	return -1;
}

static int explain(struct md_job *job, const struct md_error *err)
{
	if (err->status == MD_ERR_NOT_FOUND)
		return md_job_fail(job, err, MD_EXIT_EMPTY);
	job->traces_needed = true;
	return md_job_fail(job, err,
			   err->status == MD_ERR_TRUNCATED || err->status == MD_ERR_OUTPUT ? MD_EXIT_COMMAND
											   : MD_EXIT_INPUT);
}

/* said: whether all ranks have said that they are complete; why: of the first rank that has no trace. */
static enum md_status read_traces(struct md_job *job, unsigned index, const struct md_rank_traces *found, bool *said,
				  struct md_error *why)
{
	*said = true;
	for (uint32_t i = 0; i < job->rank_count; i++) {
		struct md_job_rank *rank = &job->ranks[i];
		struct md_error err = {0};
		enum md_status status = read_named_or_part(rank->traces[index], &rank->runs[index], &err);
		if (status == MD_OK)
			rank->run_count = index + 1;
		*said &= status == MD_OK && rank->runs[index].said_complete;
		if (status == MD_OK || why->status)
			continue;
		job->at = rank;
		*why = err;
		if (job->bundle && !found->there[i])
			md_error_set(
			    why, MD_ERR_NOT_FOUND,
			    "no CUDA driver call was intercepted; all %u ranks of a bundle run on this host, each "
			    "once",
			    job->rank_count);
	}
	return why->status;
}

static int check_graphs(struct md_job *job)
{
	if (job->at->runs[job->at->run_count - 1].graph_count)
		return -1;
	md_job_say(job, "no graph was captured");
	return MD_EXIT_EMPTY;
}

static int record(struct md_job *job, unsigned index)
{
	static struct md_rank_traces found; /* large */
	struct md_error err = {0};
	bool said = false;
	int code = 0, result = run_under_capture(job, index, &code);
	if (result < 0)
		result = find_ranks(job, index, &found);
	if (result >= 0)
		return md_stop_signal() ? 128 + md_stop_signal() : result;
	if (job->repeat.late && !md_stop_signal()) { /* the reason was said */
		job->traces_needed = true;
		return MD_EXIT_COMMAND;
	}
	enum md_status status = read_traces(job, index, &found, &said, &err);
	struct md_job_rank *lacks = job->at;
	job->at = job->bundle ? NULL : job->ranks;
	result = judge_run(job, code, status, said);
	job->at = lacks;
	if (result < 0 && status != MD_OK)
		result = explain(job, &err);
	return result < 0 ? md_job_each(job, check_graphs) : result;
}

/*
 * Caching allocators decide by size and address, so the second run puts the same things into the same places only if
 * addresses compare as in the first run.
 */
static int write_order(struct md_job *job, unsigned index)
{
	struct md_job_rank *rank = job->at;
	struct md_order order;
	struct md_error err = {0};
	char own[48] = "";
	if (job->bundle) /* as capture/session/by_rank.h says */
		snprintf(own, sizeof(own), ".rank-%u-of-%u", md_job_rank(job), job->rank_count);
	snprintf(rank->order, sizeof(rank->order), "%s/order.%u%s", job->workplace.folder, index + 1, own);
	if (md_order_make(&rank->runs[0], strtoull(shift_seeds[index], NULL, 10), &order, &err) != MD_OK)
		return md_job_fail(job, &err, MD_EXIT_COMMAND);
	enum md_status status = md_order_write(&order, rank->order, &err);
	md_order_finish(&order);
	if (status != MD_OK)
		return md_job_fail(job, &err, MD_EXIT_COMMAND);
	md_workplace_share(rank->order);
	return -1;
}

static int write_second_order(struct md_job *job)
{
	return write_order(job, 1);
}

static int write_third_order(struct md_job *job)
{
	return write_order(job, 2);
}

int md_job_capture(struct md_job *job, unsigned index)
{
	uint64_t start = md_clock_ns();
	int result = -1;
	md_job_say(job, "capture %u of %u", index + 1, job->wish->single ? 1 : index < 2 ? 2 : 3);
	if (index)
		result = md_job_each(job, index == 1 ? write_second_order : write_third_order);
	if (result < 0)
		result = record(job, index);
	for (uint32_t i = 0; result < 0 && i < job->rank_count; i++) {
		const struct md_trace *run = &job->ranks[i].runs[index];
		job->at = &job->ranks[i];
		md_job_say(job, "capture %u: %u graphs, %u allocations, %u images in %.1f s", index + 1,
			   run->graph_count, run->alloc_count, run->image_count, (double)(md_clock_ns() - start) / 1e9);
	}
	job->at = job->bundle ? NULL : job->ranks;
	return result;
}
