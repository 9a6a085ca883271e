/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The background thread: resolves kernels, builds each graph as soon
 * as it can, most wanted first, and takes everything down at the end.
 */
#define MD_LOG_DOMAIN "restore"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/setting.h"
#include "base/log.h"
#include "base/thread.h"
#include "driver/cuda_load.h"
#include "driver/interpose.h"
#include "ranks/meeting.h"
#include "restore/agree.h"
#include "restore/background.h"
#include "restore/small_graphs.h"
#include "restore/graph_state.h"
#include "restore/heap.h"
#include "restore/groups.h"
#include "restore/image_load.h"
#include "restore/outcome.h"
#include "restore/plan.h"
#include "restore/resolve.h"
#include "restore/restore.h"
#include "restore/restore_arena.h"
#include "restore/restore_early.h"
#include "restore/restore_sequence.h"
#include "restore/stages.h"
#include "restore/verify/live_graphs.h"
#include "restore/work.h"

struct md_restore md_restore = {
    .registry.lock = PTHREAD_MUTEX_INITIALIZER,
    .pace.lock = PTHREAD_MUTEX_INITIALIZER,
};

static pthread_once_t init_once = PTHREAD_ONCE_INIT;

/* ---- the environment ---- */

static void read_steps(struct md_restore *r, const char *text)
{
	static const char *const names[] = {"loaded", "stored", "trigger"};
	r->step_count = 0;
	while (text && *text && r->step_count < MD_STEPS) {
		size_t length = strcspn(text, ",");
		enum md_step step = 0;
		for (unsigned i = 0; i < MD_STEPS; i++)
			if (strlen(names[i]) == length && !strncmp(text, names[i], length))
				step = (enum md_step)(i + 1);
		if (step)
			r->steps[r->step_count++] = step;
		else
			md_warn("MEDUSA_RESOLVE: \"%.*s\" is none of loaded, stored, trigger", (int)length, text);
		text += length + (text[length] == ',');
	}
	if (r->step_count)
		return;
	/* Verify prefers the stored image, because a cold start may have to use it. The stored image lacks everything
	 * that the engine's kernels have written into the variables of their module. */
	r->steps[0] = r->verify ? MD_STEP_STORED : MD_STEP_LOADED;
	r->steps[1] = r->verify ? MD_STEP_LOADED : MD_STEP_STORED;
	r->steps[2] = MD_STEP_TRIGGER;
	r->step_count = MD_STEPS;
}

static void init_condition(pthread_cond_t *condition)
{
	pthread_condattr_t attributes;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &attributes);
	pthread_condattr_destroy(&attributes);
}

/*
 * The child of a process that uses CUDA cannot use it, and is left alone. A child that was made before that is as
 * good as its parent: none of our threads existed yet, but a thread of the engine may have held a lock.
 */
static void renew(void) MD_LOCKS_UNCHECKED
{
	struct md_restore *r = &md_restore;
	if (r->started) {
		atomic_store(&r->off, true);
		atomic_store(&r->stop, true);
		md_guard_close();
	}
	pthread_mutex_init(&md_restore_work, NULL);
	pthread_mutex_init(&md_restore_lock, NULL);
	pthread_mutex_init(&r->registry.lock, NULL);
	pthread_mutex_init(&r->pace.lock, NULL);
	pthread_mutex_init(&md_verify_table_lock, NULL);
	md_restore_hooks_renew();
	md_restore_sequence_renew();
	init_condition(&r->changed);
}

__attribute__((constructor(MD_LOADED_SETTINGS))) static void watch_children(void)
{
	static struct md_child_renewal own = {.renew = renew};
	md_child_register(&own);
}

