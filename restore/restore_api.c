/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions as the restore library answers them. */
#define MD_LOG_DOMAIN "restore"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/uncancelled.h"
#include "driver/interpose.h"
#include "ranks/meeting.h"
#include "restore/agree.h"
#include "restore/background.h"
#include "restore/bindings.h"
#include "restore/constants.h"
#include "restore/graph_state.h"
#include "restore/groups.h"
#include "restore/library_made.h"
#include "restore/outcome.h"
#include "restore/plan.h"
#include "restore/resolve.h"
#include "restore/restore.h"
#include "restore/restore_api.h"
#include "restore/restore_facts.h"
#include "restore/restore_sequence.h"
#include "restore/stages.h"
#include "restore/trigger.h"
#include "restore/variables.h"
#include "restore/verify/asked.h"
#include "restore/verify/live_graphs.h"

/* Defined in libmedusa-swap.so alone. */
extern void md_swap_constant_bind(const char *name, uint64_t address, uint64_t bytes, bool constant)
    __attribute__((weak));
extern void md_swap_merge_bound(uint64_t address, uint64_t bytes) __attribute__((weak));

MD_EXPORT enum medusa_mode medusa_mode(void)
{
	md_restore_init();
	return md_restore.verify ? MEDUSA_MODE_VERIFY : MEDUSA_MODE_RESTORE;
}

MD_EXPORT const char *medusa_reason(void)
{
	return md_api_reason();
}

static bool has_bindings(struct md_restore *r)
{
	pthread_mutex_lock(&md_restore_lock);
	bool any = r->bound_count > 0;
	pthread_mutex_unlock(&md_restore_lock);
	return any;
}

enum md_status md_restore_begin(struct md_error *err)
{
	struct md_restore *r = &md_restore;
	CUcontext context = NULL;
	md_restore_init();
	if (atomic_load(&r->off))
		return md_error_set(err, MD_ERR_NOT_FOUND, "%s", MD_RESTORE_OFF);
	MD_FORWARD(md_cuda_load(err));
	MD_FORWARD(md_cuda_call(err, cuCtxGetCurrent, &context));
	if (!context)
		return md_error_set(
		    err, MD_ERR_INVALID,
		    "no CUDA context is current in this thread: make the engine's context current before this call");
	/* A process may touch another device first: a restore that was begun there, and has no bindings yet, moves. */
	if (r->context && r->context != context) {
		if (has_bindings(r))
			return md_error_set(err, MD_ERR_MISMATCH,
					    "the current context is not the one in which bindings were made; graphs "
					    "are restored for that context only");
		md_restore_stop("the engine uses another context");
	}
	md_restore_start(context);
	return MD_OK;
}

/* ---- bindings ---- */

static enum md_status find_or_add_bound(struct md_restore *r, const char *name, uint32_t *out,
					struct md_error *err) MD_RESTORE_HELD
{
	uint64_t key = md_hash_checksum(name, strlen(name)), at = 0;
	if (md_map_get(&r->bound_names, key, &at)) {
		*out = (uint32_t)at;
		return strcmp(r->bound[at].name, name)
			   ? md_error_set(err, MD_ERR_INVALID, "name \"%s\" collides with \"%s\"", name,
					  r->bound[at].name)
			   : MD_OK;
	}
	if (!MD_ARRAY_GROW(r->bound, r->bound_count, r->bound_room))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for binding \"%s\"", name);
	char *copy = strdup(name);
	if (!copy || !md_map_put(&r->bound_names, key, r->bound_count)) {
		free(copy);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for binding \"%s\"", name);
	}
	*out = r->bound_count++;
	r->bound[*out] = (struct md_bound){.name = copy};
	return MD_OK;
}

static uint32_t artifact_binding(const struct md_restore *r, const char *name)
{
	uint64_t at;
	if (!r->binding_of || !md_map_get(&r->binding_names, md_hash_checksum(name, strlen(name)), &at))
		return MD_NONE;
	return strcmp(r->artifact.bindings[at].name, name) ? MD_NONE : (uint32_t)at;
}

static bool uses_binding(const struct md_restore_graph *graph, uint32_t binding)
{
	for (uint32_t i = 0; i < graph->binding_count; i++)
		if (graph->bindings[i] == binding)
			return true;
	return false;
}

/*
 * The engine's buffer is elsewhere now, even though the call
 * fails: no graph with the old address is handed out any more.
 */
static void leave_behind(struct md_restore *r, uint32_t binding)
{
	for (uint32_t i = 0; i < r->artifact.graph_count; i++)
		if (uses_binding(&r->graphs[i], binding))
			md_restore_group_stale(r, &r->graphs[i]);
}

