/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at the traces of a run while it is under way: what was recorded, what is waited for, and what has gone wrong. */
#include "tools/capture_watch.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/note.h"
#include "format/trace/part_file.h"
#include "tools/capture_ranks.h"
#include "tools/told.h"

#define TEXT_BYTES 700
#define EMPTY_TIMES 5
#define LOOK_NS 200000000u

/* ---- until when the run is waited for; user: the watch ---- */

/* An engine that becomes a daemon is recorded further after the command has ended. */
static enum md_run_left trace_left(const char *path, pid_t *pid)
{
	char part[PATH_MAX + 8];
	struct stat info;
	snprintf(part, sizeof(part), "%s.part", path);
	/* The lock lasts until the process ends, and goes with the file when that gets its name, which may be between these lines. */
	bool writes = md_trace_part_is_held(part, pid);
	bool named = !access(path, F_OK);
	if (writes && !named)
		return MD_RUN_AT_WORK;
	if (md_trace_part_is_held(path, pid) || named || stat(part, &info) || info.st_size)
		return MD_RUN_OVER;
	return MD_RUN_UNKNOWN;
}

static enum md_run_left recording_left(void *user, pid_t *pid)
{
	static struct md_rank_traces found; /* large */
	const char *trace = ((struct md_job_watch *)user)->trace;
	bool unknown = false;
	char path[PATH_MAX];
	if (md_rank_traces_find(trace, &found, NULL) != MD_OK || !found.ranks)
		return trace_left(trace, pid);
	*pid = 0;
	for (uint32_t i = 0; i < found.ranks; i++) {
		pid_t holder = 0;
		md_rank_trace(trace, i, found.ranks, path);
		enum md_run_left left = trace_left(path, &holder);
		*pid = holder > 0 ? holder : *pid;
		if (left == MD_RUN_AT_WORK)
			return left;
		unknown |= left == MD_RUN_UNKNOWN;
	}
	return unknown ? MD_RUN_UNKNOWN : MD_RUN_OVER;
}

static bool trace_is_there(const char *path, uint32_t rank)
{
	(void)rank;
	return !access(path, F_OK);
}

/* A trace is also complete when its process has ended, even if the command goes on. It is read once. */
static bool trace_says_complete(const char *path, uint32_t rank)
{
	static struct stat seen[MD_RANKS_MOST];
	static bool said[MD_RANKS_MOST];
	struct md_trace trace;
	struct stat info;
	if (stat(path, &info))
		return false;
	if (info.st_ino == seen[rank].st_ino && info.st_mtim.tv_sec == seen[rank].st_mtim.tv_sec &&
	    info.st_mtim.tv_nsec == seen[rank].st_mtim.tv_nsec)
		return said[rank];
	seen[rank] = info;
	said[rank] = false;
	if (md_trace_read(path, &trace, NULL) != MD_OK)
		return false;
	said[rank] = trace.said_complete;
	md_trace_finish(&trace);
	return said[rank];
}

static bool all_ranks(const char *trace, bool (*is_so)(const char *path, uint32_t rank))
{
	static struct md_rank_traces found; /* large */
	char path[PATH_MAX];
	if (md_rank_traces_find(trace, &found, NULL) != MD_OK)
		return false;
	for (uint32_t i = 0; i < found.ranks; i++) {
		md_rank_trace(trace, i, found.ranks, path);
		if (!is_so(path, i))
			return false;
	}
	return found.ranks || is_so(trace, 0);
}

static bool is_recorded(void *user)
{
	const struct md_job_watch *watch = user;
	return watch->stopped || all_ranks(watch->trace, trace_is_there);
}

static bool may_end(void *user)
{
	const struct md_job_watch *watch = user;
	if (md_repeat_is_lost(&watch->job->repeat))
		return true;
	if (md_job_asks_engine(watch->job))
		return watch->stopped || all_ranks(watch->trace, trace_says_complete);
	return watch->job->wish->stop && is_recorded(user);
}

/* A process whose recording has stopped keeps others from recording until it ends. */
static bool has_stopped(const struct md_job *job)
{
	struct md_note *notes = NULL;
	size_t count = 0;
	bool stopped = false;
	if (md_note_list(job->repeat.notes, &notes, &count, NULL) != MD_OK)
		return false;
	for (size_t i = 0; i < count && !stopped; i++) {
		stopped = notes[i].event == MD_NOTE_STOPPED && notes[i].pid > 1 &&
			  (!kill((pid_t)notes[i].pid, 0) || errno == EPERM);
		if (stopped)
			md_job_say(job, "recording has stopped in process %ld, and cannot be completed any more: %s",
				   notes[i].pid, notes[i].why);
	}
	md_note_list_finish(notes, count);
	return stopped;
}