static void at_exit(void)
{
	struct md_restore *r = &md_restore;
	md_child_check();
	if (atomic_load(&r->off))
		return;
	if (r->verify)
		md_verify_end();
	md_ranks_leave();
	md_outcome_end(r);
	atomic_store(&r->stop, true);
	pthread_mutex_lock(&md_restore_lock);
	pthread_cond_broadcast(&r->changed);
	uint64_t deadline = md_clock_ns() + 2000000000u; /* a driver call in progress ends first, or is left behind */
	while (r->thread_started && !r->thread_done && md_restore_wait(r, deadline))
		;
	pthread_mutex_unlock(&md_restore_lock);
}

static void init(void) MD_LOCKS_UNCHECKED /* no other thread knows of the restore yet */
{
	struct md_restore *r = &md_restore;
	init_condition(&r->changed);
	md_map_init(&r->bound_names);
	md_pace_init(&r->pace.pace);
	r->path = md_restore_path("MEDUSA_ARTIFACT");
	r->report = md_restore_path("MEDUSA_VERIFY_REPORT");
	const char *keys = md_environment_get("MEDUSA_TRUSTED_KEYS");
	r->trust_asked = keys != NULL; /* a variable that is set but empty trusts nobody */
	if (r->trust_asked)
		r->trusted_keys = *keys ? md_restore_path("MEDUSA_TRUSTED_KEYS") : strdup("");
	r->verify = md_setting_is_on("MEDUSA_VERIFY", false, true, "graphs are compared, and none is handed out");
	r->reads_back = r->verify && md_setting_is_on("MEDUSA_VERIFY_READ_BACK", true, true, "they are read back");
	if (r->verify && !r->reads_back)
		md_warn("restored graphs are not read back from the driver (MEDUSA_VERIFY_READ_BACK=0): equal outputs "
			"alone do not show that they are the recorded ones");
	md_restore_agree_init();
	md_outcome_init(r);
	r->require_proof =
	    md_setting_is_on("MEDUSA_REQUIRE_PROOF", false, true, "graphs of one capture only are captured live");
	r->stats.size = sizeof(r->stats);
	if (r->path && md_restore_files_check(&r->refusal) != MD_OK)
		md_warn("nothing is restored: %s", r->refusal.message);
	read_steps(r, md_environment_get("MEDUSA_RESOLVE"));
	if (!r->path && md_cuda_layer) { /* an engine that is swapped need not be one that is restored */
		r->phase = MD_PHASE_FAILED;
		md_error_set(&r->failure, MD_ERR_NOT_FOUND, "medusa-swap was given no artifact");
	}
	atexit(at_exit);
}

void md_restore_init(void)
{
	md_child_check();
	pthread_once(&init_once, init);
}

/* ---- waiting ---- */

void md_restore_busy(struct md_restore *r, int change)
{
	uint64_t now = md_clock_ns();
	if (!r->busy)
		r->busy_since_ns = now;
	r->busy += (unsigned)change;
	if (!r->busy)
		r->busy_ns += now - r->busy_since_ns;
}

bool md_restore_wait(struct md_restore *r, uint64_t deadline_ns)
{
	if (deadline_ns == UINT64_MAX)
		return pthread_cond_wait(&r->changed, &md_restore_lock) == 0;
	struct timespec until = {(time_t)(deadline_ns / 1000000000u), (long)(deadline_ns % 1000000000u)};
	return pthread_cond_timedwait(&r->changed, &md_restore_lock, &until) != ETIMEDOUT;
}

bool md_restore_wait_open(struct md_restore *r, uint64_t deadline_ns)
{
	while (r->phase == MD_PHASE_OPENING && !atomic_load(&r->stop))
		if (!md_restore_wait(r, deadline_ns))
			return r->phase != MD_PHASE_OPENING;
	return true;
}

/* ---- doing it; holds work ---- */

/* Runs one stage of a graph, or the slice of it that fits beside the engine's replays. */
static void step_graph(struct md_restore *r, struct md_restore_graph *graph)
{
	struct md_error err = {0};
	bool done = false;
	enum md_status status = md_restore_graph_step(r, graph, &done, &err);
	pthread_mutex_lock(&md_restore_lock);
	if (status != MD_OK)
		md_restore_refuse(r, graph, &err);
	else if (done && graph->state == MD_GRAPH_WAITING) /* its group may have been refused meanwhile */
		md_restore_graph_ready(r, graph);
	if (status != MD_OK || done)
		pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&md_restore_lock);
}

