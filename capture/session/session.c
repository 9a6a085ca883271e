/* SPDX-License-Identifier: Apache-2.0 */
/* Life of the recording: starts at the first hook, drains every 50 ms, ends complete, or steps aside with a reason. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/child.h"
#include "base/cleanup.h"
#include "base/descriptor.h"
#include "base/environment.h"
#include "base/note.h"
#include "base/secret.h"
#include "base/setting.h"
#include "base/thread.h"
#include "capture/api/early.h"
#include "capture/place/place.h"
#include "capture/probe/poison_test.h"
#include "capture/record/allocs.h"
#include "capture/record/constant_hashes.h"
#include "capture/record/given.h"
#include "capture/record/touched.h"
#include "capture/record/graphs.h"
#include "capture/record/launched.h"
#include "capture/record/updates.h"
#include "capture/session/by_rank.h"
#include "capture/session/owner.h"
#include "driver/maker.h"
#include "driver/process_arguments.h"
#include "ranks/meeting.h"

#define DRAIN_NS 50000000

struct md_capture md_capture;
pthread_mutex_t md_capture_mutex = PTHREAD_MUTEX_INITIALIZER;

static pthread_once_t start_once = PTHREAD_ONCE_INIT;
static bool recording;              /* a recording has begun in this process, or in the one that it is a copy of */
static _Thread_local bool starting; /* the driver's own start-up may come through our hooks */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
	bool running, stop;
} drain = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

/* ---- options ---- */

static void read_until(struct md_capture_options *options)
{
	const char *until = md_environment_get("MEDUSA_UNTIL");
	if (!until || !*until || !strcmp(until, "exit")) {
		options->until = MD_UNTIL_EXIT;
	} else if (!strncmp(until, "graphs=", 7) &&
		   md_setting_parse_number(until + 7, 1, UINT64_MAX, &options->until_graphs)) {
		options->until = MD_UNTIL_GRAPHS;
	} else if (!strncmp(until, "mark=", 5) && until[5]) {
		options->until = MD_UNTIL_MARK;
		snprintf(options->until_mark, sizeof(options->until_mark), "%s", until + 5);
	} else {
		md_setting_say_unreadable("MEDUSA_UNTIL", until, "one of exit, graphs=N, mark=NAME",
					  "recording goes on until the exit");
	}
}

static void read_store(struct md_capture_options *options)
{
	const char *store = md_environment_get("MEDUSA_STORE_IMAGES");
	if (!store || !*store || !strcmp(store, "anonymous"))
		return;
	if (!strcmp(store, "all"))
		options->store = MD_STORE_ALL;
	else if (!strcmp(store, "none"))
		options->store = MD_STORE_NONE;
	else
		md_setting_say_unreadable("MEDUSA_STORE_IMAGES", store, "one of all, anonymous, none",
					  "images that lie in no file are stored");
}

static void read_options(struct md_capture_options *options)
{
	char kv[32];
	read_until(options);
	read_store(options);
	options->shift = md_setting_number("MEDUSA_SHIFT", 0, UINT64_MAX, 0);
	options->kv_bytes =
	    md_setting_number_in(md_capture_kv_text(kv, sizeof(kv)), "MEDUSA_KV_BYTES", 0, UINT64_MAX, 0);
	options->probe = md_setting_is_on("MEDUSA_PROBE", true, true, "permanent contents are tested");
	options->probe_limit = md_setting_number("MEDUSA_PROBE_LIMIT", 0, UINT64_MAX, 4ull << 30);
	options->probe_device_limit = md_setting_number("MEDUSA_PROBE_DEVICE_LIMIT", 0, UINT64_MAX, UINT64_MAX);
}

/* ---- drain ---- */