/* ---- what was recorded so far ---- */

struct state {
	bool begun, named, gone; /* named: the trace is complete; gone: nobody writes it any more */
	uint32_t process, graphs, labelled;
	char mark[100], why[MD_ERROR_MESSAGE_BYTES]; /* "" if there was none; why: it cannot be read */
};

static void read_state(const char *path, struct state *out)
{
	char part[PATH_MAX + 8];
	struct md_error err = {0};
	struct md_trace trace;
	struct stat info;
	snprintf(part, sizeof(part), "%s.part", path);
	*out = (struct state){.named = !access(path, F_OK)};
	out->begun = out->named || (!stat(part, &info) && info.st_size);
	if (!out->begun)
		return;
	if (md_trace_read(out->named ? path : part, &trace, &err) != MD_OK) {
		snprintf(out->why, sizeof(out->why), "%s", err.message);
		return;
	}
	pid_t holder = 0;
	out->gone = !out->named && !md_trace_part_is_held(part, &holder);
	out->process = trace.process_id;
	out->graphs = trace.graph_count;
	out->labelled = md_trace_labelled(&trace);
	snprintf(out->mark, sizeof(out->mark), "%s", trace.mark);
	md_trace_finish(&trace);
}

static void describe(const struct state *state, char text[TEXT_BYTES])
{
	char labelled[48] = ", none of them labelled", mark[128] = "no mark";
	if (*state->mark)
		snprintf(mark, sizeof(mark), "the mark \"%s\"", state->mark);
	if (state->labelled)
		snprintf(labelled, sizeof(labelled), ", %" PRIu32 " of them labelled", state->labelled);
	if (!state->begun)
		snprintf(text, TEXT_BYTES, "no CUDA driver call has been intercepted");
	else if (*state->why)
		snprintf(text, TEXT_BYTES, "what was recorded cannot be read: %s", state->why);
	else
		snprintf(text, TEXT_BYTES, "%" PRIu32 " graphs are recorded in process %" PRIu32 "%s; it has set %s%s",
			 state->graphs, state->process, state->graphs ? labelled : "", mark,
			 state->named  ? ", and its recording has ended"
			 : state->gone ? ", and has ended without completing the trace"
				       : "");
}

/* Calls act for the trace of each rank; `rank` is "" or "rank 1: ". */
static void each_state(struct md_job_watch *watch,
		       void (*act)(struct md_job_watch *watch, const struct state *state, const char *rank))
{
	struct md_rank_traces *found = calloc(1, sizeof(*found));
	char path[PATH_MAX], rank[32] = "";
	struct state state;
	if (!found || md_rank_traces_find(watch->trace, found, NULL) != MD_OK || !found->ranks) {
		read_state(watch->trace, &state);
		act(watch, &state, "");
	}
	for (uint32_t i = 0; found && i < found->ranks; i++) {
		md_rank_trace(watch->trace, i, found->ranks, path);
		snprintf(rank, sizeof(rank), "rank %" PRIu32 ": ", i);
		read_state(path, &state);
		act(watch, &state, rank);
	}
	free(found);
}

/* ---- what the user hears ---- */

static void name_awaited(const struct md_job *job, char text[TEXT_BYTES])
{
	const char *until = md_job_until(job);
	if (!strncmp(until, "mark=", 5))
		snprintf(text, TEXT_BYTES, "the mark \"%s\"", until + 5);
	else if (!strncmp(until, "graphs=", 7))
		snprintf(text, TEXT_BYTES, "%s graphs", until + 7);
	else
		snprintf(text, TEXT_BYTES, "the command to end");
}

/* Why the engine may never do what is waited for. */
static void say_told(const struct md_job_watch *watch)
{
	static struct md_told told; /* large */
	md_told_read(watch->job->repeat.told, &told);
	for (unsigned i = 0; i < told.count; i++)
		md_job_say(watch->job, "plug-in %s", told.lines[i]);
	if (!told.count && md_job_asks_engine(watch->job))
		md_job_say(
		    watch->job,
		    "no plug-in of Medusa's has been loaded, which would set the mark: install it where the engine's "
		    "Python finds it (medusa-vllm(7), medusa-torch(7)), let the engine call medusa_mark(\"complete\"), "
		    "or "
		    "say when the recording ends (--until mark=NAME or graphs=N, with --stop)");
}

