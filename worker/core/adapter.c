/* SPDX-License-Identifier: Apache-2.0 */
/* Loads adapters into their engines and unloads them, one call for each adapter at a time. */
#include "worker/core/adapter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/plain.h"
#include "worker/accounting/account.h"
#include "worker/core/adapter_call.h"
#include "worker/core/adapter_foreign.h"
#include "worker/core/adapter_strays.h"
#include "worker/core/adapter_words.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define BROKEN_NS UINT64_C(250000000)
#define LIST_S 30u

static void pump(struct md_model *model);

void md_adapter_pump(struct md_model *model)
{
	if (model->host.pump) /* else it has had no adapters */
		event_active(model->host.pump, EV_TIMEOUT, 0);
}

static void on_pump(evutil_socket_t fd, short what, void *context)
{
	struct md_model *model = context;
	uint64_t now = md_clock_ns(), until = model->host.rests_until;
	(void)fd, (void)what;
	if (now < until) {
		struct timeval wait = {.tv_usec = (suseconds_t)((until - now) / 1000) + 1};
		event_add(model->host.pump, &wait);
		return;
	}
	pump(model);
}

/* A connection to the engine broke. If the engine has ended, that is seen soon, and nothing else need be known. */
void md_adapter_rest(struct md_model *model)
{
	model->host.unsure = true;
	model->host.rests_until = md_clock_ns() + BROKEN_NS;
}

static void tell(struct md_model *adapter, enum medusa_sched_event_type type)
{
	struct medusa_sched_event event = {.type = type,
					   .transfer = adapter->adapter.transfer,
					   .function = adapter->function,
					   .gpu = adapter->base->gpu,
					   .artifact = MEDUSA_SCHED_CLASS_WEIGHTS};
	adapter->adapter.transfer = 0;
	md_decisions_post(adapter->worker, event);
}

/* ---- a load has ended ---- */

static void is_loaded(struct md_model *adapter)
{
	struct md_adapter *own = &adapter->adapter;
	own->has = true;
	own->refused = own->again = false;
	if (own->began) {
		uint64_t now = md_clock_ns(), took = now - own->began;
		adapter->last_load.began = own->began;
		adapter->last_load.ended = now;
		md_metrics_note(&md_model_newest(adapter)->histograms[MD_MODEL_LOADS], took);
		md_learned_note(adapter, MD_LEARNED_START, took);
		md_account_load(adapter);
		md_info("adapter %s: loaded by the engine of model %s", adapter->id, adapter->base->id);
	}
	own->began = 0;
	md_model_keep_ready(adapter);
	if (own->transfer)
		tell(adapter, MEDUSA_SCHED_EVENT_TRANSFER_DONE);
	md_model_forward_granted(adapter);
}

/* Requests for the adapter are tried again or end; those of the engine's other functions are not touched. */
static void has_failed(struct md_model *adapter)
{
	struct md_adapter *own = &adapter->adapter;
	own->wanted = own->refused = own->pretended = own->again = false;
	own->began = 0;
	md_plain_copy(adapter->last_failure, sizeof(adapter->last_failure), own->why);
	md_model_newest(adapter)->failures++;
	md_warn("adapter %s of model %s: the engine %s (its output: %s)", adapter->id, adapter->base->id,
		adapter->last_failure, md_log_file_path(adapter->log));
	md_model_keep_failed(adapter);
	adapter->fails = true;
	md_model_return_jobs(adapter);
	adapter->fails = false;
	if (own->transfer)
		tell(adapter, MEDUSA_SCHED_EVENT_TRANSFER_FAILED);
	else
		tell(adapter, MEDUSA_SCHED_EVENT_FUNCTION_FAILED);
}

/* ---- calls ---- */

