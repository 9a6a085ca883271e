/* SPDX-License-Identifier: Apache-2.0 */
/* Enters into the books what lies on a GPU or in host memory already, and requests that run already. */
#include "scheduler/core/resident.h"

#include "scheduler/core/action.h"
#include "scheduler/core/alarm.h"
#include "scheduler/core/backbone.h"
#include "scheduler/core/batch.h"
#include "scheduler/core/books.h"
#include "scheduler/core/dispatch.h"
#include "scheduler/core/evict.h"
#include "scheduler/core/join.h"
#include "scheduler/core/registry.h"
#include "scheduler/core/request.h"
#include "scheduler/core/tenant.h"
#include "scheduler/core/transfer.h"

/* ---- artifacts -------------------------------------------------------------------------------------------------- */

int md_find_artifact(struct medusa_sched *s, const struct medusa_sched_event *e, uint32_t *artifact)
{
	bool backbone = e->artifact == MEDUSA_SCHED_CLASS_BACKBONE;
	if ((unsigned)e->artifact >= MD_FUNCTION_ARTIFACTS)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "event->artifact is %d, which is not in enum medusa_sched_class", (int)e->artifact);
	if (backbone && e->backbone >= s->backbone_count)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "event->backbone is %u, but only %u backbones are registered", e->backbone,
			       s->backbone_count);
	if (!backbone && e->function >= s->function_count)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "event->function is %u, but only %u functions are registered", e->function,
			       s->function_count);
	*artifact = backbone ? s->backbones[e->backbone].artifact : s->functions[e->function].artifacts[e->artifact];
	if (*artifact == NONE)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "event->artifact: function %u has no %s", e->function,
			       medusa_sched_class_name(e->artifact));
	bool host = e->gpu == NONE;
	if (host ? e->artifact == MEDUSA_SCHED_CLASS_CONTEXT : e->artifact == MEDUSA_SCHED_CLASS_LIBRARY)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "event->gpu is %u, where no %s can be", e->gpu,
			       medusa_sched_class_name(e->artifact));
	return MEDUSA_SCHED_OK;
}

/* There is no use or no place for it: the node shall remove it. */
static int send_away(struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	struct medusa_sched_action *action = md_act(s, MEDUSA_SCHED_ACTION_OFFLOAD);
	if (!action)
		return md_fail(s, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for an action");
	md_transfer_describe(s, action, artifact, gpu);
	action->bytes = s->artifacts[artifact].bytes;
	return MEDUSA_SCHED_OK;
}

static int in_host(struct medusa_sched *s, uint32_t artifact)
{
	struct md_sched_artifact *a = &s->artifacts[artifact];
	if (a->host != MD_ABSENT)
		return MEDUSA_SCHED_OK;
	if (!md_host_room(s, a->bytes, NONE))
		return send_away(s, artifact, NONE);
	a->host = MD_THERE;
	s->host_used += a->bytes;
	md_host_enter(s, artifact);
	return MEDUSA_SCHED_OK;
}

static void on_gpu(struct medusa_sched *s, uint32_t artifact, uint32_t gpu, uint64_t residue)
{
	struct md_gpu *g = &s->gpus[gpu];
	struct md_copy *copy = md_copy_at(s, artifact, gpu);
	if (copy->state != MD_ABSENT)
		return;
	bool was = md_held(copy); /* what is on its way to it, or a run, may have pinned it before it failed to come */
	copy->state = residue ? MD_SUSPENDED : MD_THERE;
	md_adapter_counted(s, artifact, gpu, 1);
	copy->since = copy->used = s->now;
	g->residues += residue;
	g->artifacts += residue ? 0 : s->artifacts[artifact].bytes;
	s->artifacts[artifact].copies += !residue;
	g->changed = s->now;
	md_held_changed(s, artifact, gpu, was);
	md_copy_enter(s, artifact, gpu);
}

int md_resident(struct medusa_sched *s, const struct medusa_sched_event *e)
{
	uint32_t artifact = NONE;
	int code = md_find_artifact(s, e, &artifact);
	if (code)
		return code;
	uint64_t residue = 0;
	bool of_function = e->artifact != MEDUSA_SCHED_CLASS_BACKBONE;
	if (e->artifact == MEDUSA_SCHED_CLASS_CONTEXT && e->bytes) {
		residue = s->functions[e->function].spec.residue_bytes;
		if (e->bytes != residue)
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
				       "event->bytes is %llu: give 0 for the whole context, or its residue_bytes, %llu",
				       (unsigned long long)e->bytes, (unsigned long long)residue);
	}
	if (e->gpu != NONE && !s->gpus[e->gpu].present)
		return MEDUSA_SCHED_OK; /* it went with its GPU */
	if (of_function && s->functions[e->function].gone)
		return send_away(s, artifact, e->gpu);
	if (e->gpu == NONE)
		return in_host(s, artifact);
	if (e->artifact == MEDUSA_SCHED_CLASS_WEIGHTS && md_copy_at(s, artifact, e->gpu)->state == MD_ABSENT &&
	    !md_adapter_has_place(s, e->function, e->gpu, false))
		return send_away(s, artifact, e->gpu);
	on_gpu(s, artifact, e->gpu, residue);
	return MEDUSA_SCHED_OK;
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

/* The artifact that the function lacks to run there; NONE: nothing. */
static uint32_t lacking(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	const uint32_t *artifacts = s->functions[function].artifacts;
	for (int kind = 0; kind < MD_FUNCTION_ARTIFACTS; kind++) {
		uint32_t a = artifacts[kind];
		if (a != NONE && (kind == MEDUSA_SCHED_CLASS_LIBRARY ? s->artifacts[a].host
								     : md_copy_at(s, a, gpu)->state) != MD_THERE)
			return a;
	}
	return NONE;
}

static int check_running(struct medusa_sched *s, const struct medusa_sched_event *e)
{
	if (md_map_get(&s->request_ids, e->request, NULL))
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "event->request is %llu, a number that is still in use",
			       (unsigned long long)e->request);
	if (e->function >= s->function_count || s->functions[e->function].gone)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "event->function is %u, which is not registered",
			       e->function);
	if (!s->gpus[e->gpu].present)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "event->gpu is %u, which is lost", e->gpu);
	uint32_t missing = lacking(s, e->function, e->gpu);
	if (missing != NONE)
		return md_fail(
		    s, MEDUSA_SCHED_ERR_INVALID,
		    "function %u cannot run on gpu %u, where its %s is not: send MEDUSA_SCHED_EVENT_RESIDENT "
		    "before",
		    e->function, e->gpu, medusa_sched_class_name(s->artifacts[missing].kind));
	return MEDUSA_SCHED_OK;
}

