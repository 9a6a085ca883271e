/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine answers to a request: passed on as it comes, whole or broken off at its end. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "worker/accounting/account.h"
#include "worker/cluster/prefixes.h"
#include "worker/core/job_steps.h"
#include "worker/core/relay.h"
#include "worker/core/worker.h"

#define UNSENT_MAX (256u << 10) /* bytes that wait for a slow client before the engine is made to wait */
#define BROKEN_MS 250           /* until a connection that broke counts as the engine's failure, and not as its end */
#define ENDING_MS 8000 /* the longest of such waits, each twice as long as the one before, for an end that has begun */
#define ALIVE_MS 200   /* that an engine lives on for an answer to be whole that ends with its connection */

static void on_broken(evutil_socket_t fd, short what, void *context);

/* The job fails then, unless its call ends before. False: out of memory. */
static bool fail_in(struct md_worker_job *job, unsigned ms)
{
	struct timeval wait = {.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000};
	if (!job->broken)
		job->broken = evtimer_new(job->model->worker->base, on_broken, job);
	return job->broken && !event_add(job->broken, &wait);
}

/*
 * The connection broke because the engine ends, and whoever was started as its first process does not know that yet, or the machine has much to do:
 * its end returns the job (md_job_return).
 */
static bool waits_for_end(struct md_worker_job *job)
{
	if (!job->broken_ms || job->broken_ms >= ENDING_MS || !md_engine_is_ending(job->model->engine))
		return false;
	job->broken_ms *= 2;
	return fail_in(job, job->broken_ms);
}

/* The engine was not seen to end meanwhile. If it lives, it has failed this request, or ended its answer. */
static void on_broken(evutil_socket_t fd, short what, void *context)
{
	struct md_worker_job *job = context;
	(void)fd, (void)what;
	if (waits_for_end(job))
		return;
	bool ending = job->all_came && md_engine_is_ending(job->model->engine), half = md_account_is_half(job);
	if (job->all_came && !ending && !half) {
		md_job_complete(job);
		return;
	}
	if (ending)
		snprintf(job->why, sizeof(job->why), "its engine is ending, and nothing but that ended its answer");
	else if (job->all_came)
		snprintf(job->why, sizeof(job->why), "the connection ended within the JSON of its answer");
	md_job_end_failed(job, ending ? "engine_failed" : NULL);
}

/*
 * An engine that has lost an adapter, by a restart of its own for example, says 404. Then it is asked whether it has it; if it does,
 * the request is sent once more, and what is answered then is the client's.
 */
static bool is_doubtful(const struct md_worker_job *job, const struct md_http_head *head)
{
	return job->model->base && head->status == 404 && !job->asked_twice && !job->relay.head_made;
}

static void on_head(void *context, const struct md_http_head *head)
{
	struct md_worker_job *job = context;
	md_model_keep_answered(md_model_with_engine(job->model));
	if (is_doubtful(job, head)) {
		job->doubted = true;
		return;
	}
	job->relay.head_sent = true;
	job->until_close = head->until_close;
	job->refused = job->relay.head_made && !md_relay_continues(head, job->why, sizeof(job->why));
	if (job->refused) {
		fail_in(job, 0); /* or else at the answer's end */
		return;
	}
	md_account_head(job, head);
	if (job->relay.exchange && !job->relay.head_made)
		md_relay_head(&job->relay, head);
}

static void on_body(void *context, const char *bytes, size_t size)
{
	struct md_worker_job *job = context;
	if (job->doubted)
		return;
	if (!job->first_token) {
		md_prefixes_job_answers(job);
		md_job_post(job, MEDUSA_SCHED_EVENT_FIRST_TOKEN);
		md_metrics_note(&md_model_newest(job->model)->histograms[MD_MODEL_FIRST_BYTE],
				md_clock_ns() - job->arrived);
		/* what is not streamed begins with its end */
		if (job->relay.stream)
			md_learned_note(job->model, MD_LEARNED_FIRST_TOKEN, md_clock_ns() - job->sent);
	}
	job->first_token = true;
	job->bytes += size;
	md_account_body(job, bytes, size);
	if (job->relay.exchange && !job->refused && md_relay_body(&job->relay, bytes, size) > UNSENT_MAX)
		md_http_call_pause(job->call, true);
}

/*
 * The system closes the connections of a process that is killed as that process would have done. So an answer that says
 * nothing of its end, neither in its head nor by what it is, is whole only if its engine outlives it.
 */
static void on_end(void *context)
{
	struct md_worker_job *job = context;
	job->call = NULL;
	if (job->doubted) {
		md_adapter_doubt(job);
		return;
	}
	job->all_came = job->until_close && !job->refused && !md_account_is_whole(job);
	if (job->all_came && fail_in(job, ALIVE_MS))
		return;
	if (job->all_came)
		snprintf(job->why, sizeof(job->why), "out of memory for the end of its answer");
	if (job->refused || job->all_came)
		md_job_end_failed(job, NULL);
	else
		md_job_complete(job);
}

static void on_failed(void *context, const char *why)
{
	struct md_worker_job *job = context;
	job->call = NULL;
	job->doubted = false;
	if (!job->refused)
		snprintf(job->why, sizeof(job->why), "%s", why);
	job->broken_ms = job->refused ? 0 : BROKEN_MS;
	if (!fail_in(job, BROKEN_MS))
		md_job_end_failed(job, NULL);
}

static void on_lacking(void *context, const char *why)
{
	struct md_worker_job *job = context;
	job->call = NULL;
	job->doubted = false;
	snprintf(job->why, sizeof(job->why), "%s", why);
	md_job_end_lacking(job);
}

const struct md_http_call_events md_job_calling = {
    .head = on_head, .body = on_body, .end = on_end, .failed = on_failed, .lacking = on_lacking};