static void load_ended(struct md_model *adapter)
{
	struct md_adapter *own = &adapter->adapter;
	if (own->status / 100 == 2) {
		is_loaded(adapter);
		return;
	}
	/*
	 * The engine may have it: it says so by refusing it, or a load that took too long has ended after all. Or it has others
	 * that should not be there, in whose place it would be.
	 */
	own->refused = true;
	adapter->base->host.unsure |= own->status && own->status != 404;
	if (!adapter->base->host.unsure)
		has_failed(adapter);
}

/* An unload that failed is tried again a few times, if the engine's list says that it has not happened. */
static void unload_ended(struct md_model *adapter)
{
	struct md_adapter *own = &adapter->adapter;
	if (own->status / 100 == 2 || own->status == 404) {
		own->has = own->other = own->leaves = false;
		own->unloads = 0;
		md_adapter_strays_left(adapter);
		md_info("adapter %s: unloaded by the engine of model %s", adapter->id, adapter->base->id);
		return;
	}
	if (++own->unloads < MD_ADAPTER_UNLOADS_MAX) {
		md_adapter_rest(adapter->base);
		return;
	}
	md_warn("adapter %s of model %s: its engine does not unload it: %s; it counts as unloaded", adapter->id,
		adapter->base->id, own->why);
	own->has = own->other = own->leaves = false;
}

static void on_ended(void *context, const struct md_adapter_answer *answer)
{
	struct md_model *adapter = context;
	struct md_adapter *own = &adapter->adapter;
	own->status = answer->status;
	if (answer->why)
		md_adapter_rest(adapter->base);
	md_adapter_words(own->loading ? "did not load the adapter" : "did not unload the adapter", answer, own->why,
			 sizeof(own->why));
	if (own->loading)
		load_ended(adapter);
	else
		unload_ended(adapter);
	md_adapter_pump(adapter->base);
	md_unload_look(adapter->worker);
	event_active(adapter->worker->look, EV_TIMEOUT, 0); /* it may be retired */
}

static void begin_call(struct md_model *adapter, bool loading)
{
	struct md_adapter *own = &adapter->adapter;
	const struct md_config_model *config = adapter->config;
	char *body = md_adapter_order(config->use_model_name, loading ? config->path : NULL);
	own->loading = loading;
	own->leaves = !loading;
	own->status = 0;
	if (loading) {
		md_adapter_strays_note(adapter);
		own->began = md_clock_ns();
		md_model_newest(adapter)->starts++;
	}
	bool begun =
	    body && md_adapter_call_begin(
			&own->call, adapter->base, loading ? "/v1/load_lora_adapter" : "/v1/unload_lora_adapter", body,
			loading ? (unsigned)(config->health_ns / 1000000000u) : MD_ADAPTER_UNLOAD_S, on_ended, adapter);
	free(body);
	if (begun)
		return;
	snprintf(own->why, sizeof(own->why), "was not asked for the adapter: out of memory for the order");
	if (loading)
		has_failed(adapter);
}

/* ---- the engine's list ---- */

/* The engine has lost it, by a restart of its own for example: it is loaded anew for those that want it. */
static void is_lost(struct md_model *adapter)
{
	snprintf(adapter->adapter.why, sizeof(adapter->adapter.why), "had lost the adapter");
	has_failed(adapter);
}

/* Room comes: what the engine should not have leaves, and then a load that it has refused is tried once more. */
static void settle(struct md_model *adapter, enum md_adapter_listed listed, bool room_comes)
{
	struct md_adapter *own = &adapter->adapter;
	bool had = own->has;
	own->has = listed == MD_ADAPTER_LISTED;
	own->other = listed == MD_ADAPTER_OTHER && own->unloads < MD_ADAPTER_UNLOADS_MAX;
	if (own->call.http)
		return;
	if (own->refused && own->has)
		is_loaded(adapter);
	else if (own->refused && !own->other && !own->again && room_comes)
		own->again = true;
	else if (own->refused && !own->other)
		has_failed(adapter);
	else if (had && !own->has && own->wanted)
		is_lost(adapter);
	own->refused = false;
}

