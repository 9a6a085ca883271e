/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/accounting/account.h"

#include "base/clock.h"
#include "worker/accounting/ledger.h"

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
	share_time(job->model);
	job->model->sharing++;
	job->share_began = job->model->shared_ns;
	job->in_engine = true;
}

void md_account_end(struct md_worker_job *job)
{
	if (!job->in_engine)
		return;
	share_time(job->model);
	job->model->sharing--;
	job->usage.of[MD_USAGE_GPU_NS] += job->model->shared_ns - job->share_began;
	job->in_engine = false;
}

/* ---- answers ---- */

void md_account_body(struct md_worker_job *job, const char *bytes, size_t size)
{
	job->usage.of[MD_USAGE_BYTES] += size;
	md_usage_scan(&job->scan, bytes, size);
}

void md_account_served(struct md_worker_job *job)
{
	job->usage.of[MD_USAGE_REQUESTS] = 1;
}

static void add(struct md_model *model, const char *key, const struct md_usage *usage)
{
	struct md_usage *sum = &md_model_newest(model)->usage;
	for (int kind = 0; kind < MD_USAGE_KINDS; kind++)
		sum->of[kind] += usage->of[kind];
	if (model->worker->ledger)
		md_ledger_add(model->worker->ledger, model->id, key, usage);
}

void md_account_close(struct md_worker_job *job)
{
	struct md_usage *usage = &job->usage;
	md_account_end(job);
	if (!usage->of[MD_USAGE_REQUESTS] && !usage->of[MD_USAGE_GPU_NS])
		return;
	usage->of[MD_USAGE_PROMPT] = job->scan.prompt;
	usage->of[MD_USAGE_COMPLETION] = job->scan.completion;
	usage->of[MD_USAGE_UNTOLD] = usage->of[MD_USAGE_REQUESTS] && !job->scan.told;
	add(job->model, job->key, usage);
}

/* ---- loads ---- */

void md_account_load(struct md_model *model)
{
	struct md_usage usage = {.of = {[MD_USAGE_LOADS] = 1, [MD_USAGE_LOADED] = model->config->own.memory_bytes}};
	add(model, model->granted ? model->granted->key : "", &usage);
}