static void say_state(struct md_job_watch *watch, const struct state *state, const char *rank)
{
	char text[TEXT_BYTES];
	describe(state, text);
	md_job_say(watch->job, "%s%s", rank, text);
}

static void say_late(void *user)
{
	struct md_job_watch *watch = user;
	double seconds = (double)watch->job->repeat.limit_ns / 1e9;
	char awaited[TEXT_BYTES];
	watch->over = md_job_has_end(watch->job) && is_recorded(watch);
	name_awaited(watch->job, awaited);
	if (watch->over) {
		md_job_say(
		    watch->job,
		    "capture %u: everything is recorded, and the command has not ended after %g s (--timeout): it is "
		    "ended (--stop ends it sooner)",
		    watch->index + 1, seconds);
		return;
	}
	md_job_say(watch->job, "capture %u: %g s have passed (--timeout), still waiting for %s: the command is ended",
		   watch->index + 1, seconds, awaited);
	each_state(watch, say_state);
	say_told(watch);
}

static void add_graphs(struct md_job_watch *watch, const struct state *state, const char *rank)
{
	(void)rank;
	watch->graphs += state->graphs;
}

static uint64_t bytes_at(const char *path)
{
	struct stat info;
	return stat(path, &info) ? 0 : (uint64_t)info.st_size;
}

static uint64_t bytes_recorded(const struct md_job_watch *watch)
{
	static struct md_rank_traces found; /* large */
	char path[PATH_MAX], part[PATH_MAX + 8];
	uint64_t bytes = 0;
	if (md_rank_traces_find(watch->trace, &found, NULL) != MD_OK)
		return 0;
	for (uint32_t i = 0; !i || i < found.ranks; i++) {
		if (found.ranks)
			md_rank_trace(watch->trace, i, found.ranks, path);
		else
			snprintf(path, sizeof(path), "%s", watch->trace);
		snprintf(part, sizeof(part), "%s.part", path);
		bytes += bytes_at(path) + bytes_at(part);
	}
	return bytes;
}

static void say_quiet(struct md_job_watch *watch, uint64_t quiet_ns)
{
	const struct md_job *job = watch->job;
	char awaited[TEXT_BYTES], limit[64] = "";
	name_awaited(job, awaited);
	if (job->repeat.limit_ns)
		snprintf(limit, sizeof(limit), ", and --timeout after %g s", (double)job->repeat.limit_ns / 1e9);
	each_state(watch, say_state);
	if (md_job_has_end(job) && is_recorded(watch))
		md_job_say(job,
			   "everything is recorded; waiting for the command to end: Ctrl-C ends it%s (--stop ends it "
			   "by itself)",
			   limit);
	else
		md_job_say(job, "nothing new for %.0f s; still waiting for %s: Ctrl-C gives up%s",
			   (double)quiet_ns / 1e9, awaited, limit);
	say_told(watch);
}

/* Once for an engine that has captured graphs, and once, much later, for one that has not: it may still load its weights. */
static void look(void *user)
{
	struct md_job_watch *watch = user;
	uint64_t most = md_quiet_most(watch->job->repeat.limit_ns), now = md_clock_ns();
	if (now - watch->last < LOOK_NS)
		return;
	watch->last = now;
	uint64_t quiet = md_quiet_for(&watch->quiet, now, bytes_recorded(watch));
	if (!watch->stopped) /* the write that failed may come long after the last one that did not */
		watch->stopped = has_stopped(watch->job);
	if (quiet < most || watch->said_quiet)
		return;
	if (watch->looked != watch->quiet.since) {
		watch->graphs = 0;
		each_state(watch, add_graphs);
		watch->looked = watch->quiet.since;
	}
	bool *said = watch->graphs ? &watch->said_quiet : &watch->said_empty;
	if (*said || (!watch->graphs && quiet < EMPTY_TIMES * most))
		return;
	*said = true;
	say_quiet(watch, quiet);
}

void md_job_watch(struct md_job_watch *watch, struct md_run *run)
{
	run->left = recording_left;
	run->done = may_end;
	run->look = look;
	run->late = say_late;
	run->user = watch;
}