static void *drain_main(void *argument)
{
	struct md_trace_writer *writer = argument; /* lives until this thread has been joined */
	md_guard_enter();                          /* all driver calls of this thread are ours */
	pthread_mutex_lock(&drain.lock);
	while (!drain.stop) {
		struct timespec until;
		struct md_error err = {0};
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += DRAIN_NS;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&drain.wake, &drain.lock, &until);
		if (drain.stop || !atomic_load(&md_capture.active))
			continue;
		pthread_mutex_unlock(&drain.lock);
		if (md_trace_writer_flush(writer, &err) != MD_OK)
			md_capture_trouble("%s", err.message);
		pthread_mutex_lock(&drain.lock);
	}
	pthread_mutex_unlock(&drain.lock);
	return NULL;
}

static void drain_stop(void)
{
	bool running;
	pthread_mutex_lock(&drain.lock);
	running = drain.running && !pthread_equal(drain.thread, pthread_self());
	if (running)
		drain.running = false;
	drain.stop = true;
	pthread_cond_signal(&drain.wake);
	pthread_mutex_unlock(&drain.lock);
	if (running)
		pthread_join(drain.thread, NULL);
}

/* ---- start ---- */

#define COMMAND_BYTES 4096 /* the rest of a longer command line is left out */

static char *join_by_spaces(const struct md_argument_list *words)
{
	struct md_buf line;
	md_buf_init(&line);
	for (uint32_t i = 0; i < words->count; i++) {
		if (i)
			md_buf_put_u8(&line, ' ');
		md_buf_put(&line, words->items[i].text, strlen(words->items[i].text));
	}
	md_buf_put_u8(&line, 0);
	if (!line.failed)
		return (char *)line.data;
	md_buf_finish(&line);
	return NULL;
}

/* Without secrets. */
static char *command_line(void)
{
	MD_AUTO_FILE FILE *file = md_descriptor_read_stream("/proc/self/cmdline");
	char text[COMMAND_BYTES] = "";
	struct md_argument_list words = {0};
	size_t size = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
	bool done = true;
	for (const char *word = text; done && word < text + size; word += strlen(word) + 1)
		done = md_arguments_add(&words, word);
	char *line = done && md_secret_hide_arguments(&words) ? join_by_spaces(&words) : NULL;
	md_arguments_finish(&words);
	return line;
}

static void put_arguments(struct md_trace_writer *writer)
{
	struct md_argument_list arguments = {0};
	if (md_process_arguments(&arguments))
		md_trace_put_arguments(writer, &arguments);
	else
		md_warn("out of memory for the arguments of this process: they are not recorded");
	md_arguments_finish(&arguments);
}

static void put_meta(struct md_trace_writer *writer)
{
	MD_AUTO_FREE char *command = command_line();
	struct timespec now;
	struct md_trace_meta meta = {0};
	clock_gettime(CLOCK_REALTIME, &now);
	meta.process_id = (uint32_t)getpid();
	meta.start_unix_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	meta.shift = md_capture.options.shift;
	meta.command = command ? command : "";
	meta.tool_version = MD_VERSION;
	md_trace_put_meta(writer, &meta);
}

/*
 * A child shares the file but not our threads: it records nothing, and never touches the writer. Nor does it wait for
 * a lock, which a thread of the parent may hold.
 */
static void renew(void) MD_LOCKS_UNCHECKED
{
	pthread_mutex_init(&md_capture_mutex, NULL);
	pthread_mutex_init(&drain.lock, NULL);
	md_capture_place_renew();
	md_capture_shift_renew();
	md_maker_renew();
	if (!recording)
		return;
	atomic_store(&md_capture.active, false);
	md_capture.writer = NULL;
	drain.running = false;
	md_capture_disown();
}

__attribute__((constructor(MD_LOADED_SETTINGS))) static void watch_children(void)
{
	static struct md_child_renewal own = {.renew = renew};
	md_child_register(&own);
}

static void finish(bool probe);

static void at_exit(void)
{
	finish(true);
}

