/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/engine_steps.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "worker/engine/cgroup.h"
#include "worker/engine/cgroup_folder.h"
#include "worker/engine/health.h"
#include "worker/engine/port_owner.h"
#include "worker/engine/port_search.h"
#include "worker/engine/process_facts.h"
#include "worker/engine/stop_words.h"
#include "worker/engine/swap_sockets.h"
#include "worker/engine/template_fork.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

/*
 * A port that is taken is given up after this time, because what has just been killed still holds it, and after as many looks
 * at the least, because it ends late where there is much to do.
 */
#define PORT_NS UINT64_C(2000000000)
#define PORT_LOOKS 20u
#define PORT_LOOK_MS 20u

static const char *const names[] = {"stopped", "starting", "ready", "leaving", "swapped", "returning", "stopping"};

const char *md_engine_state_name(enum md_engine_state state)
{
	return names[state];
}

enum md_engine_state md_engine_state(const struct md_engine *engine)
{
	return engine->state;
}

/* ---- states ---- */

void md_engine_set_deadline(struct md_engine *engine, uint64_t ms)
{
	struct timeval wait = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
	event_add(engine->deadline, &wait);
}

static void stop_health(struct md_engine *engine)
{
	md_search_thread_forget(engine->search);
	md_engine_health_stop(engine->health);
	engine->search = NULL;
	engine->health = NULL;
}

void md_engine_enter(struct md_engine *engine, enum md_engine_state state)
{
	engine->state = state;
	if (state != MD_ENGINE_STARTING)
		stop_health(engine);
	event_del(engine->deadline);
	engine->events->changed(engine->context);
}

void md_engine_settle(struct md_engine *engine, enum md_engine_state state)
{
	md_engine_enter(engine, state);
	engine->events->settled(engine->context);
}

/* ---- stopping ---- */

static void on_stop_command_ended(void *context, int status)
{
	struct md_engine *engine = context;
	(void)status;
	engine->helper = NULL;
}

static bool run_stop_command(struct md_engine *engine)
{
	struct md_error err;
	char **words = md_stop_words_make(engine->settings->stop_argv, md_engine_process_id(engine->process));
	struct md_engine_command command = {.argv = words,
					    .extra = engine->settings->environment,
					    .output = engine->events->output(engine->context),
					    .helper = true};
	bool runs = words && words[0] && !engine->helper &&
		    md_engine_process_start(engine->processes, &command, on_stop_command_ended, engine, &engine->helper,
					    &err) == MD_OK;
	md_stop_words_free(words);
	return runs;
}

/*
 * Whether its device memory is away, and would come back on its way out: medusa-swap run brings it when it is told to end,
 * where the scheduler counts on the room. A checkpoint of the driver does not come back, so a call of CUDA would wait for
 * ever, also where `in` has failed. No request runs in the engine, so nobody misses what it could still do.
 */
static bool cannot_end(const struct md_engine *engine)
{
	return !engine->settings->stop_argv &&
	       (engine->state == MD_ENGINE_SWAPPED ||
		(engine->state == MD_ENGINE_RETURNING && engine->settings->swapping == MD_ENGINE_SWAP_CHECKPOINT));
}

static void tell_to_end(struct md_engine *engine)
{
	if (cannot_end(engine)) {
		md_engine_enter(engine, MD_ENGINE_STOPPING);
		md_engine_process_signal(engine->process, SIGKILL);
		return;
	}
	md_engine_enter(engine, MD_ENGINE_STOPPING);
	if (!engine->settings->stop_argv || !run_stop_command(engine))
		md_engine_process_signal(engine->process, SIGTERM);
	md_engine_set_deadline(engine, engine->settings->stop_ms);
}

void md_engine_give_up(struct md_engine *engine, const char *why)
{
	snprintf(engine->why, sizeof(engine->why), "%s", why);
	engine->unwanted = true;
	tell_to_end(engine);
}

/* A process that was killed, or ends itself at once, leaves its socket behind. */
static void remove_socket(const struct md_engine *engine)
{
	if (engine->settings->swap_name)
		md_swap_sockets_remove(engine->settings->swap_name);
}