/* Graphs with the old address are made again. None of them may have been handed out. */
static enum md_status move_binding(struct md_restore *r, uint32_t binding, const char *name, struct md_error *err)
    MD_REQUIRES(md_restore_lock)
{
	for (uint32_t i = 0; i < r->artifact.graph_count; i++)
		if (md_restore_group_is_out(r, &r->graphs[i]) && uses_binding(&r->graphs[i], binding))
			return leave_behind(r, binding),
			       md_error_set(err, MD_ERR_INVALID,
					    "binding \"%s\" is used by graph %s/%u, which %swas handed out", name,
					    r->artifact.graphs[i].label, r->artifact.graphs[i].batch,
					    r->graphs[i].handed_out ? "" : "is in one group with a graph that ");
	for (uint32_t i = 0; i < r->artifact.graph_count; i++) {
		struct md_restore_graph *graph = &r->graphs[i];
		if (!uses_binding(graph, binding))
			continue;
		graph->bindings_done = 0;
		if (graph->state != MD_GRAPH_REFUSED) /* graphs that are half built, too */
			md_restore_stages_undo(md_restore_graph_stages, md_restore_graph_stage_count, r, graph);
		md_restore_graph_unmake(r, graph);
	}
	for (uint32_t i = 0; i < r->artifact.content_count; i++)
		for (uint32_t p = 0; p < r->artifact.contents[i].pointer_count; p++)
			if (r->artifact.allocs[r->artifact.contents[i].pointers[p].alloc].binding == binding)
				r->content_placed[i] = false;
	md_restore_variables_moved(r, binding);
	return MD_OK;
}

/* Work is held, too, if the name is known: graphs with its old address are taken apart. */
static enum md_status bind_locked(struct md_restore *r, const struct md_bound *what, struct md_error *err)
    MD_REQUIRES(md_restore_lock)
{
	uint32_t binding = artifact_binding(r, what->name), at = 0;
	bool moves = binding != MD_NONE && r->binding_of[binding] != MD_NONE;
	if (moves) {
		const struct md_bound *old = &r->bound[r->binding_of[binding]];
		if (old->address != what->address || old->size != what->size)
			MD_FORWARD(move_binding(r, binding, what->name, err));
	}
	MD_FORWARD(find_or_add_bound(r, what->name, &at, err));
	r->bound[at].address = what->address;
	r->bound[at].size = what->size;
	r->bound[at].role = what->role;
	r->bound[at].freed = false;
	if (binding != MD_NONE) {
		r->binding_of[binding] = at;
		md_restore_constants_rebound(r, binding);
	}
	r->last_bind_ns = md_clock_ns();
	pthread_cond_broadcast(&r->changed);
	return MD_OK;
}

enum md_status md_restore_bind_new(struct md_restore *r, const struct md_bound *what, struct md_error *err)
{
	return bind_locked(r, what, err);
}

MD_EXPORT int medusa_bind(const char *name, medusa_deviceptr address, size_t bytes, enum medusa_role role)
{
	MD_UNCANCELLED;
	struct md_restore *r = &md_restore;
	struct md_error err = {0};
	enum md_status status = md_api_check_bind(name, address, bytes, role, &err);
	if (status == MD_OK && md_swap_constant_bind) /* also where nothing is restored */
		md_swap_constant_bind(name, address, bytes, role == MEDUSA_BIND_CONSTANT);
	if (status == MD_OK && role != MEDUSA_BIND_CONSTANT && md_swap_merge_bound)
		md_swap_merge_bound(address, bytes);
	if (status == MD_OK)
		status = md_restore_begin(&err);
	if (status != MD_OK)
		return md_api_fail(&err);
	struct md_bound what = {.name = (char *)name, .address = address, .size = bytes, .role = (uint32_t)role};
	pthread_mutex_lock(&md_restore_lock); /* the common case: a new name changes no graph */
	uint64_t at;
	bool known = md_map_get(&r->bound_names, md_hash_checksum(name, strlen(name)), &at);
	if (!known)
		status = bind_locked(r, &what, &err);
	pthread_mutex_unlock(&md_restore_lock);
	if (known) {
		pthread_mutex_lock(&md_restore_work);
		pthread_mutex_lock(&md_restore_lock);
		status = bind_locked(r, &what, &err);
		pthread_mutex_unlock(&md_restore_lock);
		pthread_mutex_unlock(&md_restore_work);
	}
	md_outcome_engaged();
	md_outcome_tell(r);
	return md_api_answer(status, &err);
}

/* ---- graphs ---- */