/*
 * Reserves private memory while the engine binds its buffers. The first graph that needs the memory reports a failure.
 */
static void reserve_arena(struct md_restore *r) MD_REQUIRES(md_restore_work)
{
	struct md_error err = {0};
	uint64_t start = md_clock_ns();
	r->arena_tried = true;
	md_restore_arena_reserve(r, &err);
	pthread_mutex_lock(&md_restore_lock);
	r->arena_failed = err;
	r->stats.arena_ns += md_clock_ns() - start;
	pthread_mutex_unlock(&md_restore_lock);
}

void md_restore_settle(struct md_restore *r)
{
	bool arena_used = false;
	md_restore_images_join(r);
	for (uint32_t i = 0; i < r->artifact.graph_count; i++)
		arena_used |= r->graphs[i].state == MD_GRAPH_READY && r->graphs[i].uses_arena;
	if (!r->verify) { /* a verify run may compare at any time, and its graphs are never ready */
		if (!arena_used)
			md_restore_arena_free(r);
		md_restore_images_unload(r, true);
	}
	md_restore_heap_finish(&r->heap);
	pthread_mutex_lock(&md_restore_lock);
	md_info("%u of %u graphs restored, %u refused", r->stats.graphs_restored, r->stats.graphs_total,
		r->stats.graphs_refused);
	pthread_mutex_unlock(&md_restore_lock);
}

/* Whether the piece of work may use the driver now. If not, *wait_ns says when to ask again. */
static bool has_turn(struct md_restore *r, const struct md_work *work, struct md_pace_turn *turn, uint64_t *wait_ns)
    MD_REQUIRES(md_restore_lock)
{
	*turn = (struct md_pace_turn){0};
	if (!work->units)
		return true;
	*wait_ns = UINT64_MAX;
	if (r->holds)
		return false;
	bool go = md_pace_begin(&r->pace, work->pace, work->units, work->awaited, turn);
	*wait_ns = turn->wait_ns;
	return go;
}

static void do_work(struct md_restore *r, const struct md_work *work, const struct md_pace_turn *turn)
    MD_REQUIRES(md_restore_work)
{
	switch (work->kind) {
	case MD_WORK_BUILD:
		work->graph->slice = turn->units < UINT32_MAX ? (uint32_t)turn->units : UINT32_MAX;
		step_graph(r, work->graph);
		break;
	case MD_WORK_BATCH:
		md_restore_batch_make(r, work);
		break;
	case MD_WORK_DROP:
		md_restore_drop_template(work->graph);
		break;
	case MD_WORK_UNDO:
		md_restore_stages_undo(md_restore_graph_stages, md_restore_graph_stage_count, r, work->graph);
		break;
	case MD_WORK_RESOLVE:
		md_restore_kernel_resolve(r, work->kernel);
		break;
	case MD_WORK_ARENA:
		reserve_arena(r);
		break;
	case MD_WORK_HEAP:
		md_restore_heap_add(r);
		break;
	case MD_WORK_SETTLE:
		md_restore_settle(r);
		break;
	case MD_WORK_WAIT:
		break;
	}
}

/* Whether the engine may be waiting for the work; it never waits for memory that is cleared away afterwards. */
static bool is_stage(enum md_work_kind kind)
{
	return kind == MD_WORK_BUILD || kind == MD_WORK_BATCH || kind == MD_WORK_RESOLVE || kind == MD_WORK_ARENA ||
	       kind == MD_WORK_HEAP;
}

static void work_in_turn(struct md_restore *r, const struct md_work *work, const struct md_pace_turn *turn)
    MD_REQUIRES(md_restore_work)
{
	do_work(r, work, turn);
	if (work->units)
		md_pace_end(&r->pace, turn);
	if (!is_stage(work->kind))
		return;
	pthread_mutex_lock(&md_restore_lock);
	md_restore_busy(r, -1);
	pthread_mutex_unlock(&md_restore_lock);
}