static void start_recording(void)
{
	struct md_error err = {0};
	struct md_trace_part *part;
	struct md_trace_writer *writer;
	read_options(&md_capture.options);
	part = md_capture_own(md_capture.options.trace);
	if (!part)
		return;
	if (md_trace_writer_create_in(part, md_capture.options.trace, &writer, &err) != MD_OK) {
		md_error_log("nothing is recorded: %s", err.message);
		return;
	}
	recording = true;
	put_meta(writer);
	put_arguments(writer);
	md_capture_lock();
	md_capture.writer = writer;
	md_capture_unlock();
	md_capture_place_open();
	/* Registered after the driver was loaded, so it runs while the driver still works. */
	atexit(at_exit);
	drain.running = md_thread_start(&drain.thread, drain_main, writer) == 0;
	atomic_store(&md_capture.active, true);
	md_info("recording to %s", md_capture.options.trace);
}

static void start(void)
{
	struct md_error err = {0};
	uint32_t rank, ranks;
	starting = true;
	if (md_cuda_load(&err) != MD_OK || md_capture_rank(&rank, &ranks, &err) != MD_OK)
		md_error_log("nothing is recorded: %s", err.message);
	else if (!md_capture_path("MEDUSA_TRACE", md_capture.options.trace, sizeof(md_capture.options.trace)))
		md_capture_not_asked_warn();
	else if (!md_capture_lacks_files_warn())
		start_recording();
	md_capture_put_early();
	starting = false;
}

bool md_capture_enter(void)
{
	if (starting)
		return false;
	md_child_check(); /* which may end the recording */
	pthread_once(&start_once, start);
	if (!atomic_load_explicit(&md_capture.active, memory_order_acquire)) {
		md_capture_disowned_warn();
		return false;
	}
	return md_guard_enter();
}

void md_capture_leave(void)
{
	md_guard_leave();
}

/* ---- fingerprint ---- */

void md_capture_context_seen(void)
{
	static atomic_bool seen;
	struct md_fingerprint fingerprint;
	struct md_error err = {0};
	CUcontext current = NULL;
	if (atomic_load_explicit(&seen, memory_order_relaxed) || md_cuda.cuCtxGetCurrent(&current) || !current ||
	    atomic_exchange(&seen, true))
		return;
	if (md_fingerprint_read(&fingerprint, &err) == MD_OK) {
		md_capture_lock();
		if (md_capture.writer)
			md_trace_put_fingerprint(md_capture.writer, &fingerprint);
		md_capture_unlock();
		md_fingerprint_finish(&fingerprint);
	} else {
		md_warn("the fingerprint of this machine is not recorded: %s", err.message);
	}
	md_capture_shift_start();
}

/* ---- end ---- */

static _Atomic(struct md_trace_writer *) abandoned; /* freed at exit: the drain thread may be using it */

/* The thread that ends the recording may read the writer without the lock: no other thread changes it any more. */
void md_capture_trouble(const char *format, ...) MD_LOCKS_UNCHECKED
{
	char why[512];
	va_list args;
	if (!atomic_exchange(&md_capture.active, false))
		return;
	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	md_error_log("recording stopped, the program runs on: %s", why);
	md_note_stopped(why);
	atomic_store(&abandoned, md_capture.writer);
}

static uint64_t difference(uint64_t from, uint64_t bytes)
{
	return bytes < from ? from - bytes : 0;
}

/*
 * What graphs took, from the first stream capture to the last instantiation; or all that the engine took since the answer,
 * beyond cache and peak, if that is more: a cold start takes it, too (buffers, workspaces, memory pools).
 */
static void put_kv_again(void) MD_CAPTURE_HELD
{
	struct md_kv *kv = &md_capture.kv;
	uint64_t left = md_capture.free_after_instantiate;
	if (!kv->present)
		return;
	if (left) {
		uint64_t graphs = difference(md_capture.free_before_capture, left);
		uint64_t all = difference(difference(kv->baseline_free, left), kv->kv_bytes + kv->peak);
		kv->graph_bytes = graphs > all ? graphs : all;
	}
	md_trace_put_kv(md_capture.writer, md_capture_next(), kv);
}