static bool waits_for_trigger(const struct md_restore *r, const struct md_restore_graph *graph)
{
	if (graph->state != MD_GRAPH_WAITING)
		return false;
	for (uint32_t i = 0; i < graph->kernel_count; i++)
		if (r->kernels[graph->kernels[i]].state == MD_KERNEL_TRIGGER)
			return true;
	return false;
}

/* An engine binds everything before it asks for graphs, so waiting for a missing binding would be in vain. */
static bool refuse_if_unbound(struct md_restore *r, struct md_restore_graph *graph) MD_REQUIRES(md_restore_lock)
{
	struct md_error err = {0};
	if (md_restore_bindings_check(r, graph, &err) == MD_OK)
		return false;
	if (err.status == MD_ERR_NOT_FOUND)
		err.status = MD_ERR_MISMATCH;
	md_restore_refuse(r, graph, &err);
	pthread_cond_broadcast(&r->changed); /* with no graph left to wait for, the background settles */
	return true;
}

static const char *refusal_in_artifact(const struct md_restore *r, const char *label, unsigned batch)
{
	for (uint32_t i = 0; i < r->artifact.refusal_count; i++)
		if (r->artifact.refusals[i].batch == batch && r->artifact.refusals[i].label &&
		    !strcmp(r->artifact.refusals[i].label, label))
			return r->artifact.refusals[i].why;
	return NULL;
}

/* An engine of another configuration asks for many missing graphs; the first one is logged. */
static enum md_status not_there(struct md_restore *r, const char *label, unsigned batch, struct md_error *err)
    MD_REQUIRES(md_restore_lock)
{
	const char *why = refusal_in_artifact(r, label, batch);
	if (why)
		md_error_set(err, MD_ERR_NOT_FOUND, "graph %s/%u was not materialized: %s", label, batch, why);
	else
		md_error_set(err, MD_ERR_NOT_FOUND, "the artifact has no graph %s/%u", label, batch);
	if (!r->missing_logged)
		md_warn("%s (other missing graphs are not logged)", err->message);
	r->missing_logged = true;
	return err->status;
}

/*
 * A graph that is awaited goes before other graphs, and before the engine's replays. The background is woken if it has
 * chosen its work while nobody was seen to wait here. Waking it each time would be an endless exchange, because it wakes
 * those who wait here when it finds nothing to do.
 */
static bool wait_for(struct md_restore *r, struct md_restore_graph *graph, uint64_t *seen, uint64_t deadline)
    MD_REQUIRES(md_restore_lock)
{
	graph->awaited++;
	r->awaited++;
	r->awaited_last = graph;
	if (*seen != r->choices)
		pthread_cond_broadcast(&r->changed);
	struct md_restore_graph *graphs = r->graphs;
	bool in_time = md_restore_wait(r, deadline);
	if (r->graphs == graphs && graph->awaited) /* otherwise everything was taken down meanwhile */
		graph->awaited--;
	r->awaited--;
	*seen = r->choices;
	return in_time;
}

/* The lock is released meanwhile. */
static enum md_status hash_constants(struct md_restore *r, struct md_error *err) MD_REQUIRES(md_restore_lock)
{
	pthread_mutex_unlock(&md_restore_lock);
	enum md_status status = md_restore_constants_settle(r, err);
	pthread_mutex_lock(&md_restore_lock);
	return status;
}

static void hand_out(struct md_restore_graph *graph, CUgraphExec *out)
{
	graph->handed_out = true;
	*out = graph->exec;
	if (graph->stored->group)
		atomic_store(&md_restore_watching, true);
}

static bool is_promised(const struct md_restore *r, const char *label, unsigned batch) MD_REQUIRES(md_restore_lock)
{
	const struct md_restore_graph *graph = r->phase == MD_PHASE_OPEN ? md_restore_find(r, label, batch) : NULL;
	return graph && r->parted && md_restore_is_promised(r, graph);
}