static void on_ended(void *context, int status)
{
	struct md_engine *engine = context;
	bool stopping = engine->state == MD_ENGINE_STOPPING, unwanted = engine->unwanted, wanted = engine->was_wanted;
	char why[640], what[96];
	engine->process = NULL;
	remove_socket(engine);
	engine->unwanted = engine->was_wanted = engine->adopting = false;
	event_del(engine->look);
	md_engine_process_describe(status, what, sizeof(what));
	if (unwanted)
		snprintf(why, sizeof(why), "%s", engine->why);
	else if (engine->state == MD_ENGINE_STARTING)
		snprintf(why, sizeof(why), "%s before it was ready", what);
	else
		snprintf(why, sizeof(why), "%s", what);
	md_engine_enter(engine, MD_ENGINE_STOPPED);
	if (stopping && wanted)
		engine->events->settled(engine->context);
	else
		engine->events->failed(engine->context, why);
}

void md_engine_stop(struct md_engine *engine)
{
	if (engine->state == MD_ENGINE_STOPPED) {
		engine->events->settled(engine->context);
		return;
	}
	event_del(engine->look);
	if (!engine->process) { /* it waits for its port, or for a template */
		md_template_fork_cancel(engine->fork);
		engine->fork = NULL;
		md_engine_settle(engine, MD_ENGINE_STOPPED);
		return;
	}
	engine->was_wanted = true;
	engine->unwanted = false;
	if (engine->state != MD_ENGINE_STOPPING)
		tell_to_end(engine);
}

/* ---- starting ---- */

static void be_ready(struct md_engine *engine)
{
	engine->listened = md_port_use(&engine->settings->address) == MD_PORT_LISTENED;
	md_engine_settle(engine, MD_ENGINE_READY);
}

/* Another process may have answered, and this one not have found out yet that its port is taken. */
static void on_owner(void *context, const void *found)
{
	struct md_engine *engine = context;
	pid_t owner = md_port_search_owner(found);
	char why[200];
	engine->search = NULL;
	if (!owner) {
		be_ready(engine);
		return;
	}
	snprintf(why, sizeof(why), "process %d, which is not this engine, serves at %.150s", (int)owner,
		 engine->settings->host);
	md_engine_health_doubt(engine->health, why);
}

static bool on_healthy(void *context, char *why, size_t size)
{
	struct md_engine *engine = context;
	const struct md_engine_settings *settings = engine->settings;
	uint64_t inode = settings->mark ? md_port_socket(&settings->address) : 0;
	if (!inode) {
		be_ready(engine);
		return true;
	}
	engine->search = md_port_search_begin(engine->base, inode, md_engine_process_id(engine->process),
					      settings->mark, on_owner, engine);
	if (engine->search)
		return true;
	snprintf(why, size, "out of memory for finding out whose process serves at %.150s", settings->host);
	return false;
}

/* The engine could not be started, after it was said to be starting. */
static void fail_start(struct md_engine *engine, const char *why)
{
	md_engine_enter(engine, MD_ENGINE_STOPPED);
	engine->events->failed(engine->context, why);
}

void md_engine_await_health(struct md_engine *engine)
{
	const struct md_engine_settings *settings = engine->settings;
	md_engine_enter(engine, MD_ENGINE_STARTING);
	md_engine_set_deadline(engine, settings->start_ms);
	engine->health = md_engine_health_start(engine->base, &settings->address, settings->host, settings->check,
						on_healthy, engine);
	if (!engine->health)
		md_engine_give_up(engine, "out of memory for the check of its health");
}

static void run_command(struct md_engine *engine)
{
	const struct md_engine_settings *settings = engine->settings;
	struct md_engine_command command = {.argv = settings->argv,
					    .extra = settings->environment,
					    .output = engine->events->output(engine->context),
					    .inherits = settings->inherits,
					    .model = settings->name};
	struct md_error err = {0};
	if (md_engine_process_start(engine->processes, &command, on_ended, engine, &engine->process, &err) != MD_OK) {
		fail_start(engine, err.message);
		return;
	}
	md_engine_await_health(engine);
}

static void on_not_forked(void *context, const char *why)
{
	struct md_engine *engine = context;
	const struct md_engine_settings *settings = engine->settings;
	engine->fork = NULL;
	md_warn("model %s: template %s does not fork its engine, so the command is run: %s", settings->name,
		md_engine_template_settings(settings->template)->name, why);
	run_command(engine);
}

