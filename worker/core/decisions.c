/* SPDX-License-Identifier: Apache-2.0 */
/* Tells the scheduler what happens, and carries out what it decides. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "worker/cluster/quota_share.h"
#include "worker/core/job_limits.h"
#include "worker/core/shared_backbone.h"
#include "worker/core/sharers.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define QUEUE_FIRST 256u
#define STEPS_MIN 512u /* events in one turn of the loop, however long they take: so many belong together */
#define AGAIN_US 50000 /* until an event is told again for which the scheduler had no memory */

/* ---- carrying out ---- */

static struct md_worker_job *job_of(struct md_worker *worker, uint64_t id)
{
	uint64_t job;
	return md_map_get(&worker->jobs, id, &job) ? (struct md_worker_job *)(uintptr_t)job : NULL;
}

static void run(struct md_worker *worker, const struct medusa_sched_action *action)
{
	for (uint32_t i = 0; i < action->request_count; i++) {
		struct md_worker_job *job = job_of(worker, action->requests[i]);
		if (job)
			md_job_grant(job, action->batch, action->gpu);
	}
}

static void set_timer(struct md_worker *worker, uint64_t at)
{
	uint64_t now = md_clock_ns(), wait = at > now ? at - now : 0;
	struct timeval time = {.tv_sec = (time_t)(wait / 1000000000u),
			       .tv_usec = (suseconds_t)(wait % 1000000000u / 1000u) + 1};
	worker->timer_at = at;
	event_add(worker->timer, &time);
}

/* An artifact comes or goes: a model's engine, or an adapter in one. What is kept for the function alone is nothing else. */
static void move_artifact(struct md_model *model, const struct medusa_sched_action *action)
{
	bool adapter = model->base != NULL;
	switch (action->type) {
	case MEDUSA_SCHED_ACTION_SWAP_IN:
		if (adapter)
			md_adapter_load(model, action->transfer);
		else
			md_model_load(model, action->gpu, action->transfer);
		break;
	case MEDUSA_SCHED_ACTION_PRELOAD:
		if (adapter)
			md_adapter_preload(model, action->transfer);
		else
			md_model_preload(model, action->gpu, action->transfer);
		break;
	default: /* it leaves */
		if (action->gpu == MEDUSA_SCHED_NONE && (adapter || model->gone))
			md_model_forget(model, action->transfer);
		else if (adapter)
			md_adapter_unload(model, action->transfer);
		else
			md_model_unload(model, action->transfer, action->type == MEDUSA_SCHED_ACTION_OFFLOAD);
	}
}

static struct md_model *model_of(const struct md_worker *worker, const struct medusa_sched_action *action)
{
	if (action->backbone < worker->backbone_count)
		return worker->backbones[action->backbone];
	return action->function < worker->model_count ? &worker->models[action->function] : NULL;
}

static void carry_out(struct md_worker *worker, const struct medusa_sched_action *action)
{
	struct md_worker_job *job;
	md_debug("%s, function %u", medusa_sched_action_name(action->type), action->function);
	switch (action->type) {
	case MEDUSA_SCHED_ACTION_RUN:
	case MEDUSA_SCHED_ACTION_JOIN: /* the engine batches by itself */
		run(worker, action);
		break;
	case MEDUSA_SCHED_ACTION_SWAP_IN:
	case MEDUSA_SCHED_ACTION_PRELOAD:
	case MEDUSA_SCHED_ACTION_EVICT:
	case MEDUSA_SCHED_ACTION_OFFLOAD:
		if (!md_shared_backbone_move(worker, action))
			move_artifact(model_of(worker, action), action);
		break;
	case MEDUSA_SCHED_ACTION_REJECT:
		if ((job = job_of(worker, action->request)))
			md_job_refuse(job, action->reason);
		break;
	case MEDUSA_SCHED_ACTION_ABORT:
		if (action->transfer)
			break; /* of an engine on its way: its start ends in any case, and is reported then */
		if ((job = job_of(worker, action->request)))
			md_job_abort(job, action->reason);
		break;
	case MEDUSA_SCHED_ACTION_SET_TIMER:
		set_timer(worker, action->at);
		break;
	}
}

/* ---- telling ---- */

static void look_at_limits(struct md_worker *worker, uint64_t request)
{
	struct md_worker_job *job = job_of(worker, request);
	if (job)
		md_job_limits_arrived(job);
}

/* With an engine, its adapters have failed, those included that were sent for before the scheduler knew it. */
static void take_back(struct md_model *model, uint32_t gpu)
{
	md_job_take_back(model, gpu);
	for (struct md_model *adapter = model->host.first; adapter; adapter = adapter->adapter.next)
		md_job_take_back(adapter, gpu);
	md_adapter_give_up(model);
}