static enum md_status take_graph(struct md_restore *r, const char *label, unsigned batch, uint64_t deadline,
				 CUgraphExec *out, struct md_error *err) MD_REQUIRES(md_restore_lock)
{
	uint64_t seen = UINT64_MAX; /* r->choices, when this thread was last seen to wait */
	bool limits_fit = false;
	if (!md_restore_wait_open(r, deadline))
		return md_error_set(err, MD_ERR_TIMEOUT, "the artifact is still being opened");
	for (;;) {
		if (r->refusal.status && !is_promised(r, label, batch))
			return md_error_set(err, r->refusal.status, "%s", r->refusal.message);
		if (r->phase != MD_PHASE_OPEN) /* the restore may end while we wait */
			return md_error_set(err, r->failure.status ? r->failure.status : MD_ERR_NOT_FOUND, "%s",
					    r->failure.status ? r->failure.message : "nothing is being restored");
		struct md_restore_graph *graph = md_restore_find(r, label, batch);
		if (!graph)
			return not_there(r, label, batch, err);
		graph->given_up = false;
		if (graph->stale)
			return md_error_set(err, MD_ERR_MISMATCH,
					    "graph %s/%u, or another graph of its group, uses a binding that was moved "
					    "after a graph with that binding was handed out",
					    label, batch);
		if (graph->destroyed)
			return md_error_set(err, MD_ERR_NOT_FOUND,
					    "the engine has destroyed graph %s/%u, which belongs to Medusa", label,
					    batch);
		struct md_restore_graph *waiting = md_restore_group_waiting(r, graph);
		if (!limits_fit &&
		    (!waiting || !r->limits_fit)) { /* a graph that is waited for is asked about afterwards */
			MD_FORWARD(md_restore_limits_ask(r, err));
			limits_fit = true;
			continue;
		}
		MD_FORWARD(md_restore_bindings_live(r, graph, err)); /* before constants in it are hashed */
		if (graph->communicates)
			MD_FORWARD(md_restore_made_check(r, md_restore_made_library(r, graph), err));
		if (waiting && refuse_if_unbound(r, waiting))
			continue;
		if (graph->state == MD_GRAPH_REFUSED)
			return md_error_set(err, graph->reasons->refused.status, "%s", graph->reasons->refused.message);
		if (md_restore_group_open(r, graph)) {
			MD_FORWARD(hash_constants(r, err));
			limits_fit = false;
			continue;
		}
		if (!waiting) {
			MD_FORWARD(md_restore_group_check(r, graph, err));
			hand_out(graph, out);
			return MD_OK;
		}
		if (waits_for_trigger(r, waiting) && !r->trigger_running) {
			md_restore_trigger_pull(r);
			limits_fit = false;
			continue;
		}
		if (wait_for(r, waiting, &seen, deadline)) {
			limits_fit = false;
			continue;
		}
		graph->given_up = true;
		return md_error_set(err, MD_ERR_TIMEOUT, "graph %s/%u is still being restored", waiting->stored->label,
				    waiting->stored->batch);
	}
}

/* As if there were no other rank. */
static enum md_status get_alone(struct md_restore *r, const char *label, unsigned batch, uint64_t deadline,
				CUgraphExec *out, struct md_error *err)
{
	MD_FORWARD(md_restore_begin(err));
	md_restore_sequence_bind(r, deadline);
	if (r->verify) {
		md_verify_asked(r, label, batch);
		return md_error_set(err, MD_ERR_NOT_FOUND,
				    "verifying: the engine captures, and restored graphs are compared");
	}
	md_restore_facts_settle(r, deadline);
	pthread_mutex_lock(&md_restore_lock);
	enum md_status status = r->released ? md_error_set(err, MD_ERR_NOT_FOUND, "the engine has released its graphs")
					    : take_graph(r, label, batch, deadline, out, err);
	if (status != MD_OK && status != MD_ERR_TIMEOUT)
		md_restore_group_lost(r, label, batch, err->message);
	pthread_mutex_unlock(&md_restore_lock);
	return status;
}

static void note_asked(struct md_restore *r, const char *label, unsigned batch, const struct md_error *why)
{
	pthread_mutex_lock(&md_restore_lock);
	bool expected = r->phase == MD_PHASE_OPEN && refusal_in_artifact(r, label, batch);
	md_outcome_asked(r, label, batch, why, expected);
	pthread_mutex_unlock(&md_restore_lock);
	md_outcome_tell(r);
}

MD_EXPORT int medusa_graph_get(const char *label, unsigned batch, uint64_t timeout_ns, void **exec)
{
	MD_UNCANCELLED;
	struct md_restore *r = &md_restore;
	struct md_error err = {0};
	CUgraphExec taken = NULL;
	if (md_api_check_get(label, exec, &err) != MD_OK)
		return md_api_fail(&err);
	uint64_t now = md_clock_ns();
	uint64_t deadline = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
	md_restore_init();
	enum md_status status = get_alone(r, label, batch, deadline, &taken, &err);
	if (!atomic_load(&r->off))
		status = md_restore_agree(r, label, batch, status, deadline, &err);
	if (status == MD_OK)
		*exec = taken;
	err.status = status;
	note_asked(r, label, batch, &err);
	return md_api_answer(status, &err);
}