/* What a restarted node loop finds running is one batch for each function and GPU, and joins what runs already. */
static uint32_t batch_for(struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	for (uint32_t b = s->gpus[gpu].first_batch; b != NONE; b = s->batches[b].newer)
		if (s->batches[b].found && s->batches[b].function == function && !s->batches[b].hung)
			return b;
	if (md_join_batch(s, function, gpu) != NONE)
		return md_join_batch(s, function, gpu);
	if (s->gpus[gpu].running >= s->gpus[gpu].slots)
		return NONE;
	uint32_t batch = md_batch_create(s, function, gpu);
	if (batch == NONE)
		return NONE;
	s->batches[batch].found = true;
	/* nobody waits for its first token */
	s->batches[batch].first_token = true;
	s->gpus[gpu].prefilling--;
	return batch;
}

static void say_run(struct medusa_sched *s, uint32_t request)
{
	const struct md_request *r = &s->requests[request];
	struct medusa_sched_action *action = md_act(s, MEDUSA_SCHED_ACTION_RUN); /* the caller has made room */
	action->batch = s->batches[r->batch].id;
	action->function = r->function;
	action->gpu = s->batches[r->batch].gpu;
	action->request_count = 1;
	s->run_requests[s->run_request_count++] = r->id;
}

int md_already_running(struct medusa_sched *s, const struct medusa_sched_event *e)
{
	int code = check_running(s, e);
	if (code)
		return code;
	if (!md_action_room(s, 1, 1))
		return md_fail(s, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for an action");
	uint32_t request = md_request_create(s, e->request, e->function);
	if (request == NONE)
		return md_fail(s, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for request %llu",
			       (unsigned long long)e->request);
	uint32_t batch = batch_for(s, e->function, e->gpu);
	if (batch == NONE) {
		md_request_end(s, request);
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "event->gpu is %u, where no slot is free", e->gpu);
	}
	struct md_function *f = &s->functions[e->function];
	struct md_request *r = &s->requests[request];
	r->kv_bytes = e->kv_bytes ? e->kv_bytes : f->spec.kv_bytes;
	r->tokens = e->tokens;
	r->tenant = e->tenant;
	r->deadline = e->deadline ? e->deadline : UINT64_MAX;
	r->rank = e->priority;
	r->own_kv = e->kv_bytes != 0;
	r->first_token = r->started = true;
	r->counted = f->spec.slo_goal == MEDUSA_SCHED_GOAL_FIRST_TOKEN; /* nobody knows when its first token came */
	md_batch_add(s, batch, request, 0);
	md_tenant_hold_back(s, e->tenant);
	md_rate_arrival(&f->rate, s->now);
	f->let_go = false;
	s->stats.arrivals++;
	s->stats.runs++;
	say_run(s, request);
	md_function_changed(s, e->function);
	return MEDUSA_SCHED_OK;
}
