/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the facts, arguments and limits of the engine with the artifact's; a difference refuses the whole artifact.
 */
#define MD_LOG_DOMAIN "restore"

#include <string.h>

#include "api/api.h"
#include "base/log.h"
#include "base/uncancelled.h"
#include "driver/process_arguments.h"
#include "restore/agree.h"
#include "restore/background.h"
#include "restore/graph_state.h"
#include "restore/outcome.h"
#include "restore/restore.h"
#include "restore/restore_api.h"
#include "restore/restore_facts.h"
#include "restore/stages.h"

/* Compares one fact alone: the engine may state others later. */
static enum md_status compare_fact(const struct md_restore *r, struct md_fingerprint_fact *said, struct md_error *err)
    MD_REQUIRES(md_restore_lock)
{
	const struct md_fingerprint *stored = &r->artifact.fingerprint;
	struct md_fingerprint there = {0}, here = {.facts = said, .fact_count = 1};
	for (uint32_t i = 0; i < stored->fact_count; i++)
		if (!strcmp(stored->facts[i].name, said->name))
			there = (struct md_fingerprint){.facts = &stored->facts[i], .fact_count = 1};
	return md_fingerprint_compare_facts(&there, &here, err);
}

enum md_status md_restore_facts_compare(struct md_restore *r, struct md_error *err)
{
	enum md_status status = MD_OK;
	pthread_mutex_lock(&md_restore_lock);
	for (uint32_t i = 0; status == MD_OK && i < r->said.fact_count; i++)
		status = compare_fact(r, &r->said.facts[i], err);
	r->facts_known = status == MD_OK;
	pthread_mutex_unlock(&md_restore_lock);
	return status;
}

enum md_status md_restore_arguments_compare(const struct md_restore *r, struct md_error *err)
{
	struct md_argument_list now = {0};
	if (r->artifact.fingerprint.fact_count) /* to know the arguments, the program may have to be hashed */
		return MD_OK;
	if (!md_process_arguments(&now))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the arguments of this process");
	enum md_status status = md_fingerprint_compare_arguments(&r->artifact.fingerprint, &now, err);
	md_arguments_finish(&now);
	return status;
}

enum md_status md_restore_facts_check(struct md_restore *r, struct md_error *err)
{
	if (md_fingerprint_compare_facts(&r->artifact.fingerprint, &r->said, err) == MD_OK)
		return MD_OK;
	/* the name of the stage that would have found the difference earlier */
	return md_error_prefix(err, "fingerprint");
}

/* ---- what the engine does to its context ---- */

/*
 * Medusa does not raise a limit: that would take memory that the engine counts on, may come too late (the heap, once a
 * kernel has used it), and a start of the engine without Medusa would lack it all the same.
 */
static enum md_status compare_limits(CUcontext context, const uint64_t stored[MD_LIMITS], struct md_error *why)
{
	CUcontext current = NULL, popped;
	bool is_current = md_cuda.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context;
	if (!context || (!is_current && md_cuda.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS))
		return md_error_set(why, MD_ERR_DRIVER, "the limits of the context cannot be read");
	enum md_status status = md_limits_check(stored, why);
	if (!is_current)
		md_cuda.cuCtxPopCurrent_v2(&popped);
	return status;
}

bool md_restore_limits_fit(struct md_restore *r)
{
	struct md_error why = {0};
	r->limits_fit = r->limits_fit || compare_limits(r->context, r->artifact.fingerprint.limits, &why) == MD_OK;
	return r->limits_fit;
}

void md_restore_limits_changed(struct md_restore *r)
{
	pthread_mutex_lock(&md_restore_lock);
	r->limits_fit = false;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&md_restore_lock);
}

/* Logs the first of these refusals. */
static enum md_status refuse_for_limits(struct md_restore *r, const struct md_error *why, struct md_error *err)
    MD_REQUIRES(md_restore_lock)
{
	if (!r->limits_logged && !r->verify)
		md_warn("no graph is handed out: %s", why->message);
	r->limits_logged = true;
	return md_error_set(err, why->status, "%s", why->message);
}

enum md_status md_restore_limits_check(struct md_restore *r, struct md_error *err)
{
	struct md_error why = {0};
	bool fit = compare_limits(r->context, r->artifact.fingerprint.limits, &why) == MD_OK;
	return fit ? MD_OK : refuse_for_limits(r, &why, err);
}

