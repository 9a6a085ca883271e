/* SPDX-License-Identifier: Apache-2.0 */
/* A client's request on its way: waits for the scheduler, then for its engine, then the engine's answer is passed on. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "worker/accounting/account.h"
#include "worker/cluster/cluster_contents.h"
#include "worker/cluster/prefixes.h"
#include "worker/core/adapter_foreign.h"
#include "worker/core/api_keys.h"
#include "worker/core/forward.h"
#include "worker/core/job_limits.h"
#include "worker/core/job_steps.h"
#include "worker/core/gpu_memory.h"
#include "worker/core/loading.h"
#include "worker/core/refusal.h"
#include "worker/core/relay.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

void md_job_post(struct md_worker_job *job, enum medusa_sched_event_type type)
{
	md_decisions_post(job->model->worker,
			  (struct medusa_sched_event){.type = type, .request = job->id, .batch = job->batch});
}

/* ---- the end ---- */

static void leave_granted(struct md_worker_job *job)
{
	for (struct md_worker_job **at = &job->model->granted; *at; at = &(*at)->next) {
		if (*at != job)
			continue;
		*at = job->next;
		return;
	}
}

/* The scheduler has been told, or has said so itself; the client has its answer, or is gone. */
static void destroy(struct md_worker_job *job)
{
	struct md_model *model = job->model;
	model->worker->parked -= job->parked;
	md_prefixes_job_end(job);
	md_account_close(job);
	md_adapter_foreign_end(job);
	leave_granted(job);
	md_loading_end(job);
	md_job_limits_end(job);
	md_map_remove(&job->model->worker->jobs, job->id, NULL);
	md_http_call_cancel(job->call);
	if (job->broken)
		event_free(job->broken);
	if (job->unseen)
		event_free(job->unseen);
	model->unfinished--;
	if (!job->load && !job->left)
		MD_JOB_COUNT(job, open, -1);
	model->last_end = md_clock_ns();
	md_relay_finish(&job->relay);
	free(job->target);
	free(job->body);
	free(job);
	if (model->unload_at || md_model_with_engine(model)->unload_at)
		md_unload_look(model->worker);
	if (model->retired)
		event_active(model->worker->look, EV_TIMEOUT, 0);
}

struct md_worker_job **md_job_list(const struct md_worker *worker, size_t *count)
{
	struct md_worker_job **jobs = NULL;
	size_t cursor = 0, room = 0;
	uint64_t id, at;
	*count = 0;
	while (md_map_next(&worker->jobs, &cursor, &id, &at))
		if (MD_ARRAY_GROW(jobs, *count, room))
			jobs[(*count)++] = (struct md_worker_job *)(uintptr_t)at;
	return jobs;
}

void md_job_end_all(struct md_worker *worker)
{
	size_t count;
	struct md_worker_job **jobs = md_job_list(worker, &count);
	for (size_t i = 0; i < count; i++)
		destroy(jobs[i]);
	free(jobs);
}

/* An engine that is done with it, or can't be: the scheduler is told that it has ended. */
static void finish(struct md_worker_job *job)
{
	md_job_post(job, MEDUSA_SCHED_EVENT_DONE);
	destroy(job);
}

/* ---- loading without a request ---- */

static void tell_loaded(struct md_worker_job *job, const char *why)
{
	void (*loaded)(void *context, const char *why) = job->loaded;
	job->loaded = NULL;
	if (loaded)
		loaded(job->waiter, why);
}

void md_job_forget(void *context)
{
	struct md_worker_job *job = context;
	job->loaded = NULL;
}

/* ---- the client ---- */

static void on_gone(void *context)
{
	struct md_worker_job *job = context;
	job->relay.exchange = NULL;
	if (job->stage == MD_JOB_RUNNING)
		MD_JOB_COUNT(job, left_running, 1);
	else
		MD_JOB_COUNT(job, left_waiting, 1);
	MD_JOB_COUNT(job, open, -1); /* the scheduler may take its time to answer */
	job->left = true;
	if (job->parked) {
		destroy(job);
		return;
	}
	md_job_post(job, MEDUSA_SCHED_EVENT_CANCEL);
	if (job->stage == MD_JOB_WAITING)
		return; /* the scheduler answers with a refusal */
	finish(job);
}

static void on_drained(void *context)
{
	struct md_worker_job *job = context;
	if (job->call)
		md_http_call_pause(job->call, false);
}