/* False: the scheduler had no memory for the event, and nothing has changed. */
static bool take_step(struct md_worker *worker, const struct medusa_sched_event *event)
{
	const struct medusa_sched_action *const *actions;
	size_t count;
	md_quota_check(worker->cluster);
	int code = medusa_sched_step(worker->sched, event, &actions, &count);
	if (code) {
		bool again = code == MEDUSA_SCHED_ERR_NO_MEMORY;
		if (!again || !worker->step_waits)
			md_error_log("the scheduler refused the event %s%s: %s", medusa_sched_event_name(event->type),
				     again ? ", and is told again" : "", medusa_sched_error(worker->sched));
		return !again;
	}
	if (event->type == MEDUSA_SCHED_EVENT_TRANSFER_FAILED || event->type == MEDUSA_SCHED_EVENT_FUNCTION_FAILED ||
	    event->type == MEDUSA_SCHED_EVENT_BACKBONE_FAILED)
		take_back(&worker->models[event->function], event->gpu);
	for (size_t i = 0; i < count; i++)
		carry_out(worker, actions[i]);
	if (event->type == MEDUSA_SCHED_EVENT_ARRIVAL)
		look_at_limits(worker, event->request);
	return true;
}

static void leave_rest(struct md_worker *worker, size_t taken)
{
	worker->queued -= taken;
	memmove(worker->queue, worker->queue + taken, worker->queued * sizeof(*worker->queue));
}

/* An event that is lost would leave somebody waiting for ever, and those behind it must not come before it. */
static void wait_for_memory(struct md_worker *worker, size_t taken)
{
	leave_rest(worker, taken);
	worker->step_waits = true;
	event_add(worker->step, &(struct timeval){.tv_usec = AGAIN_US});
}

/* Actions post further events: the queue grows behind `i`. */
static void on_step(evutil_socket_t fd, short what, void *context)
{
	struct md_worker *worker = context;
	uint64_t until = md_clock_ns() + MD_WORKER_TURN_NS;
	(void)fd, (void)what;
	worker->step_rests = false;
	for (size_t i = 0; i < worker->queued; i++) {
		struct medusa_sched_event event = worker->queue[i];
		event.now = md_clock_ns();
		md_learned_tell(worker);
		if (!take_step(worker, &event)) {
			wait_for_memory(worker, i);
			return;
		}
		worker->step_waits = false;
		if (i >= STEPS_MIN && event.now > until && !event_add(worker->step, &(struct timeval){.tv_usec = 0})) {
			worker->step_rests = true;
			leave_rest(worker, i + 1);
			return;
		}
	}
	worker->queued = 0;
	md_sharers_look(worker);
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
	struct md_worker *worker = context;
	(void)fd, (void)what;
	/* libevent counts from the time at which this turn of its loop began, so a busy loop's timers come early */
	if (md_clock_ns() < worker->timer_at)
		set_timer(worker, worker->timer_at);
	else
		md_decisions_post(context, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_TIMER});
}

void md_decisions_post(struct md_worker *worker, struct medusa_sched_event event)
{
	event.size = sizeof(event);
	/* in good time: when there is no memory, there is room for as many more as there are */
	(void)MD_ARRAY_GROW(worker->queue, 2 * worker->queued, worker->queue_capacity);
	if (worker->queued == worker->queue_capacity) {
		md_error_log("out of memory for the event %s: the scheduler does not learn of it",
			     medusa_sched_event_name(event.type));
		return;
	}
	worker->queue[worker->queued++] = event;
	if (!worker->step_waits && !worker->step_rests)
		event_active(worker->step, EV_TIMEOUT, 0);
}

/* ---- beginning and end ---- */

enum md_status md_decisions_begin(struct md_worker *worker, struct md_error *err)
{
	md_map_init(&worker->jobs);
	worker->step = event_new(worker->base, -1, 0, on_step, worker);
	worker->timer = evtimer_new(worker->base, on_timer, worker);
	if (!worker->step || !worker->timer || !MD_ARRAY_GROW(worker->queue, QUEUE_FIRST, worker->queue_capacity))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the scheduler's events");
	return MD_OK;
}

void md_decisions_end(struct md_worker *worker)
{
	if (worker->step)
		event_free(worker->step);
	if (worker->timer)
		event_free(worker->timer);
	medusa_sched_destroy(worker->sched);
	md_map_finish(&worker->jobs);
	free(worker->queue);
}
