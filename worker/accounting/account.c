/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/accounting/account.h"

#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "worker/accounting/ledger.h"
#include "worker/core/answer_kind.h"
#include "worker/core/tenants.h"

/* ---- the engine's time ---- */

/* Up to now, each job in the engine has had an equal part of the time since somebody came or left. */
static void share_time(struct md_model *model)
{
	uint64_t now = md_clock_ns();
	if (model->sharing)
		model->shared_ns += (now - model->shared_at) / model->sharing;
	model->shared_at = now;
}

void md_account_begin(struct md_worker_job *job)
{
	struct md_model *model = md_model_with_engine(job->model);
	share_time(model);
	model->sharing++;
	job->share_began = model->shared_ns;
	job->in_engine = true;
}

void md_account_end(struct md_worker_job *job)
{
	struct md_model *model = md_model_with_engine(job->model);
	if (!job->in_engine)
		return;
	share_time(model);
	model->sharing--;
	job->usage.of[MD_USAGE_GPU_NS] += model->shared_ns - job->share_began;
	job->in_engine = false;
}

/* ---- answers ---- */

/* What an engine says of a request that it has refused is paid by nobody. */
void md_account_head(struct md_worker_job *job, const struct md_http_head *head)
{
	job->scan.kind = head->status / 100 == 2 ? md_answer_kind(head) : MD_ANSWER_OPAQUE;
}

void md_account_body(struct md_worker_job *job, const char *bytes, size_t size)
{
	if (!job->first_at)
		job->first_at = md_clock_ns();
	job->usage.of[MD_USAGE_BYTES] += size;
	md_usage_scan(&job->scan, bytes, size);
}

bool md_account_is_whole(const struct md_worker_job *job)
{
	return md_usage_scan_is_whole(&job->scan);
}

bool md_account_is_half(const struct md_worker_job *job)
{
	return md_usage_scan_is_half(&job->scan);
}

void md_account_served(struct md_worker_job *job)
{
	job->usage.of[MD_USAGE_REQUESTS] = 1;
	md_usage_scan_end(&job->scan);
}

static void add(struct md_model *model, const char *key, const struct md_usage *usage)
{
	struct md_usage *sum = &md_model_newest(model)->usage;
	for (int kind = 0; kind < MD_USAGE_KINDS; kind++)
		sum->of[kind] += usage->of[kind];
	if (model->worker->ledger)
		md_ledger_add(model->worker->ledger, model->id, key, usage);
}

static uint64_t us_since(const struct md_worker_job *job, uint64_t at)
{
	return at > job->arrived ? (at - job->arrived) / 1000 : 0;
}

/* The clock of the day may jump, so only one time of a request is taken from it. */
static void note_request(const struct md_worker_job *job)
{
	const struct md_tenant_entry *tenant = md_tenants_find(job->model->worker, job->tenant);
	uint64_t now = md_clock_ns();
	struct timespec day;
	clock_gettime(CLOCK_REALTIME, &day);
	struct md_ledger_request request = {
	    .arrived_us = (int64_t)day.tv_sec * 1000000 + day.tv_nsec / 1000 - (int64_t)us_since(job, now),
	    .model = (char *)(uintptr_t)job->model->id,
	    .outcome = job->left                                          ? MD_LEDGER_LEFT
		       : job->usage.of[MD_USAGE_REQUESTS] && !job->failed ? MD_LEDGER_SERVED
									  : MD_LEDGER_REFUSED,
	    .streamed = job->relay.stream,
	    .prompt_tokens = job->scan.prompt,
	    .completion_tokens = job->scan.completion,
	    .waited_us = us_since(job, job->sent ? job->sent : now),
	    .first_us = us_since(job, job->first_at),
	    .total_us = us_since(job, now),
	};
	snprintf(request.tenant, sizeof(request.tenant), "%s", tenant ? tenant->name : "");
	md_ledger_note(job->model->worker->ledger, &request);
}

void md_account_close(struct md_worker_job *job)
{
	struct md_usage *usage = &job->usage;
	md_account_end(job);
	if (job->model->worker->ledger && !job->load)
		note_request(job);
	if (!usage->of[MD_USAGE_REQUESTS] && !usage->of[MD_USAGE_GPU_NS])
		return;
	usage->of[MD_USAGE_PROMPT] = job->failed ? 0 : job->scan.prompt;
	usage->of[MD_USAGE_COMPLETION] = job->failed ? 0 : job->scan.completion;
	usage->of[MD_USAGE_UNTOLD] =
	    usage->of[MD_USAGE_REQUESTS] && (!job->scan.told || job->scan.wrong[0] || job->scan.wrong[1]);
	add(job->model, job->key, usage);
}

/* ---- loads ---- */

void md_account_load(struct md_model *model)
{
	uint64_t bytes = model->base ? model->config->bytes : model->config->own.memory_bytes;
	struct md_usage usage = {.of = {[MD_USAGE_LOADS] = 1, [MD_USAGE_LOADED] = bytes}};
	add(model, model->granted ? model->granted->key : "", &usage);
}
