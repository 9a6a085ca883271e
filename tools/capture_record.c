/* SPDX-License-Identifier: Apache-2.0 */
/* One warm start under capture, and whether its trace can be used. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "format/trace/order.h"
#include "format/trace/part_file.h"
#include "tools/capture_job.h"
#include "tools/stop.h"

/* Any seed but 0 moves a run's addresses; all three runs have different ones. */
static const char *const shift_seeds[MD_CAPTURES_MOST] = {NULL, "20240915", "20240916"};

/* An engine that becomes a daemon is recorded further after the command has ended. */
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

static bool is_recorded(void *user)
{
	return !access(user, F_OK);
}

/* A trace is also complete when its process has ended, even if the command goes on. It is read once. */
static bool engine_is_complete(void *user)
{
	static struct stat seen;
	struct md_trace trace;
	struct stat info;
	if (stat(user, &info) || (info.st_ino == seen.st_ino && info.st_mtim.tv_sec == seen.st_mtim.tv_sec &&
				  info.st_mtim.tv_nsec == seen.st_mtim.tv_nsec))
		return false;
	seen = info;
	if (md_trace_read(user, &trace, NULL) != MD_OK)
		return false;
	bool complete = trace.said_complete;
	md_trace_finish(&trace);
	return complete;
}

static int run_under_capture(struct md_job *job, unsigned index, int *code)
{
	static char trace[PATH_MAX + 32], when[512], images[64], kv[64], order[PATH_MAX + 64], shift[64];
	const char *env[6] = {trace, when, images};
	char *shell[] = {"sh", "-c", (char *)job->wish->second, NULL};
	struct md_run run = {.preload = "libmedusa-capture.so",
			     .env = env,
			     .env_count = 3,
			     .argv = index && job->wish->second ? shell : job->argv,
			     .left = recording_left,
			     .done = md_job_asks_engine(job) ? engine_is_complete
				     : job->wish->stop       ? is_recorded
							     : NULL,
			     .user = job->traces[index]};
	enum md_repeat_outcome outcome;
	struct md_error err = {0};
	char number[12];
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
			return md_job_fail(job, &err, MD_EXIT_COMMAND);
	} while (outcome == MD_REPEAT_AGAIN);
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
	if (stat(part, &info) || !info.st_size)
		return md_error_set(err, MD_ERR_NOT_FOUND, "no CUDA driver call was intercepted");
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

static int explain(struct md_job *job, const struct md_error *err)
{
	if (err->status == MD_ERR_NOT_FOUND)
		return md_job_fail(job, err, MD_EXIT_EMPTY);
	job->traces_needed = true;
	return md_job_fail(job, err, err->status == MD_ERR_TRUNCATED ? MD_EXIT_COMMAND : MD_EXIT_INPUT);
}

static int record(struct md_job *job, unsigned index)
{
	struct md_trace *trace = &job->runs[index];
	struct md_error err = {0};
	int code = 0, result = run_under_capture(job, index, &code);
	if (result >= 0)
		return result;
	enum md_status status = read_named_or_part(job->traces[index], trace, &err);
	if (status == MD_OK)
		job->run_count = index + 1;
	result = judge_run(job, code, status, status == MD_OK && trace->said_complete);
	if (result >= 0)
		return result;
	if (status != MD_OK)
		return explain(job, &err);
	if (trace->graph_count)
		return -1;
	md_job_say(job, "no graph was captured");
	return MD_EXIT_EMPTY;
}

/*
 * Caching allocators decide by size and address, so the second run puts the same things into the same places only if
 * addresses compare as in the first run.
 */
static int write_order(struct md_job *job, unsigned index)
{
	struct md_order order;
	struct md_error err = {0};
	snprintf(job->order, sizeof(job->order), "%s/order.%u", job->workplace.folder, index + 1);
	if (md_order_make(&job->runs[0], strtoull(shift_seeds[index], NULL, 10), &order, &err) != MD_OK)
		return md_job_fail(job, &err, MD_EXIT_COMMAND);
	if (md_order_write(&order, job->order, &err) != MD_OK) {
		md_order_finish(&order);
		return md_job_fail(job, &err, MD_EXIT_INPUT);
	}
	md_order_finish(&order);
	md_workplace_share(job->order);
	return -1;
}

int md_job_capture(struct md_job *job, unsigned index)
{
	uint64_t start = md_clock_ns();
	int result;
	md_job_say(job, "capture %u of %u", index + 1, job->wish->single ? 1 : index < 2 ? 2 : 3);
	result = index ? write_order(job, index) : -1;
	if (result < 0)
		result = record(job, index);
	if (result < 0)
		md_job_say(job, "capture %u: %u graphs, %u allocations, %u images in %.1f s", index + 1,
			   job->runs[index].graph_count, job->runs[index].alloc_count, job->runs[index].image_count,
			   (double)(md_clock_ns() - start) / 1e9);
	return result;
}