MD_EXPORT int medusa_graph_ready(const char *label, unsigned batch)
{
	MD_UNCANCELLED;
	struct md_restore *r = &md_restore;
	md_restore_init();
	if (!label || atomic_load(&r->off) || r->verify)
		return 0;
	pthread_mutex_lock(&md_restore_lock);
	struct md_restore_graph *graph = r->phase == MD_PHASE_OPEN ? md_restore_find(r, label, batch) : NULL;
	int ready = graph && graph->state == MD_GRAPH_READY && !md_restore_group_waiting(r, graph) && !graph->stale &&
		    !graph->destroyed && !r->refusal.status && md_restore_facts_check(r, NULL) == MD_OK &&
		    md_restore_limits_check(r, NULL) == MD_OK && md_restore_bindings_live(r, graph, NULL) == MD_OK;
	pthread_mutex_unlock(&md_restore_lock);
	return ready;
}

MD_EXPORT int medusa_graph_want(const char *label, const unsigned *batches, size_t count)
{
	MD_UNCANCELLED;
	struct md_restore *r = &md_restore;
	struct md_error err = {0};
	int result = MEDUSA_OK;
	if (md_api_check_want(label, batches, count, &err) != MD_OK)
		return md_api_fail(&err);
	md_restore_init();
	if (atomic_load(&r->off))
		return md_api_ok();
	pthread_mutex_lock(&md_restore_lock);
	for (size_t i = 0; i < count && result == MEDUSA_OK; i++) {
		char *copy = MD_ARRAY_GROW(r->wants, r->want_count, r->want_room) ? strdup(label) : NULL;
		if (copy)
			r->wants[r->want_count++] = (struct md_want){copy, batches[i]};
		else
			result =
			    md_api_refuse(MD_ERR_NO_MEMORY, "medusa_graph_want(%s): out of memory for a graph", label);
	}
	if (r->phase == MD_PHASE_OPEN)
		md_restore_plan_order(r);
	pthread_mutex_unlock(&md_restore_lock);
	return result == MEDUSA_OK ? md_api_ok() : result;
}

MD_EXPORT int medusa_trigger(const char *name, int (*run)(void *user), void *user)
{
	MD_UNCANCELLED;
	struct md_restore *r = &md_restore;
	struct md_error err = {0};
	if (md_api_check_trigger(name, run, &err) != MD_OK)
		return md_api_fail(&err);
	md_restore_init();
	pthread_mutex_lock(&md_restore_lock);
	r->trigger = run;
	r->trigger_user = user;
	pthread_mutex_unlock(&md_restore_lock);
	return md_api_ok();
}

MD_EXPORT int medusa_mark(const char *name)
{
	MD_UNCANCELLED;
	struct md_error err = {0};
	if (md_api_check_mark(name, &err) != MD_OK)
		return md_api_fail(&err);
	md_restore_init();
	if (md_restore.verify && !atomic_load(&md_restore.off))
		md_verify_mark(name);
	if (!strcmp(name, MD_MARK_COMPLETE)) {
		md_outcome_complete();
		md_outcome_tell(&md_restore);
	}
	return md_api_ok();
}

MD_EXPORT int medusa_stage(const char *name, uint64_t ns)
{
	struct md_error err = {0};
	(void)ns;
	return md_api_answer(md_api_check_stage(name, &err), &err);
}

/* ---- statistics ---- */

MD_EXPORT int medusa_stats_read(struct medusa_stats *out)
{
	MD_UNCANCELLED;
	struct md_restore *r = &md_restore;
	struct md_error err = {0};
	if (md_api_check_stats(out, &err) != MD_OK)
		return md_api_fail(&err);
	md_restore_init();
	if (atomic_load(&r->off))
		return md_api_refuse(MD_ERR_NOT_FOUND, "%s", MD_RESTORE_OFF);
	pthread_mutex_lock(&md_restore_lock);
	struct medusa_stats now = r->stats;
	now.total_ns = r->busy_ns + (r->busy ? md_clock_ns() - r->busy_since_ns : 0);
	pthread_mutex_unlock(&md_restore_lock);
	size_t size = out->size;
	now.size = size < sizeof(now) ? size : sizeof(now);
	if (size > sizeof(now))
		memset((char *)out + sizeof(now), 0, size - sizeof(now));
	memcpy(out, &now, now.size);
	return md_api_ok();
}

MD_EXPORT void medusa_release(void)
{
	MD_UNCANCELLED;
	struct md_restore *r = &md_restore;
	md_restore_init();
	if (atomic_load(&r->off))
		return;
	pthread_mutex_lock(&md_restore_lock);
	r->released = true;
	pthread_mutex_unlock(&md_restore_lock);
	md_ranks_leave();
	md_restore_stop("the engine has released its graphs");
}
