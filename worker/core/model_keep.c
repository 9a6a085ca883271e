/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/model_keep.h"

#include "base/clock.h"
#include "worker/cluster/cluster_contents.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define SECOND UINT64_C(1000000000)
#define FIRST_WAIT SECOND
#define LONGEST_WAIT (300 * SECOND)
/* Starts that may fail one after the other before requests are refused: two requests, tried again once. */
#define STARTS_AT_ONCE 4u
#define LONGEST_REST (60 * SECOND)
#define PROVEN (60 * SECOND) /* an engine that was ready for so long failed for a new reason */

void md_model_keep_promise(const struct md_model *model, const struct md_config_own *own,
			   struct medusa_sched_function *function)
{
	const struct md_model *base = model->base;
	bool wanted = !model->coming && !model->unwanted && !(base && base->unwanted);
	bool waits = model->keep.again_at || (base && base->keep.again_at);
	function->pinned = wanted && (own->pin || md_adapter_is_fixed(model));
	bool kept = wanted && (own->min_replicas || model->placed) && !waits;
	/* a model is one engine; one whose files are on their way takes no memory meanwhile */
	function->min_replicas = kept && (base || md_contents_want((struct md_model *)model) == MD_CONTENTS_HERE);
}

/* What is promised of adapters depends on their engine. */
static void changed(struct md_model *model)
{
	md_learned_changed(model);
	for (struct md_model *adapter = model->host.first; adapter; adapter = adapter->adapter.next)
		md_learned_changed(adapter);
}

void md_model_keep_changed(struct md_model *model)
{
	changed(model);
	md_decisions_post(model->worker, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_TIMER});
}

/* Each start takes memory away from others. After two further ones the time is twice as long. */
static void note_failed_start(struct md_model_keep *keep, uint64_t now)
{
	keep->starts_failed++;
	if (keep->starts_failed < STARTS_AT_ONCE)
		return;
	uint32_t doubled = (keep->starts_failed - STARTS_AT_ONCE) / 2;
	uint64_t rest = doubled < 6 ? SECOND << doubled : LONGEST_REST;
	keep->rests_until = now + (rest < LONGEST_REST ? rest : LONGEST_REST);
}

uint64_t md_model_keep_rest(const struct md_model *model)
{
	uint64_t now = md_clock_ns(), until = model->keep.rests_until;
	return until > now && md_engine_state(model->engine) == MD_ENGINE_STOPPED ? until - now : 0;
}

void md_model_keep_failed(struct md_model *model)
{
	struct md_model_keep *keep = &model->keep;
	uint64_t now = md_clock_ns(), wait = LONGEST_WAIT;
	if (keep->ready_at && now - keep->ready_at >= PROVEN)
		keep->failures = keep->starts_failed = 0;
	keep->ready_at = 0;
	if (model->load_began ? !model->load_swaps : !keep->answered)
		note_failed_start(keep, now);
	if (keep->failures < 9)
		wait = FIRST_WAIT << keep->failures;
	keep->failures++;
	keep->again_at = now + (wait < LONGEST_WAIT ? wait : LONGEST_WAIT);
	if ((model->config->own.min_replicas || model->placed) && !model->unwanted)
		md_warn("model %s: it is loaded again in %u s, or with the next request", model->id,
			(unsigned)((keep->again_at - now) / SECOND));
	changed(model);
}

void md_model_keep_ready(struct md_model *model)
{
	bool waited = model->keep.again_at != 0;
	model->keep.again_at = 0;
	model->keep.ready_at = md_clock_ns();
	model->keep.answered = false;
	model->keep.rests_until = 0;
	if (waited)
		md_model_keep_changed(model);
}

void md_model_keep_answered(struct md_model *model)
{
	model->keep.answered = true;
	model->keep.starts_failed = 0;
}

void md_model_keep_look(struct md_worker *worker)
{
	uint64_t now = md_clock_ns();
	for (struct md_model *model = NULL; (model = md_models_each(worker, model));) {
		if (!model->keep.again_at || now < model->keep.again_at)
			continue;
		model->keep.again_at = 0;
		md_model_keep_changed(model);
	}
}