/* Whether a load was refused while the engine has what nobody wants there; that leaves. */
static bool make_room(struct md_model *model, const char *answer, size_t size)
{
	bool refused = false, leaves = md_adapter_strays_find(model, answer, size);
	for (const struct md_model *adapter = model->host.first; adapter; adapter = adapter->adapter.next)
		refused |= adapter->adapter.refused;
	for (struct md_model *adapter = model->host.first; refused && adapter; adapter = adapter->adapter.next) {
		struct md_adapter *own = &adapter->adapter;
		if (own->wanted || md_adapter_is_fixed(adapter) ||
		    !md_adapter_find(answer, size, adapter->config->use_model_name, adapter->config->path))
			continue;
		own->leaves = leaves = true;
	}
	return refused && (leaves || md_adapter_strays_evict(model, answer, size));
}

static void settle_all(struct md_model *model, const char *answer, size_t size)
{
	bool room_comes = make_room(model, answer, size);
	for (struct md_model *adapter = model->host.first, *next; adapter; adapter = next) {
		next = adapter->adapter.next;
		settle(adapter, md_adapter_find(answer, size, adapter->config->use_model_name, adapter->config->path),
		       room_comes);
	}
}

/* From now on it belongs into the engine: what was decided before, such as an unload, is over. */
static void begin_to_want(struct md_adapter *own)
{
	own->wanted = true;
	own->pretended = own->sent_away = own->leaves = own->again = false;
	own->unloads = 0;
}

/* The scheduler learns what an engine has that it does not know of: there it stays, or it is sent away, as users have asked. */
static void tell_found(struct md_model *model)
{
	for (struct md_model *adapter = model->host.first; adapter; adapter = adapter->adapter.next) {
		struct md_adapter *own = &adapter->adapter;
		if (adapter->coming || !own->has || own->call.http)
			continue;
		if (own->wanted && own->transfer) {
			is_loaded(adapter);
		} else if (!own->wanted && !own->leaves && !adapter->gone && !adapter->unwanted) {
			begin_to_want(own);
			tell(adapter, MEDUSA_SCHED_EVENT_RESIDENT);
		} else if (own->wanted) {
			md_model_forward_granted(adapter);
		}
	}
}

static void list_ended(void *context, const struct md_adapter_answer *answer)
{
	struct md_model *model = context;
	struct md_adapter_host *host = &model->host;
	bool known = answer->status / 100 == 2;
	if (answer->why && !host->broke) { /* an engine that has ended is seen to soon, and takes its adapters along */
		host->broke = true;
		md_adapter_rest(model);
		md_adapter_pump(model);
		return;
	}
	host->unsure = host->broke = false;
	if (!known)
		md_warn("model %s: its engine does not say which adapters it has (%s), so it counts as having none",
			model->id, answer->why ? answer->why : "GET /v1/models failed");
	settle_all(model, known ? (const char *)answer->body->data : "", known ? answer->body->size : 0);
	tell_found(model);
	md_job_doubts_end(model);
	md_adapter_pump(model);
}

static void begin_list(struct md_model *model)
{
	struct md_buf none;
	md_buf_init(&none);
	if (!md_adapter_call_begin(&model->host.list, model, "/v1/models", NULL, LIST_S, list_ended, model))
		list_ended(model, &(struct md_adapter_answer){.why = "out of memory for the question", .body = &none});
}

/* ---- one step after the other ---- */

bool md_adapter_engine_is_busy(const struct md_model *model)
{
	bool busy = model->host.list.http || model->host.stray_call.http;
	for (const struct md_model *adapter = model->host.first; adapter; adapter = adapter->adapter.next)
		busy |= adapter->adapter.call.http != NULL;
	return busy;
}

static bool must_go(const struct md_adapter *own)
{
	return (own->has && !own->wanted) || own->other;
}

