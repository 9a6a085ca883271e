/* SPDX-License-Identifier: Apache-2.0 */
/* Takes no more requests, lets those that are there end, and then, if it was told so, ends the daemon. */
#include <stdlib.h>

#include "base/clock.h"
#include "worker/cluster/cluster_tls.h"
#include "worker/core/notify.h"
#include "worker/core/worker.h"

#define MS 1000000u
#define LAST_ANSWERS_MS 5000u /* for clients to take what was answered, when all requests have ended */

struct md_drain {
	struct md_worker *worker;
	bool on, ends, cut;
	bool told;         /* clients whose requests had not ended */
	uint64_t deadline; /* of requests that wait; ns */
	uint64_t quiet;    /* since when no request is left and the front is closed; 0: not yet */
};

struct md_drain *md_drain_create(struct md_worker *worker)
{
	struct md_drain *made = calloc(1, sizeof(*made));
	if (made)
		made->worker = worker;
	return made;
}

void md_drain_destroy(struct md_drain *drain)
{
	free(drain);
}

void md_drain_begin(struct md_drain *drain, uint64_t deadline_ms, bool ends, bool cut)
{
	drain->on = true;
	drain->ends = drain->ends || ends;
	drain->cut = drain->cut || cut;
	if (drain->ends)
		md_notify_stopping(drain->worker->notify);
	drain->deadline = md_clock_ns() + deadline_ms * MS;
	md_drain_look(drain);
}

void md_drain_undo(struct md_drain *drain)
{
	if (!drain->ends)
		drain->on = false;
}

bool md_drain_is_on(const struct md_drain *drain)
{
	return drain->on;
}

bool md_drain_ends(const struct md_drain *drain)
{
	return drain->ends;
}

bool md_drain_is_empty(const struct md_drain *drain)
{
	return !drain->worker->jobs.used && !md_passed_open(drain->worker);
}

static void for_each_job(const struct md_worker *worker, void (*end)(struct md_worker_job *job))
{
	size_t count;
	struct md_worker_job **jobs = md_job_list(worker, &count);
	for (size_t i = 0; i < count; i++)
		end(jobs[i]);
	free(jobs);
}

bool md_drain_cut(struct md_drain *drain)
{
	bool any = !md_drain_is_empty(drain);
	for_each_job(drain->worker, md_job_cut);
	md_passed_cut(drain->worker);
	return any;
}

bool md_drain_closes(const struct md_drain *drain)
{
	return drain->ends && md_drain_is_empty(drain);
}

/* Clients have their last answers, or had the time to take them. */
static bool is_quiet(struct md_drain *drain)
{
	struct md_http_front *front = drain->worker->front;
	uint64_t now = md_clock_ns();
	if (!drain->quiet) {
		drain->quiet = now;
		md_http_front_drain(front);
		md_cluster_drain(drain->worker->cluster);
	}
	return !(md_http_front_connections(front) + md_cluster_connections(drain->worker->cluster)) ||
	       now - drain->quiet > LAST_ANSWERS_MS * (uint64_t)MS;
}

bool md_drain_look(struct md_drain *drain)
{
	bool late = drain->on && md_clock_ns() >= drain->deadline;
	bool cut = late && drain->cut;
	if (cut && !drain->told) {
		drain->told = true;
		if (md_drain_cut(drain)) /* what clients are told is sent before the next look */
			return false;
	}
	if (late && !cut)
		for_each_job(drain->worker, md_job_dismiss);
	if (!drain->ends || !(cut || (md_drain_is_empty(drain) && is_quiet(drain))))
		return false;
	return md_models_stop(drain->worker);
}