enum md_status md_restore_limits_ask(struct md_restore *r, struct md_error *err)
{
	uint64_t stored[MD_LIMITS];
	struct md_error why = {0};
	memcpy(stored, r->artifact.fingerprint.limits, sizeof(stored));
	pthread_mutex_unlock(&md_restore_lock);
	bool fit = compare_limits(r->context, stored, &why) == MD_OK;
	pthread_mutex_lock(&md_restore_lock);
	return fit ? MD_OK : refuse_for_limits(r, &why, err);
}

/* ---- refusing everything ---- */

static bool refuse_quietly(struct md_restore *r, struct md_restore_graph *graph) MD_REQUIRES(md_restore_lock)
{
	if (graph->handed_out || (r->parted && md_restore_is_promised(r, graph)))
		return false;
	md_restore_graph_unmake(r, graph);
	r->stats.graphs_refused += graph->state != MD_GRAPH_REFUSED;
	graph->state = MD_GRAPH_REFUSED;
	graph->reasons->refused = r->refusal;
	md_restore_stages_undo(md_restore_graph_stages, md_restore_graph_stage_count, r, graph);
	return true;
}

/*
 * The engine may be launching graphs that were handed out: these stay,
 * with everything that they use, until the engine releases them.
 */
static void drop_the_rest(struct md_restore *r)
{
	CUcontext popped;
	pthread_mutex_lock(&md_restore_work);
	bool current = md_cuda.cuCtxPushCurrent_v2(r->context) == CUDA_SUCCESS;
	pthread_mutex_lock(&md_restore_lock);
	bool open = r->phase == MD_PHASE_OPEN;
	for (uint32_t i = 0; open && i < r->artifact.graph_count; i++)
		refuse_quietly(r, &r->graphs[i]);
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&md_restore_lock);
	if (open)
		md_restore_settle(r);
	if (current)
		md_cuda.cuCtxPopCurrent_v2(&popped);
	pthread_mutex_unlock(&md_restore_work);
}

static void refuse_all(struct md_restore *r, const struct md_error *why, bool parted)
{
	bool held = false;
	pthread_mutex_lock(&md_restore_lock);
	bool first = !r->refusal.status;
	for (uint32_t i = 0; r->graphs && i < r->artifact.graph_count; i++)
		held |= r->graphs[i].handed_out;
	if (first) {
		r->refusal = *why;
		r->parted = parted;
		md_warn("nothing %sis restored: %s", held ? "more " : "", why->message);
	}
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&md_restore_lock);
	if (first)
		md_outcome_changed();
	if (first && held)
		drop_the_rest(r);
	else if (first)
		md_restore_stop(why->message);
	md_outcome_write(r);
}

void md_restore_refuse_all(struct md_restore *r, const struct md_error *why)
{
	refuse_all(r, why, false);
}

void md_restore_part(struct md_restore *r, const struct md_error *why)
{
	refuse_all(r, why, true);
}

void md_restore_facts_settle(struct md_restore *r, uint64_t deadline_ns)
{
	struct md_error why = {0};
	pthread_mutex_lock(&md_restore_lock);
	if (md_restore_wait_open(r, deadline_ns) && r->phase == MD_PHASE_OPEN && !r->refusal.status)
		md_restore_facts_check(r, &why);
	pthread_mutex_unlock(&md_restore_lock);
	if (why.status)
		md_restore_refuse_all(r, &why);
}

/* ---- the public function ---- */

MD_EXPORT int medusa_fingerprint_add(const char *name, const char *value)
{
	MD_UNCANCELLED;
	struct md_restore *r = &md_restore;
	struct md_error err = {0};
	if (md_api_check_fact(name, value, &err) != MD_OK)
		return md_api_fail(&err);
	md_restore_init();
	if (atomic_load(&r->off))
		return md_api_refuse(MD_ERR_NOT_FOUND, "%s", MD_RESTORE_OFF);
	pthread_mutex_lock(&md_restore_lock);
	struct md_fingerprint_fact said = {(char *)name, (char *)value};
	enum md_status status = md_fingerprint_set_fact(&r->said, name, value, &err);
	if (status == MD_OK && r->refusal.status)
		status = md_error_set(&err, r->refusal.status, "%s", r->refusal.message);
	else if (status == MD_OK && r->facts_known && compare_fact(r, &said, &err) != MD_OK)
		status = md_error_prefix(&err, "fingerprint");
	pthread_mutex_unlock(&md_restore_lock);
	if (status != MD_OK) /* also when out of memory: a fact that was not kept would count as never stated */
		md_restore_refuse_all(r, &err);
	return md_api_answer(status, &err);
}