static const struct md_http_exchange_events watching = {.gone = on_gone, .drained = on_drained};

/* ---- its answer is there, or will not come ---- */

static void end_failed(struct md_worker_job *job, enum md_reply_error error, const char *code)
{
	char message[sizeof(job->why) + 160];
	snprintf(message, sizeof(message), "model %.100s: %s", job->model->id, job->why);
	tell_loaded(job, job->why);
	if (!job->load)
		MD_JOB_COUNT(job, failed, 1);
	job->failed = true;
	md_relay_fail(&job->relay, error, code, message);
	finish(job);
}

void md_job_end_failed(struct md_worker_job *job, const char *code)
{
	end_failed(job, MD_REPLY_UPSTREAM, code);
}

void md_job_end_lacking(struct md_worker_job *job)
{
	end_failed(job, MD_REPLY_UNAVAILABLE, "unavailable");
}

static void note_time(const struct md_worker_job *job, enum md_model_histogram which, uint64_t ns)
{
	md_metrics_note(&md_model_newest(job->model)->histograms[which], ns);
}

/* Of a request that was given to an engine again, the last time counts. */
static void note_times(const struct md_worker_job *job)
{
	uint64_t now = md_clock_ns();
	note_time(job, MD_MODEL_QUEUED, job->sent - job->arrived);
	if (job->load_ns)
		note_time(job, MD_MODEL_QUEUED_FOR_LOAD, job->load_ns);
	note_time(job, MD_MODEL_INFERENCE, now - job->sent);
	note_time(job, MD_MODEL_REQUESTS, now - job->arrived);
}

static void count_served(struct md_worker_job *job)
{
	MD_JOB_COUNT(job, served, 1);
	note_times(job);
	md_account_served(job);
}

void md_job_complete(struct md_worker_job *job)
{
	struct md_http_exchange *exchange = job->relay.exchange;
	count_served(job);
	if (exchange)
		md_relay_end(&job->relay);
	finish(job);
	if (exchange)
		md_http_answer_end(exchange);
}

/* ---- to the engine ---- */

/* The engine is ready, which is all that was wanted. */
static void end_load(struct md_worker_job *job)
{
	tell_loaded(job, NULL);
	finish(job);
}

static void on_unseen(evutil_socket_t fd, short what, void *context)
{
	(void)fd, (void)what;
	md_job_post(context, MEDUSA_SCHED_EVENT_FIRST_TOKEN);
}

/* Of an answer in one piece nobody sees the first token, and other models' first tokens wait for it: it is assumed. */
static void assume_first_token(struct md_worker_job *job)
{
	uint64_t us = job->model->told.t0_ns / 1000;
	struct timeval wait = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
	if (!job->unseen)
		job->unseen = evtimer_new(job->model->worker->base, on_unseen, job);
	if (job->unseen)
		event_add(job->unseen, &wait);
}

/* The time since the request came for which a model was loaded that it waited for. */
static uint64_t loaded_for(const struct md_worker_job *job, const struct md_model *model)
{
	uint64_t from = model->last_load.began > job->arrived ? model->last_load.began : job->arrived;
	return model->last_load.ended > from ? model->last_load.ended - from : 0;
}

static void send_request(struct md_worker_job *job)
{
	const struct md_http_head *head = md_http_exchange_head(job->relay.exchange);
	struct md_model *model = job->model;
	size_t size = job->body_size;
	const char *body = job->body ? job->body : md_http_exchange_body(job->relay.exchange, &size);
	md_loading_end(job);
	job->stage = MD_JOB_RUNNING;
	md_account_begin(job);
	job->sent = md_clock_ns();
	job->load_ns = loaded_for(job, model) + (model->base ? loaded_for(job, model->base) : 0);
	job->call = md_http_call_begin(model->worker->base, &model->settings.address, head->method, job->target,
				       &md_job_calling, job);
	if (!job->call) {
		snprintf(job->why, sizeof(job->why), "out of memory for the request");
		md_job_end_lacking(job);
		return;
	}
	md_forward_headers(job->call, job->relay.exchange,
			   &(struct md_forward){.host = model->settings.host, .keys = model->worker->passes_keys});
	md_http_call_send(job->call, body, size, model->connect_s, model->answer_s);
	md_job_post(job, MEDUSA_SCHED_EVENT_STARTED);
	if (!job->relay.stream)
		assume_first_token(job);
}