/* Whether the place and the memory of another one are not free yet, or its name, which one of an earlier configuration may have. */
static bool waits_for_other(const struct md_model *adapter)
{
	if (md_adapter_strays_wait(adapter->base))
		return true;
	for (const struct md_model *other = adapter->base->host.first; other; other = other->adapter.next) {
		const struct md_adapter *own = &other->adapter;
		bool same = (own->has || own->call.http) &&
			    !strcmp(other->config->use_model_name, adapter->config->use_model_name);
		if (other != adapter && (must_go(own) || (own->call.http && !own->loading) || same))
			return true;
	}
	return false;
}

static bool may_load(const struct md_model *adapter)
{
	const struct md_adapter *own = &adapter->adapter;
	return !adapter->coming && own->wanted && !own->has && !own->other && !own->call.http && !own->pretended &&
	       !own->refused && !waits_for_other(adapter);
}

/* An engine that is to leave is left alone from now on; it goes when its last call has ended. */
static bool leaves(struct md_model *model)
{
	struct md_adapter_host *host = &model->host;
	if (!host->leaves || md_adapter_engine_is_busy(model))
		return host->leaves;
	host->leaves = false;
	if (md_engine_state(model->engine) == MD_ENGINE_READY)
		md_model_leave(model);
	return true;
}

/* Nobody wants it any more, and its engine keeps it: it counts as unloaded. */
static void stay_unseen(struct md_model *adapter)
{
	adapter->adapter.has = adapter->adapter.leaves = false;
	md_unload_look(adapter->worker);
	event_active(adapter->worker->look, EV_TIMEOUT, 0);
}

static void pump(struct md_model *model)
{
	struct md_adapter_host *host = &model->host;
	if (leaves(model) || md_engine_state(model->engine) != MD_ENGINE_READY || model->adopting ||
	    model->worker->ending || host->list.http)
		return;
	if (host->unsure) { /* asked when nothing changes meanwhile */
		if (!md_adapter_engine_is_busy(model))
			begin_list(model);
		return;
	}
	md_adapter_strays_unload(model);
	for (struct md_model *adapter = host->first; adapter; adapter = adapter->adapter.next) {
		struct md_adapter *own = &adapter->adapter;
		if (own->call.http || !must_go(own))
			continue;
		if (own->other || adapter->unwanted || !md_adapter_is_fixed(adapter))
			begin_call(adapter, false);
		else
			stay_unseen(adapter);
	}
	for (struct md_model *adapter = host->first, *next; adapter; adapter = next) {
		next = adapter->adapter.next;
		if (may_load(adapter))
			begin_call(adapter, true);
	}
}

/* ---- what the scheduler decides ---- */

void md_adapter_load(struct md_model *adapter, uint64_t transfer)
{
	struct md_adapter *own = &adapter->adapter;
	begin_to_want(own);
	own->transfer = transfer;
	if (md_adapter_is_ready(adapter))
		is_loaded(adapter);
	else
		md_adapter_pump(adapter->base);
}

void md_adapter_preload(struct md_model *adapter, uint64_t transfer)
{
	struct md_adapter *own = &adapter->adapter;
	bool pretends = !own->has && (adapter->unwanted || adapter->base->pretended);
	md_adapter_load(adapter, transfer);
	if (!pretends)
		return;
	own->pretended = true;
	tell(adapter, MEDUSA_SCHED_EVENT_TRANSFER_DONE);
}

void md_adapter_want(struct md_model *adapter)
{
	adapter->adapter.pretended = false;
	md_adapter_pump(adapter->base);
}

void md_adapter_unload(struct md_model *adapter, uint64_t transfer)
{
	struct md_adapter *own = &adapter->adapter;
	own->wanted = own->pretended = own->refused = own->sent_away = own->again = false;
	own->unloads = 0;
	if (own->transfer)
		tell(adapter, MEDUSA_SCHED_EVENT_TRANSFER_FAILED);
	own->transfer = transfer;
	if (transfer)
		tell(adapter, MEDUSA_SCHED_EVENT_EVICTED);
	md_adapter_pump(adapter->base);
	event_active(adapter->worker->look, EV_TIMEOUT, 0);
}