/* The thread never sleeps while it holds work, because an engine that unloads a module waits for that lock. */
static void run_graphs(struct md_restore *r)
{
	bool settled = false;
	struct md_pace_turn turn;
	while (!atomic_load(&r->stop)) {
		uint64_t wait_ns = UINT64_MAX;
		pthread_mutex_lock(&md_restore_work);
		pthread_mutex_lock(&md_restore_lock);
		struct md_work work = md_restore_work_next(r, settled);
		if (md_restore_batch_fits(r, &work))
			work.kind = MD_WORK_BATCH;
		atomic_store_explicit(&md_pace_engine.watched, work.kind != MD_WORK_WAIT || !settled,
				      memory_order_relaxed);
		bool go = work.kind != MD_WORK_WAIT && has_turn(r, &work, &turn, &wait_ns);
		if (work.kind == MD_WORK_WAIT || work.kind == MD_WORK_SETTLE)
			pthread_cond_broadcast(&r->changed); /* graphs may have been refused */
		if (!go) {
			pthread_mutex_unlock(&md_restore_work);
			if (work.kind == MD_WORK_WAIT && md_outcome_due()) {
				pthread_mutex_unlock(&md_restore_lock);
				md_outcome_write(r);
				continue;
			}
			if (!atomic_load(&r->stop))
				md_restore_wait(r, wait_ns == UINT64_MAX ? wait_ns : md_clock_ns() + wait_ns);
			pthread_mutex_unlock(&md_restore_lock);
			continue;
		}
		if (is_stage(work.kind))
			md_restore_busy(r, +1);
		pthread_mutex_unlock(&md_restore_lock);
		work_in_turn(r, &work, &turn);
		if (work.kind == MD_WORK_SETTLE)
			md_outcome_changed();
		settled = work.kind == MD_WORK_SETTLE;
		pthread_mutex_unlock(&md_restore_work);
	}
}

bool md_restore_thread_enter(struct md_restore *r, const char *name)
{
	CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
	md_guard_enter(); /* for good: no driver call of this thread is the engine's */
	prctl(PR_SET_NAME, name);
	prctl(PR_SET_TIMERSLACK, 1000); /* ns: a step beside replays begins within microseconds or not at all */
	CUcontext popped;
	if (md_cuda.cuCtxPushCurrent_v2(r->context) != CUDA_SUCCESS)
		return false;
	if (md_cuda.cuThreadExchangeStreamCaptureMode(&relaxed) == CUDA_SUCCESS)
		return true;
	md_cuda.cuCtxPopCurrent_v2(&popped);
	return false;
}

static void open_session(struct md_restore *r)
{
	struct md_error err = {0};
	pthread_mutex_lock(&md_restore_lock);
	md_restore_busy(r, +1);
	pthread_mutex_unlock(&md_restore_lock);
	enum md_status status =
	    md_restore_stages_run(md_restore_session_stages, md_restore_session_stage_count, r, NULL, &err);
	pthread_mutex_lock(&md_restore_lock);
	if (status == MD_OK)
		md_restore_plan_said(r);
	r->phase = status == MD_OK ? MD_PHASE_OPEN : MD_PHASE_FAILED;
	r->failure = err;
	md_restore_busy(r, -1);
	if (status != MD_OK)
		md_warn("nothing is restored: %s", err.message);
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&md_restore_lock);
}