/* The engine has the adapter, and has said 404 for another reason. */
void md_job_doubts_end(struct md_model *model)
{
	size_t count;
	struct md_worker_job **jobs = md_job_list(model->worker, &count);
	for (size_t i = 0; i < count; i++) {
		struct md_worker_job *job = jobs[i];
		if (job->model->base != model || !job->doubted || job->call || job->stage != MD_JOB_RUNNING)
			continue;
		job->doubted = false;
		job->asked_twice = true;
		md_account_end(job);
		send_request(job);
	}
	free(jobs);
}

void md_job_forward(struct md_worker_job *job)
{
	if (job->load)
		end_load(job);
	else
		send_request(job);
}

/* The engine is there, and has the adapter that is wanted. */
static bool can_be_sent(const struct md_worker_job *job)
{
	const struct md_model *host = md_model_with_engine(job->model);
	return job->gpu == host->gpu && md_engine_state(host->engine) == MD_ENGINE_READY &&
	       (host == job->model || md_adapter_is_ready(job->model));
}

void md_job_grant(struct md_worker_job *job, uint64_t batch, uint32_t gpu)
{
	struct md_worker_job **at = &job->model->granted;
	if (job->stage == MD_JOB_RUNNING) { /* which must not be: two answers would go to one client */
		md_error_log("model %s: the scheduler runs request %" PRIu64 ", which runs already", job->model->id,
			     job->id);
		job->batch = batch;
		md_job_post(job, MEDUSA_SCHED_EVENT_STARTED);
		return;
	}
	leave_granted(job);
	job->batch = batch;
	job->gpu = gpu;
	job->stage = MD_JOB_GRANTED;
	job->granted = md_clock_ns();
	if (!job->relay.exchange && !job->load) {
		finish(job);
	} else if (can_be_sent(job)) {
		md_job_forward(job);
	} else {
		while (*at)
			at = &(*at)->next;
		job->next = NULL;
		*at = job;
		md_model_want(job->model);
	}
}

void md_job_take_back(struct md_model *model, uint32_t gpu)
{
	for (struct md_worker_job *job, **at = &model->granted; (job = *at);) {
		if (job->gpu != gpu) {
			at = &job->next;
			continue;
		}
		*at = job->next;
		job->stage = MD_JOB_WAITING;
	}
}

/*
 * Reads what the system still has of the engine's answer. False: the job goes on, also where that was a 404 that is doubted
 * (is_doubtful): nobody is left who could be asked.
 */
static bool ends_with_rest(struct md_worker_job *job)
{
	const struct md_map *jobs = &job->model->worker->jobs;
	uint64_t id = job->id;
	if (!job->call || !md_http_call_take_rest(job->call))
		return false;
	return !md_map_get(jobs, id, NULL) || !job->doubted;
}

/*
 * The batch has failed with the engine: the scheduler decides whether it is tried again. An answer that the engine has
 * sent whole before it ended is one, although the end of the process was seen before the end of the connection.
 */
bool md_job_return(struct md_worker_job *job, const struct md_model *by)
{
	if (ends_with_rest(job))
		return false;
	if (job->until_close && !job->refused && md_account_is_whole(job)) {
		md_job_complete(job);
		return false;
	}
	bool counts = job->stage == MD_JOB_RUNNING || by->fails;
	bool again = !counts || (job->tries++ < job->model->worker->config->node.retries && !by->hopeless);
	if (job->relay.head_sent || !again) {
		if (job->stage == MD_JOB_GRANTED)
			md_job_post(job, MEDUSA_SCHED_EVENT_CANCEL);
		snprintf(job->why, sizeof(job->why), "its engine %.300s", by->last_failure);
		md_job_end_failed(job, "engine_failed");
		return false;
	}
	job->doubted = false;
	MD_JOB_COUNT(job, retried, job->stage == MD_JOB_RUNNING);
	leave_granted(job);
	md_account_end(job);
	md_http_call_cancel(job->call);
	job->call = NULL;
	if (job->broken)
		event_del(job->broken);
	job->broken_ms = 0;
	if (job->unseen)
		event_del(job->unseen);
	job->stage = MD_JOB_WAITING;
	return true;
}

/* ---- the scheduler ---- */