/* ---- what the engine does ---- */

void md_adapter_engine_ready(struct md_model *model, bool unsure)
{
	model->host.unsure |= unsure;
	for (const struct md_model *adapter = model->host.first; adapter; adapter = adapter->adapter.next)
		model->host.unsure |= md_adapter_is_fixed(adapter);
	model->host.leaves = false;
	if (!model->host.unsure)
		tell_found(model);
	md_adapter_pump(model);
}

void md_adapter_engine_gone(struct md_model *model, bool failed)
{
	struct md_adapter_host *host = &model->host;
	md_adapter_call_cancel(&host->list);
	md_adapter_strays_forget(model);
	md_adapter_foreign_forget(model);
	host->unsure = host->leaves = host->broke = false;
	host->rests_until = 0;
	for (struct md_model *adapter = host->first; adapter; adapter = adapter->adapter.next) {
		struct md_adapter *own = &adapter->adapter;
		md_adapter_call_cancel(&own->call);
		own->has = own->other = own->refused = own->leaves = own->again = false;
		own->unloads = 0;
		own->began = 0;
		if (failed)
			memcpy(adapter->last_failure, model->last_failure, sizeof(adapter->last_failure));
	}
	md_adapter_give_up(model);
}

void md_adapter_give_up(struct md_model *model)
{
	for (struct md_model *adapter = model->host.first; adapter; adapter = adapter->adapter.next) {
		struct md_adapter *own = &adapter->adapter;
		if (!own->transfer)
			continue;
		own->wanted = false;
		tell(adapter, MEDUSA_SCHED_EVENT_TRANSFER_FAILED);
	}
}

void md_adapter_doubt(struct md_worker_job *job)
{
	struct md_model *model = job->model->base;
	model->host.unsure = true;
	md_adapter_pump(model);
}

/* ---- what others ask ---- */

bool md_adapter_is_ready(const struct md_model *adapter)
{
	const struct md_adapter *own = &adapter->adapter;
	return own->has && own->wanted && !own->call.http && !adapter->base->host.unsure &&
	       md_engine_state(adapter->base->engine) == MD_ENGINE_READY;
}

bool md_adapter_is_fixed(const struct md_model *adapter)
{
	return adapter->base && md_adapter_is_in_command(adapter->base->config->argv, adapter->config->use_model_name,
							 adapter->config->path);
}

bool md_adapter_is_gone(const struct md_model *adapter)
{
	const struct md_adapter *own = &adapter->adapter;
	return !own->call.http && !own->has && !own->other && (!own->wanted || own->pretended);
}

/* ---- beginning and end ---- */

bool md_adapter_begin(struct md_model *adapter)
{
	struct md_model *model = adapter->base;
	if (!model->host.pump)
		model->host.pump = event_new(model->worker->base, -1, 0, on_pump, model);
	if (!model->host.pump)
		return false;
	struct md_model **at = &model->host.first;
	while (*at)
		at = &(*at)->adapter.next;
	*at = adapter;
	return true;
}

void md_adapter_end(struct md_model *adapter)
{
	md_adapter_call_cancel(&adapter->adapter.call);
	for (struct md_model **at = &adapter->base->host.first; *at; at = &(*at)->adapter.next)
		if (*at == adapter) {
			*at = adapter->adapter.next;
			return;
		}
}

void md_adapter_end_host(struct md_model *model)
{
	md_adapter_call_cancel(&model->host.list);
	md_adapter_strays_forget(model);
	md_adapter_foreign_forget(model);
	if (model->host.pump)
		event_free(model->host.pump);
	model->host.pump = NULL;
}
