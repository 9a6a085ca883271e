/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/job_limits.h"

#include "base/clock.h"

/* The scheduler forgets the request; the client is told why when it has. */
static void give_up(struct md_worker_job *job, enum medusa_sched_reason reason)
{
	if (job->dismissed || job->gives_up || job->load || !job->relay.exchange)
		return;
	job->gives_up = reason;
	if (job->parked) {
		md_job_refuse(job, reason);
		return;
	}
	md_decisions_post(
	    job->model->worker,
	    (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_CANCEL, .request = job->id, .batch = job->batch});
	if (job->stage == MD_JOB_GRANTED)
		md_job_abort(job, reason);
}

static void on_impatient(evutil_socket_t fd, short what, void *context)
{
	struct md_worker_job *job = context;
	(void)fd, (void)what;
	if (job->stage != MD_JOB_RUNNING)
		give_up(job, MEDUSA_SCHED_REASON_WAITED_TOO_LONG);
}

void md_job_limits_begin(struct md_worker_job *job)
{
	uint64_t us = job->model->config->own.max_wait_ns / 1000;
	struct timeval wait = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
	if (!us)
		return;
	job->impatient = evtimer_new(job->model->worker->base, on_impatient, job);
	if (job->impatient)
		event_add(job->impatient, &wait);
}

void md_job_limits_end(struct md_worker_job *job)
{
	if (job->impatient)
		event_free(job->impatient);
	job->impatient = NULL;
}

void md_job_limits_arrived(struct md_worker_job *job)
{
	uint32_t most = job->model->config->own.max_queue, waiting = 0;
	size_t cursor = 0;
	uint64_t id, at;
	if (!most || job->stage != MD_JOB_WAITING)
		return;
	while (md_map_next(&job->model->worker->jobs, &cursor, &id, &at)) {
		const struct md_worker_job *other = (struct md_worker_job *)(uintptr_t)at;
		waiting += other->model == job->model && other->stage == MD_JOB_WAITING && !other->gives_up;
	}
	if (waiting > most)
		give_up(job, MEDUSA_SCHED_REASON_QUEUE_FULL);
}