static void *thread_main(void *argument)
{
	struct md_restore *r = argument;
	if (md_restore_thread_enter(r, "medusa-restore")) {
		CUcontext popped;
		open_session(r);
		if (r->phase == MD_PHASE_OPEN)
			run_graphs(r);
		md_cuda.cuCtxPopCurrent_v2(&popped);
	} else {
		pthread_mutex_lock(&md_restore_lock);
		r->phase = MD_PHASE_FAILED;
		md_error_set(&r->failure, MD_ERR_DRIVER, "the context cannot be used in another thread");
		md_warn("nothing is restored: %s", r->failure.message);
		pthread_mutex_unlock(&md_restore_lock);
	}
	atomic_store(&md_pace_engine.watched, false);
	md_outcome_changed();
	md_outcome_write(r);
	pthread_mutex_lock(&md_restore_lock);
	r->thread_done = true;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&md_restore_lock);
	return NULL;
}

/* ---- start and stop ---- */

static void spawn(struct md_restore *r) MD_RESTORE_HELD
{
	r->thread_done = false;
	r->thread_started = md_thread_start(&r->thread, thread_main, r) == 0;
	if (r->thread_started)
		return;
	r->phase = MD_PHASE_FAILED;
	md_error_set(&r->failure, MD_ERR_NO_MEMORY, "no thread can be started");
	md_warn("nothing is restored: %s", r->failure.message);
}

void md_restore_start(CUcontext context)
{
	struct md_restore *r = &md_restore;
	md_restore_init();
	if (!context || atomic_load(&r->off))
		return;
	pthread_mutex_lock(&md_restore_lock);
	if (r->phase == MD_PHASE_IDLE && !r->released && !r->refusal.status && !atomic_load(&r->stop)) {
		r->started = true;
		r->context = context;
		r->phase = MD_PHASE_OPENING;
		atomic_store(&md_pace_engine.watched, true);
		spawn(r);
	}
	pthread_mutex_unlock(&md_restore_lock);
}

static void destroy_graphs(struct md_restore *r)
{
	for (uint32_t i = 0; r->graphs && i < r->artifact.graph_count; i++)
		md_restore_stages_undo(md_restore_graph_stages, md_restore_graph_stage_count, r, &r->graphs[i]);
}

static void reset(struct md_restore *r, const char *reason) MD_REQUIRES(md_restore_work, md_restore_lock)
{
	for (uint32_t i = 0; i < r->bound_count; i++)
		free(r->bound[i].name);
	r->bound_count = 0;
	md_map_finish(&r->bound_names);
	md_map_init(&r->bound_names);
	md_restore_group_forget_live(r);
	r->trigger_done = false;
	r->sequence_bound = false;
	r->arena_tried = false;
	r->arena_failed = (struct md_error){0};
	r->busy_ns = 0;
	r->images_first_ns = r->images_last_ns = r->last_bind_ns = r->functions_done_ns = 0;
	r->stats = (struct medusa_stats){.size = sizeof(r->stats)};
	r->context = NULL;
	r->phase = MD_PHASE_IDLE;
	md_error_set(&r->failure, MD_ERR_NOT_FOUND, "%s", reason);
}

void md_restore_stop(const char *reason)
{
	struct md_restore *r = &md_restore;
	CUcontext popped;
	md_outcome_end(r);
	pthread_mutex_lock(&md_restore_lock);
	bool running = r->thread_started && !atomic_load(&r->off);
	r->thread_started = false;
	atomic_store(&r->stop, true);
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&md_restore_lock);
	if (running) {
		pthread_join(r->thread, NULL);
		pthread_mutex_lock(&md_restore_work);
		bool current = md_cuda.cuCtxPushCurrent_v2(r->context) == CUDA_SUCCESS;
		if (r->phase == MD_PHASE_OPEN) {
			destroy_graphs(r);
			md_restore_stages_undo(md_restore_session_stages, md_restore_session_stage_count, r, NULL);
		}
		if (current)
			md_cuda.cuCtxPopCurrent_v2(&popped);
		pthread_mutex_lock(&md_restore_lock);
		reset(r, reason);
		pthread_cond_broadcast(&r->changed);
		pthread_mutex_unlock(&md_restore_lock);
		pthread_mutex_unlock(&md_restore_work);
	}
	atomic_store(&r->stop, false);
}