static uint64_t deadline_of(const struct md_worker_job *job)
{
	uint64_t most = job->load ? 0 : job->model->config->own.deadline_ns;
	return most ? job->arrived + most : 0;
}

static void want_again(struct md_model *model)
{
	if (!model->unwanted)
		return;
	model->unwanted = false;
	md_model_keep_changed(model);
}

static void arrive(struct md_worker_job *job)
{
	want_again(job->model);
	want_again(md_model_with_engine(job->model));
	md_decisions_post(job->model->worker,
			  (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_ARRIVAL,
						      .request = job->id,
						      .function = job->model->function,
						      .deadline = deadline_of(job),
						      .tenant = job->tenant,
						      .priority = (int32_t)job->model->config->own.priority,
						      .load = job->load});
}

/* A request whose model's files are on their way takes no memory of a GPU from others meanwhile. */
static void post_arrival(struct md_worker_job *job)
{
	struct md_model *host = md_model_with_engine(job->model);
	job->model->unfinished++;
	job->parked = md_engine_state(host->engine) == MD_ENGINE_STOPPED && md_contents_want(host) == MD_CONTENTS_COMES;
	if (job->parked)
		job->model->worker->parked++;
	else
		arrive(job);
}

void md_jobs_unpark(struct md_worker *worker)
{
	size_t count;
	struct md_worker_job **jobs = worker->parked ? md_job_list(worker, &count) : NULL;
	for (size_t i = 0; jobs && i < count; i++)
		if (jobs[i]->parked && md_contents_want(md_model_with_engine(jobs[i]->model)) != MD_CONTENTS_COMES) {
			jobs[i]->parked = false;
			worker->parked--;
			arrive(jobs[i]);
		}
	free(jobs);
}

/* The target has the prefix of the engine's URL. */
static void change_prefix(struct md_worker_job *job, const char *old, const char *new)
{
	char *made = NULL;
	if (!job->target || !strcmp(old, new) || asprintf(&made, "%s%s", new, job->target + strlen(old)) < 0)
		return;
	free(job->target);
	job->target = made;
}

/* A job that waits waits for another model. Its last batch may have failed before its engine was ready. */
static void move(struct md_worker_job *job, struct md_model *model)
{
	leave_granted(job);
	job->stage = MD_JOB_WAITING;
	change_prefix(job, job->model->prefix, model->prefix);
	job->model->unfinished--;
	job->model = model;
	job->batch = 0;
	post_arrival(job);
}

/* ---- the beginning ---- */

/* The client is told why; the job is still there, and has no client any more. */
static void tell_refused(struct md_worker_job *job, enum medusa_sched_reason reason)
{
	struct md_model *model = job->model;
	struct md_refusal refusal;
	if (job->gives_up)
		reason = job->gives_up;
	char lack[200];
	md_refusal_make(reason, model->id, model->last_failure, &refusal);
	if (reason == MEDUSA_SCHED_REASON_WAITED_TOO_LONG &&
	    md_gpu_memory_lacks(model->worker, model, lack, sizeof(lack)))
		md_refusal_make_no_room(model->id, lack, &refusal);
	const struct md_tenant_entry *tenant = md_tenants_find(model->worker, job->tenant);
	if (reason == MEDUSA_SCHED_REASON_QUOTA && tenant)
		md_refusal_make_quota(model->id, tenant, &refusal);
	if (job->dismissed)
		md_refusal_make_drained(model->id, &refusal);
	bool failed = reason == MEDUSA_SCHED_REASON_FAILED || reason == MEDUSA_SCHED_REASON_LOAD_FAILED;
	if (job->relay.exchange && failed) /* without one the client has left, which is counted */
		MD_JOB_COUNT(job, failed, 1);
	else if (job->relay.exchange)
		MD_JOB_COUNT(job, refused, 1);
	job->failed = failed;
	tell_loaded(job, refusal.message);
	md_relay_fail(&job->relay, refusal.error, refusal.code, refusal.message);
}

/* Who serves the model's ID now; NULL: nobody does. Of those in between nothing may be left, their configuration included. */
static struct md_model *heir_of(struct md_model *model)
{
	struct md_model *newest = md_model_newest(model);
	return newest == model || newest->gone ? NULL : newest;
}

void md_job_refuse(struct md_worker_job *job, enum medusa_sched_reason reason)
{
	struct md_model *heir = reason == MEDUSA_SCHED_REASON_UNREGISTERED ? heir_of(job->model) : NULL;
	if (heir && (job->relay.exchange || job->load)) {
		move(job, heir);
		return;
	}
	tell_refused(job, reason);
	destroy(job);
}