static void on_forked(void *context, pid_t pid)
{
	struct md_engine *engine = context;
	const struct md_engine_template_settings *template = md_engine_template_settings(engine->settings->template);
	struct md_template_fork *fork = engine->fork;
	struct md_error err = {0};
	engine->fork = NULL;
	if (!md_process_is_child(pid) || getpgid(pid) != pid)
		md_error_set(&err, MD_ERR_INVALID,
			     "process %d, which it has named, is no child of this one, or leads no process group",
			     (int)pid);
	else
		md_engine_process_adopt(engine->processes, pid, -1, on_ended, engine, &engine->process, &err);
	if (err.status != MD_OK) {
		md_template_fork_cancel(fork);
		on_not_forked(engine, err.message);
		return;
	}
	md_engine_process_enclose(engine->process, engine->settings->name);
	snprintf(engine->origin, sizeof(engine->origin), "%s", template->socket);
	md_info("model %s: its engine is process %d, from template %s", engine->settings->name, (int)pid,
		template->name);
	md_engine_await_health(engine);
	if (!md_template_fork_go(fork))
		md_engine_give_up(engine, "was forked by a template that did not let it run");
}

static void start_process(struct md_engine *engine)
{
	static const struct md_template_fork_events events = {.forked = on_forked, .failed = on_not_forked};
	const struct md_engine_settings *settings = engine->settings;
	struct md_engine_command command = {.argv = settings->fork_argv,
					    .extra = settings->fork_environment,
					    .output = engine->events->output(engine->context)};
	char why[256];
	engine->origin[0] = '\0';
	if (!*settings->argv) {
		fail_start(engine, "was not started, because the model has no cmd");
		return;
	}
	if (!settings->template) {
		run_command(engine);
		return;
	}
	engine->fork =
	    md_template_fork_begin(engine->base, settings->template, &command, &events, engine, why, sizeof(why));
	if (!engine->fork)
		on_not_forked(engine, why);
	else if (engine->state != MD_ENGINE_STARTING)
		md_engine_enter(engine, MD_ENGINE_STARTING);
}

bool md_engine_is_ours(const struct md_engine *engine)
{
	uint64_t own = md_engine_processes_listens(engine->processes);
	return own && md_port_socket(&engine->settings->address) == own;
}

/* An engine whose port somebody has would fail, and its requests would be answered by whoever that is. */
static void look_at_port(struct md_engine *engine)
{
	struct timeval wait = {.tv_usec = PORT_LOOK_MS * 1000};
	enum md_port_use use = engine->settings->mark ? md_port_use(&engine->settings->address) : MD_PORT_FREE;
	char why[320];
	if (md_engine_is_ours(engine)) {
		snprintf(why, sizeof(why),
			 "was not started, because this daemon itself listens at %.150s: change startPort or proxy, or "
			 "the daemon's --listen",
			 engine->settings->host);
		fail_start(engine, why);
	} else if (use == MD_PORT_FREE) {
		start_process(engine);
	} else if (engine->looks++ < PORT_LOOKS || md_clock_ns() < engine->looks_until) {
		if (engine->state != MD_ENGINE_STARTING)
			md_engine_enter(engine, MD_ENGINE_STARTING);
		event_add(engine->look, &wait);
	} else {
		snprintf(why, sizeof(why), "was not started, because another process %s %.150s%s",
			 use == MD_PORT_LISTENED ? "listens at" : "has, or had a minute ago, a connection from",
			 engine->settings->host,
			 use == MD_PORT_LISTENED ? "" : "; choose ports outside of net.ipv4.ip_local_port_range");
		fail_start(engine, why);
	}
}

static void on_look(evutil_socket_t fd, short what, void *context)
{
	struct md_engine *engine = context;
	(void)fd, (void)what;
	if (engine->adopting)
		md_engine_ask_again(engine);
	else
		look_at_port(engine);
}

/* ---- what an earlier daemon has left ---- */

enum md_status md_engine_adopt(struct md_engine *engine, const struct md_engine_left *left, bool swapped,
			       const char *origin, struct md_error *err)
{
	MD_FORWARD(md_engine_process_adopt(engine->processes, left->pid, left->pidfd, on_ended, engine,
					   &engine->process, err));
	if (left->cgroup)
		md_engine_process_keep_cgroup(engine->process, left->cgroup);
	snprintf(engine->origin, sizeof(engine->origin), "%s", origin);
	if (engine->settings->swapping == MD_ENGINE_SWAP_NEVER) {
		md_engine_await_health(engine);
		return MD_OK;
	}
	engine->adopting = true;
	engine->asked = 0;
	md_engine_enter(engine, swapped ? MD_ENGINE_LEAVING : MD_ENGINE_RETURNING);
	md_engine_ask_again(engine);
	return MD_OK;
}