static void put_totals(void) MD_CAPTURE_HELD
{
	md_capture_graphs_flush();
	md_capture_launches_put();
	md_capture_transfers_put();
	md_capture_given_put();
	md_capture_touched_put(md_capture_warm_until());
	put_kv_again();
}

/* A later process of the program that only looks at the device must not replace a recording. */
static bool is_worth_nothing(bool has_graphs)
{
	return !has_graphs && access(md_capture.options.trace, F_OK) == 0;
}

static void discard(struct md_trace_writer *writer)
{
	char part[sizeof(md_capture.options.trace) + 8];
	snprintf(part, sizeof(part), "%s.part", md_capture.options.trace);
	md_trace_writer_abandon(writer);
	unlink(part);
	md_warn("no graph was captured; %s stays as it was", md_capture.options.trace);
}

static void complete(struct md_trace_writer *writer, bool has_graphs)
{
	struct md_error err = {0};
	drain_stop();
	if (is_worth_nothing(has_graphs))
		discard(writer);
	else if (md_trace_writer_close(writer, &err) != MD_OK)
		md_error_log("the trace could not be completed: %s", err.message);
	else
		md_info("trace complete: %s", md_capture.options.trace);
}

/* Completes the trace; hooks pass through from here on. probe: the driver may still be called. Lock not held. */
static void finish(bool probe)
{
	bool entered = md_guard_enter();
	struct md_trace_writer *writer = NULL;
	bool has_graphs;
	md_child_check();
	if (atomic_load(&md_capture.active) && probe) {
		md_capture_probe_context(NULL);
		md_capture_shift_release();
	}
	md_capture_lock();
	if (atomic_load(&md_capture.active) && probe) {
		md_capture_constants_last_look();
		md_capture_constants_put(MD_CONSTANTS_AGAIN);
	}
	/* The thread that ends the recording reports it; complete() reports a failed write of the drain thread. */
	if (atomic_exchange(&md_capture.active, false)) {
		put_totals();
		writer = md_steal_ptr(&md_capture.writer);
	}
	has_graphs = md_capture_graphs_recorded() > 0;
	md_capture_unlock();
	if (writer) /* which tests nothing any more */
		md_ranks_leave();
	if (writer)
		complete(writer, has_graphs);
	if (entered)
		md_guard_leave();
}

void md_capture_check_until(const char *mark)
{
	const struct md_capture_options *options = &md_capture.options;
	bool reached = false;
	if (options->until == MD_UNTIL_MARK) {
		reached = mark && !strcmp(mark, options->until_mark);
	} else if (options->until == MD_UNTIL_GRAPHS) {
		md_capture_lock();
		reached = md_capture_graphs_labelled() >= options->until_graphs;
		md_capture_unlock();
	}
	if (reached)
		finish(true);
}

void md_capture_check_launch(void)
{
	bool reached;
	if (md_capture.options.until != MD_UNTIL_GRAPHS)
		return;
	md_capture_lock();
	reached = !md_capture_graphs_labelled() && md_capture_graphs_recorded() >= md_capture.options.until_graphs;
	md_capture_unlock();
	if (reached)
		finish(true);
}

/*
 * Serves a process that ends without exit handlers of its own: no driver call is safe any more, and a thread that is
 * gone may hold the lock.
 */
__attribute__((destructor)) static void at_unload(void) MD_LOCKS_UNCHECKED
{
	struct md_trace_writer *writer;
	finish(false);
	writer = atomic_exchange(&abandoned, NULL);
	if (writer && md_capture.writer == writer) {
		drain_stop();
		md_capture.writer = NULL;
		md_trace_writer_abandon(writer);
	}
}