void md_job_abort(struct md_worker_job *job, enum medusa_sched_reason reason)
{
	tell_refused(job, reason);
	finish(job);
}

void md_job_dismiss(struct md_worker_job *job)
{
	if (job->stage == MD_JOB_RUNNING || (job->dismissed && job->stage == MD_JOB_WAITING))
		return; /* it runs, or the scheduler has been told already */
	job->dismissed = true;
	if (job->parked) {
		md_job_refuse(job, MEDUSA_SCHED_REASON_CANCELLED);
		return;
	}
	md_job_post(job, MEDUSA_SCHED_EVENT_CANCEL);
	if (job->stage == MD_JOB_GRANTED)
		md_job_abort(job, MEDUSA_SCHED_REASON_CANCELLED);
}

void md_job_cut(struct md_worker_job *job)
{
	if (job->stage != MD_JOB_RUNNING) {
		md_job_dismiss(job);
		return;
	}
	char message[160];
	snprintf(message, sizeof(message), "model %.100s: the daemon ends", job->model->id);
	MD_JOB_COUNT(job, failed, 1);
	job->failed = true;
	md_relay_fail(&job->relay, MD_REPLY_UNAVAILABLE, "draining", message);
	finish(job);
}

void md_job_lose_share(struct md_worker_job *job)
{
	const struct md_tenant_entry *tenant = md_tenants_find(job->model->worker, job->tenant);
	char message[400];
	if (job->stage != MD_JOB_RUNNING && job->stage != MD_JOB_GRANTED)
		return;
	snprintf(message, sizeof(message),
		 "model %.100s: the request was broken off, because this node has not reached etcd for so long that "
		 "others may have its "
		 "share of what tenant %.100s may run in the cluster (medusa.tenants.cluster_max_running, "
		 "medusa.cluster.quota_hold)",
		 job->model->id, tenant ? tenant->name : "");
	if (job->stage == MD_JOB_GRANTED)
		md_job_post(job, MEDUSA_SCHED_EVENT_CANCEL);
	MD_JOB_COUNT(job, failed, 1);
	job->failed = true;
	md_relay_fail(&job->relay, MD_REPLY_UNAVAILABLE, "quota_lost", message);
	finish(job);
}

struct md_worker_job *md_job_load(struct md_model *model, void (*done)(void *context, const char *why), void *context)
{
	struct md_worker *worker = model->worker;
	struct md_worker_job *job = calloc(1, sizeof(*job));
	if (!job || !md_map_put(&worker->jobs, worker->next_job + 1, (uintptr_t)job)) {
		free(job);
		return NULL;
	}
	*job = (struct md_worker_job){.model = model,
				      .id = ++worker->next_job,
				      .arrived = md_clock_ns(),
				      .load = true,
				      .loaded = done,
				      .waiter = context};
	post_arrival(job);
	return job;
}

void md_job_take(struct md_model *model, struct md_http_exchange *exchange, char *target, char *body, size_t size,
		 bool stream)
{
	struct md_worker *worker = model->worker;
	struct md_worker_job *job = calloc(1, sizeof(*job));
	if (!job || !target || !md_map_put(&worker->jobs, worker->next_job + 1, (uintptr_t)job)) {
		free(job);
		free(target);
		free(body);
		md_reply_error(exchange, MD_REPLY_UNAVAILABLE, NULL, "out of memory for the request");
		return;
	}
	*job = (struct md_worker_job){.model = model,
				      .id = ++worker->next_job,
				      .relay = {.exchange = exchange, .stream = stream},
				      .arrived = md_http_exchange_since(exchange),
				      .target = target,
				      .body = body,
				      .body_size = size,
				      .prefix = md_prefixes_take(worker)};
	md_keys_name(worker->config, md_http_exchange_head(exchange), job->key, sizeof(job->key));
	job->tenant = md_tenants_of(worker, model, md_http_exchange_head(exchange));
	MD_JOB_COUNT(job, taken, 1);
	MD_JOB_COUNT(job, open, 1);
	md_http_exchange_watch(exchange, &watching, job);
	md_adapter_foreign_begin(job);
	md_job_limits_begin(job);
	md_loading_begin(job);
	post_arrival(job);
}