pid_t md_engine_process_of(const struct md_engine *engine)
{
	return engine->process ? md_engine_process_id(engine->process) : 0;
}

/* The first process of an engine may stand before the one that serves, and not know yet that this has ended (medusa-swap run). */
static bool serves_no_more(const struct md_engine *engine)
{
	return engine->listened && md_port_use(&engine->settings->address) != MD_PORT_LISTENED;
}

bool md_engine_is_ending(const struct md_engine *engine)
{
	return !engine->process || engine->state == MD_ENGINE_STOPPING ||
	       md_process_is_ending(md_engine_process_id(engine->process)) || serves_no_more(engine);
}

const char *md_engine_origin(const struct md_engine *engine)
{
	return engine->origin;
}

const struct md_cgroup *md_engine_cgroup(const struct md_engine *engine)
{
	return engine->process ? md_engine_process_cgroup(engine->process) : NULL;
}

bool md_engine_memory(const struct md_engine *engine, uint64_t *bytes)
{
	const struct md_cgroup *cgroup = md_engine_cgroup(engine);
	return cgroup && md_cgroup_folder_memory(md_cgroup_folder(cgroup), bytes);
}

void md_engine_start(struct md_engine *engine)
{
	engine->looks = 0;
	engine->looks_until = md_clock_ns() + PORT_NS;
	engine->overdue = false;
	if (engine->state != MD_ENGINE_SWAPPED) {
		look_at_port(engine);
		return;
	}
	md_engine_be_on_way(engine, MD_ENGINE_RETURNING);
	if (md_engine_swap(engine, "in"))
		return;
	md_engine_enter(engine, MD_ENGINE_SWAPPED);
	engine->events->failed(engine->context, "medusa-swap in could not be started");
}

void md_engine_leave(struct md_engine *engine)
{
	bool swaps = engine->settings->swapping != MD_ENGINE_SWAP_NEVER;
	if (swaps)
		md_engine_be_on_way(engine, MD_ENGINE_LEAVING);
	if (!swaps || !md_engine_swap(engine, "out"))
		md_engine_stop(engine);
}

/* ---- deadlines ---- */

static void on_deadline(evutil_socket_t fd, short what, void *context)
{
	struct md_engine *engine = context;
	char why[256];
	(void)fd, (void)what;
	if (engine->state == MD_ENGINE_STOPPING) {
		md_engine_process_signal(engine->process, SIGKILL);
		return;
	}
	if (engine->state == MD_ENGINE_LEAVING || engine->state == MD_ENGINE_RETURNING) {
		engine->late = true;
		md_engine_process_signal(engine->helper, SIGKILL); /* the driver keeps the state */
		return;
	}
	snprintf(why, sizeof(why), "was not ready within %" PRIu64 " ms: %s", engine->settings->start_ms,
		 engine->health ? md_engine_health_last(engine->health) : "it was not asked");
	engine->overdue = true;
	md_engine_give_up(engine, why);
}

bool md_engine_was_overdue(const struct md_engine *engine)
{
	return engine->overdue;
}

/* ---- beginning and end ---- */

struct md_engine *md_engine_create(struct event_base *base, struct md_engine_processes *processes,
				   const struct md_engine_settings *settings, const struct md_engine_events *events,
				   void *context)
{
	struct md_engine *engine = calloc(1, sizeof(*engine));
	if (!engine)
		return NULL;
	*engine = (struct md_engine){.base = base,
				     .processes = processes,
				     .settings = settings,
				     .events = events,
				     .context = context,
				     .answer = -1,
				     .deadline = evtimer_new(base, on_deadline, engine),
				     .look = evtimer_new(base, on_look, engine)};
	if (engine->deadline && engine->look)
		return engine;
	md_engine_destroy(engine);
	return NULL;
}

void md_engine_destroy(struct md_engine *engine)
{
	if (!engine)
		return;
	stop_health(engine);
	md_template_fork_cancel(engine->fork);
	if (engine->process) {
		md_engine_process_kill(engine->process);
		remove_socket(engine);
	}
	if (engine->helper)
		md_engine_process_kill(engine->helper);
	if (engine->answer >= 0)
		close(engine->answer);
	if (engine->deadline)
		event_free(engine->deadline);
	if (engine->look)
		event_free(engine->look);
	free(engine);
}
