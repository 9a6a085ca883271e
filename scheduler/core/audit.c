/* SPDX-License-Identifier: Apache-2.0 */
/* Recounts the books, for tests. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "scheduler/core/books.h"
#include "scheduler/core/join.h"
#include "scheduler/core/registry.h"
#include "scheduler/core/request.h"
#include "scheduler/core/shares.h"
#include "scheduler/core/state.h"
#include "scheduler/core/tenant.h"

static uint64_t count_leaving(const struct medusa_sched *s, uint32_t gpu)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < s->transfer_count; i++) {
		const struct md_transfer *t = &s->transfers[i];
		bytes += t->live && t->direction == MD_OUT && t->gpu == gpu ? t->bytes : 0;
	}
	return bytes;
}

struct counted {
	uint64_t artifacts, residues, held, kept;
};

static struct counted count_copies(const struct medusa_sched *s, uint32_t gpu)
{
	struct counted c = {0};
	for (uint32_t a = 0; a < s->artifact_count; a++) {
		const struct md_copy *copy = md_copy_at(s, a, gpu);
		if (copy->state == MD_SUSPENDED)
			c.residues += s->functions[s->artifacts[a].owner].spec.residue_bytes;
		else if (copy->state != MD_ABSENT)
			c.artifacts += s->artifacts[a].bytes;
		c.held += md_held(copy) ? s->artifacts[a].bytes : 0;
		c.kept += copy->keeps ? s->artifacts[a].bytes : 0;
	}
	return c;
}

static uint64_t kv_of(const struct medusa_sched *s, const struct md_batch *batch)
{
	uint64_t kv = 0;
	for (uint32_t r = batch->requests.head; r != NONE; r = s->requests[r].next)
		kv += s->requests[r].kv_bytes;
	for (uint32_t r = batch->strays.head; r != NONE; r = s->requests[r].next)
		kv += s->requests[r].kv_bytes;
	return kv;
}

static int audit_gpu(struct medusa_sched *s, uint32_t gpu)
{
	const struct md_gpu *g = &s->gpus[gpu];
	struct counted c = count_copies(s, gpu);
	uint64_t kv = 0;
	uint32_t running = 0, prefilling = 0, listed = 0, there = 0;
	for (uint32_t b = g->first_batch; b != NONE; b = s->batches[b].newer) {
		running++;
		prefilling += !s->batches[b].first_token;
		kv += s->batches[b].kv_bytes;
		if (s->batches[b].kv_bytes != kv_of(s, &s->batches[b]))
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "batch %u of gpu %u: its KV memory does not add up",
				       b, gpu);
		if (s->batches[b].gpu != gpu || !s->batches[b].live)
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "gpu %u lists a batch of gpu %u", gpu,
				       s->batches[b].gpu);
	}
	for (uint32_t a = g->oldest; a != NONE; a = md_copy_at(s, a, gpu)->newer)
		listed++;
	for (uint32_t a = 0; a < s->artifact_count; a++) {
		int state = md_copy_at(s, a, gpu)->state;
		there += state == MD_THERE || state == MD_SUSPENDED;
	}
	if (c.artifacts != g->artifacts || c.residues != g->residues || c.held != g->held || kv != g->kv)
		return md_fail(
		    s, MEDUSA_SCHED_ERR_INVALID,
		    "gpu %u: %llu bytes of artifacts in the books, %llu counted; residues %llu, %llu; held %llu, "
		    "%llu; KV %llu, %llu",
		    gpu, (unsigned long long)g->artifacts, (unsigned long long)c.artifacts,
		    (unsigned long long)g->residues, (unsigned long long)c.residues, (unsigned long long)g->held,
		    (unsigned long long)c.held, (unsigned long long)g->kv, (unsigned long long)kv);
	if (c.kept != g->kept)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "gpu %u keeps %llu bytes, %llu counted", gpu,
			       (unsigned long long)g->kept, (unsigned long long)c.kept);
	struct md_gpu credit = {0};
	md_shares_count(s, gpu, &credit);
	if (credit.shared != g->shared || credit.shared_soon != g->shared_soon || credit.shared_busy != g->shared_busy)
		return md_fail(
		    s, MEDUSA_SCHED_ERR_INVALID,
		    "gpu %u: %llu bytes are shared in the books, %llu counted; soon %llu, %llu; in use %llu, %llu", gpu,
		    (unsigned long long)g->shared, (unsigned long long)credit.shared,
		    (unsigned long long)g->shared_soon, (unsigned long long)credit.shared_soon,
		    (unsigned long long)g->shared_busy, (unsigned long long)credit.shared_busy);
	if (running != g->running || prefilling != g->prefilling || running > g->slots || listed != there)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "gpu %u: %u batches in the books, %u counted; %u artifacts, %u", gpu, g->running,
			       running, listed, there);
	if (g->leaving != count_leaving(s, gpu))
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "gpu %u: %llu bytes leave in the books, %llu counted", gpu,
			       (unsigned long long)g->leaving, (unsigned long long)count_leaving(s, gpu));
	if (g->closed && g->claim_count)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "gpu %u is drained, and somebody claims memory there", gpu);
	if (!g->present && (c.artifacts || c.residues || running || g->transfers))
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "gpu %u is lost, and holds something", gpu);
	return MEDUSA_SCHED_OK;
}

static void count_kept(const struct medusa_sched *s, const struct md_function *f, uint32_t *pins)
{
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++)
		for (int kind = 0; f->kept[gpu] && kind < MEDUSA_SCHED_CLASS_LIBRARY; kind++)
			if (f->artifacts[kind] != NONE)
				pins[(size_t)f->artifacts[kind] * s->gpu_count + gpu]++;
}

/* What a GPU has of a backbone's functions. */
static int audit_backbone(struct medusa_sched *s, uint32_t backbone)
{
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		struct md_backbone_gpu counted = {0};
		for (uint32_t f = s->backbones[backbone].first_user; f != NONE; f = s->functions[f].next_user) {
			uint32_t weights = s->functions[f].artifacts[MEDUSA_SCHED_CLASS_WEIGHTS];
			int state = weights == NONE ? MD_ABSENT : md_copy_at(s, weights, gpu)->state;
			counted.adapters += state != MD_ABSENT;
			counted.leaving += state == MD_LEAVING;
		}
		for (uint32_t b = s->gpus[gpu].first_batch; b != NONE; b = s->batches[b].newer)
			if (s->functions[s->batches[b].function].spec.backbone == backbone)
				counted.running += s->batches[b].requests.count + s->batches[b].strays.count;
		const struct md_backbone_gpu *books = &s->backbones[backbone].gpus[gpu];
		if (counted.adapters != books->adapters || counted.leaving != books->leaving ||
		    counted.running != books->running)
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
				       "backbone %u on gpu %u: adapters %u, leaving %u, running %u in the books, and "
				       "%u, %u, %u counted",
				       backbone, gpu, books->adapters, books->leaving, books->running, counted.adapters,
				       counted.leaving, counted.running);
	}
	return MEDUSA_SCHED_OK;
}

/* Pins: one for each batch that uses the copy, function that is kept, and transfer that reads from it or needs it. */
static int audit_pins(struct medusa_sched *s)
{
	size_t cells = (size_t)s->artifact_count * s->gpu_count;
	MD_AUTO_FREE uint32_t *pins = calloc(cells + 1, sizeof(*pins));
	if (!pins)
		return md_fail(s, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for the audit");
	for (uint32_t b = 0; b < s->batch_count; b++) {
		for (int kind = 0; s->batches[b].live && kind < MEDUSA_SCHED_CLASS_LIBRARY; kind++) {
			uint32_t artifact = s->functions[s->batches[b].function].artifacts[kind];
			if (artifact != NONE)
				pins[(size_t)artifact * s->gpu_count + s->batches[b].gpu]++;
		}
	}
	for (uint32_t i = 0; i < s->keeper_count; i++)
		count_kept(s, &s->functions[s->keepers[i]], pins);
	for (size_t i = 0; i < cells; i++) {
		if (pins[i] < s->copies[i].keeps)
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "artifact %zu on gpu %zu is kept by %u",
				       i / s->gpu_count, i % s->gpu_count, s->copies[i].keeps);
	}
	for (uint32_t i = 0; i < s->transfer_count; i++) {
		const struct md_transfer *t = &s->transfers[i];
		if (!t->live)
			continue;
		if (t->source == MEDUSA_SCHED_SOURCE_PEER && t->peer != NONE)
			pins[(size_t)t->artifact * s->gpu_count + t->peer]++;
		if (t->pins_backbone)
			pins[(size_t)s->functions[s->artifacts[t->artifact].owner]
				     .artifacts[MEDUSA_SCHED_CLASS_BACKBONE] *
				 s->gpu_count +
			     t->gpu]++;
	}
	for (size_t i = 0; i < cells; i++) {
		if (pins[i] != s->copies[i].pins)
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "artifact %zu on gpu %zu has %u pins, %u counted",
				       i / s->gpu_count, i % s->gpu_count, s->copies[i].pins, pins[i]);
	}
	return MEDUSA_SCHED_OK;
}

/* Whatever is on its way is moved by a live transfer of that artifact. */
static bool moved_by(const struct medusa_sched *s, uint32_t artifact, uint32_t transfer)
{
	return transfer < s->transfer_count && s->transfers[transfer].live &&
	       s->transfers[transfer].artifact == artifact;
}

/* Each transfer is the only one into or out of its place, and into host memory, if it leaves a copy there. */
static bool has_place(const struct medusa_sched *s, uint32_t transfer)
{
	const struct md_transfer *t = &s->transfers[transfer];
	const struct md_sched_artifact *a = &s->artifacts[t->artifact];
	if (md_to_host(t) && !(a->host == MD_LOADING && a->host_transfer == transfer))
		return false;
	if (t->gpu == NONE)
		return true;
	const struct md_copy *copy = md_copy_at(s, t->artifact, t->gpu);
	return copy->state == (t->direction == MD_OUT ? MD_LEAVING : MD_LOADING) && copy->transfer == transfer;
}

/* Nothing new counts on a copy that the node was asked to end, or whose owner has failed. */
static bool is_closed(const struct medusa_sched *s, const struct md_copy *copy)
{
	const struct md_transfer *t = copy->state == MD_LOADING ? &s->transfers[copy->transfer] : NULL;
	bool closed = (t && (t->late || t->failing)) || (copy->failed && copy->state != MD_SUSPENDED);
	return !closed || copy->draining;
}

static int audit_transfers(struct medusa_sched *s)
{
	for (uint32_t a = 0; a < s->artifact_count; a++) {
		uint32_t copies = 0;
		for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++)
			copies += md_copy_at(s, a, gpu)->state == MD_THERE;
		if (copies != s->artifacts[a].copies)
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "artifact %u: %u copies in the books, %u counted",
				       a, s->artifacts[a].copies, copies);
		bool moved =
		    s->artifacts[a].host != MD_LOADING || (moved_by(s, a, s->artifacts[a].host_transfer) &&
							   md_to_host(&s->transfers[s->artifacts[a].host_transfer]));
		for (uint32_t gpu = 0; moved && gpu < s->gpu_count; gpu++) {
			const struct md_copy *copy = md_copy_at(s, a, gpu);
			bool moves = copy->state == MD_LOADING || copy->state == MD_LEAVING;
			moved = !moves || (moved_by(s, a, copy->transfer) && s->transfers[copy->transfer].gpu == gpu);
			moved &= is_closed(s, copy);
		}
		if (!moved)
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
				       "artifact %u is on its way without a transfer, or is counted on and shall end",
				       a);
	}
	for (uint32_t i = 0; i < s->transfer_count; i++) {
		if (s->transfers[i].live && !has_place(s, i))
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
				       "transfer %u moves an artifact that is there, or that another one moves", i);
	}
	return MEDUSA_SCHED_OK;
}

static int audit_requests(struct medusa_sched *s)
{
	uint64_t waiting = 0, running = 0, listed = 0, earlier = 0;
	for (uint32_t f = 0; f < s->function_count; f++) {
		waiting += md_waiting(s, f);
		running += s->functions[f].running;
		const struct md_function *function = &s->functions[f];
		bool queued = md_priority_has(&s->ready, f) || md_priority_has(&s->holding, f) ||
			      md_priority_has(&s->joins, f) || function->claim != NONE || function->company_waits;
		bool started = function->batches >= function->spec.max_parallel ||
			       (function->spec.continuous && function->batches >= s->gpu_count);
		if (function->claim != NONE && started && !md_joinable(s, f, NONE))
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "function %u claims memory, and may not start", f);
		if (md_waiting(s, f) && !queued && (!started || md_joinable(s, f, NONE)))
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "function %u waits, and stands nowhere", f);
		if (md_priority_has(&s->joins, f) && !(md_waiting(s, f) && md_joinable(s, f, NONE)))
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "function %u has nothing that could join", f);
	}
	for (uint32_t b = 0; b < s->backbone_count; b++) {
		int code = audit_backbone(s, b);
		if (code)
			return code;
		uint32_t users = 0;
		for (uint32_t f = s->backbones[b].first_user; f != NONE; f = s->functions[f].next_user)
			users += md_waiting(s, f);
		if (users != s->backbones[b].waiting)
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "backbone %u: %u wait in the books, %u counted", b,
				       s->backbones[b].waiting, users);
	}
	for (uint32_t r = s->oldest_waiting; r != NONE; r = s->requests[r].newer) {
		listed++;
		if (s->requests[r].arrived < earlier)
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "requests do not wait in the order of arrival");
		earlier = s->requests[r].arrived;
	}
	uint64_t in_batches = 0;
	for (uint32_t b = 0; b < s->batch_count; b++)
		in_batches += s->batches[b].live ? s->batches[b].requests.count : 0;
	waiting += s->held;
	if (waiting != s->waiting || listed != waiting || in_batches != running ||
	    s->request_ids.used != waiting + running)
		return md_fail(
		    s, MEDUSA_SCHED_ERR_INVALID,
		    "%u requests wait in the books, %llu in queues, %llu by arrival; %llu run, %llu in batches; "
		    "%zu known",
		    s->waiting, (unsigned long long)waiting, (unsigned long long)listed, (unsigned long long)running,
		    (unsigned long long)in_batches, s->request_ids.used);
	return MEDUSA_SCHED_OK;
}

struct of_tenant {
	uint32_t waiting, held, running;
};

static void count_tenants(const struct medusa_sched *s, struct of_tenant *counted)
{
	for (uint32_t r = s->oldest_waiting; r != NONE; r = s->requests[r].newer) {
		counted[s->requests[r].tenant].waiting++;
		counted[s->requests[r].tenant].held += s->requests[r].held;
	}
	for (uint32_t b = 0; b < s->batch_count; b++) {
		uint32_t first = s->batches[b].live ? s->batches[b].requests.head : NONE;
		for (uint32_t r = first; r != NONE; r = s->requests[r].next)
			counted[s->requests[r].tenant].running++;
	}
}

/* Each request is one of its tenant's, and none is held back that may be in its function's queue. */
static int audit_tenants(struct medusa_sched *s)
{
	uint32_t held = 0;
	MD_AUTO_FREE struct of_tenant *counted = calloc(s->tenant_count, sizeof(*counted));
	if (!counted)
		return md_fail(s, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for the audit");
	count_tenants(s, counted);
	for (uint32_t i = 0; i < s->tenant_count; i++) {
		const struct md_tenant *t = &s->tenants[i];
		held += t->held.count;
		if (t->waiting != counted[i].waiting || t->held.count != counted[i].held ||
		    t->running != counted[i].running)
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
				       "tenant %u: %u wait in the books, %u counted; %u are held back, %u; %u run, %u",
				       i, t->waiting, counted[i].waiting, t->held.count, counted[i].held, t->running,
				       counted[i].running);
		if (t->held.count && !t->starts_none && t->running + t->waiting - t->held.count < t->max_running)
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "tenant %u: requests are held back in vain", i);
	}
	if (held != s->held)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "%u requests are held back in the books, %u counted",
			       s->held, held);
	return MEDUSA_SCHED_OK;
}

/* How many requests the list has, if all are the lane's and in order; UINT32_MAX if not. */
static uint32_t count_lane(const struct medusa_sched *s, uint32_t function, const struct md_lane *lane, bool late)
{
	const struct md_list *list = late ? &lane->late : &lane->in_time;
	uint32_t counted = 0, previous = NONE;
	for (uint32_t r = list->head; r != NONE; previous = r, r = s->requests[r].lane_next) {
		const struct md_request *request = &s->requests[r];
		bool ordered = previous == NONE || md_goes_before(&s->requests[previous], request);
		if (request->function != function || request->tenant != lane->tenant || request->held ||
		    request->lane_late != late || request->lane_previous != previous || !ordered)
			return UINT32_MAX;
		counted++;
	}
	return counted == list->count && list->tail == previous ? counted : UINT32_MAX;
}

/* With several tenants each request of a function's queue is in one of its lanes, too. */
static int audit_lanes(struct medusa_sched *s)
{
	for (uint32_t f = 0; f < s->function_count; f++) {
		const struct md_function *function = &s->functions[f];
		uint64_t counted = 0;
		for (uint32_t i = 0; i < function->lane_count; i++) {
			uint32_t in_time = count_lane(s, f, &function->lanes[i], false);
			uint32_t late = count_lane(s, f, &function->lanes[i], true);
			if (in_time == UINT32_MAX || late == UINT32_MAX || !(in_time + late))
				return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
					       "function %u: the lane of tenant %u is not in order", f,
					       function->lanes[i].tenant);
			counted += in_time + late;
		}
		if (counted != (md_has_tenants(s) ? md_waiting(s, f) : 0))
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "function %u: %u wait, %llu in lanes", f,
				       md_waiting(s, f), (unsigned long long)counted);
	}
	return MEDUSA_SCHED_OK;
}

/* A function's own list has all its batches, and not two of an engine that batches by itself on one GPU. */
static int audit_list(struct medusa_sched *s, uint32_t function)
{
	uint32_t listed = 0, live = 0;
	for (uint32_t b = s->functions[function].first_batch; b != NONE; b = s->batches[b].own_older) {
		uint32_t first = md_join_batch(s, function, s->batches[b].gpu);
		listed += s->batches[b].live && s->batches[b].function == function;
		if (first != NONE && first != b && !s->batches[b].hung)
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "function %u has two batches on gpu %u", function,
				       s->batches[b].gpu);
	}
	for (uint32_t b = 0; b < s->batch_count; b++)
		live += s->batches[b].live && s->batches[b].function == function;
	if (listed != live)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "function %u lists %u batches, %u counted", function,
			       listed, live);
	return MEDUSA_SCHED_OK;
}

static int audit_batches(struct medusa_sched *s)
{
	uint32_t continuous = 0;
	for (uint32_t b = 0; b < s->batch_count; b++)
		continuous += s->batches[b].live && s->functions[s->batches[b].function].spec.continuous;
	if (continuous != s->continuous)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "%u batches can be joined in the books, %u counted",
			       s->continuous, continuous);
	for (uint32_t f = 0; f < s->function_count; f++) {
		uint32_t batches = 0;
		for (uint32_t b = 0; b < s->batch_count; b++)
			batches += s->batches[b].live && s->batches[b].function == f && !s->batches[b].hung;
		if (batches != s->functions[f].batches)
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "function %u: %u batches in the books, %u counted",
				       f, s->functions[f].batches, batches);
		int code = audit_list(s, f);
		if (code)
			return code;
	}
	for (uint32_t b = 0; b < s->batch_count; b++) {
		const struct md_batch *batch = &s->batches[b];
		if (!batch->live)
			continue;
		if (batch->hung != !batch->requests.count || (batch->hung && !batch->strays.count))
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "batch %u runs nothing", b);
		for (uint32_t r = batch->requests.head; r != NONE; r = s->requests[r].next) {
			if (s->requests[r].expires != UINT64_MAX && !md_priority_has(&s->request_alarms, r))
				return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "a running request has no alarm");
		}
	}
	return MEDUSA_SCHED_OK;
}

/* Of an artifact in host memory: one for each copy that reads it there, and of a library for each batch and each
 * GPU on which its function is kept. */
static uint32_t host_pins(const struct medusa_sched *s, uint32_t artifact)
{
	uint32_t pins = 0;
	for (uint32_t i = 0; i < s->transfer_count; i++)
		pins += s->transfers[i].live && s->transfers[i].artifact == artifact &&
			s->transfers[i].source == MEDUSA_SCHED_SOURCE_HOST;
	for (uint32_t b = 0; b < s->batch_count; b++)
		pins += s->batches[b].live &&
			s->functions[s->batches[b].function].artifacts[MEDUSA_SCHED_CLASS_LIBRARY] == artifact;
	for (uint32_t i = 0; i < s->keeper_count; i++)
		if (s->functions[s->keepers[i]].artifacts[MEDUSA_SCHED_CLASS_LIBRARY] == artifact)
			pins += s->functions[s->keepers[i]].kept_count;
	return pins;
}

static int audit_host(struct medusa_sched *s)
{
	uint64_t used = 0;
	for (uint32_t a = 0; a < s->artifact_count; a++) {
		if (s->artifacts[a].host_pins != host_pins(s, a))
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
				       "artifact %u in host memory has %u pins, %u counted", a,
				       s->artifacts[a].host_pins, host_pins(s, a));
	}
	for (uint32_t a = 0; a < s->artifact_count; a++)
		used += s->artifacts[a].host != MD_ABSENT ? s->artifacts[a].bytes : 0;
	if (used != s->host_used || (s->host_limit && used > s->host_limit))
		return md_fail(
		    s, MEDUSA_SCHED_ERR_INVALID, "host memory: %llu bytes in the books, %llu counted, of %llu",
		    (unsigned long long)s->host_used, (unsigned long long)used, (unsigned long long)s->host_limit);
	return MEDUSA_SCHED_OK;
}

MD_EXPORT int medusa_sched_audit(struct medusa_sched *s)
{
	if (!s)
		return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID, "sched is NULL");
	uint32_t slots = 0;
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		int code = audit_gpu(s, gpu);
		if (code)
			return code;
		slots += s->gpus[gpu].present ? s->gpus[gpu].slots - s->gpus[gpu].running : 0;
	}
	if (slots != s->free_slots)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "%u slots are free in the books, %u counted", s->free_slots,
			       slots);
	int code = audit_pins(s);
	code = code ? code : audit_transfers(s);
	code = code ? code : audit_requests(s);
	code = code ? code : audit_tenants(s);
	code = code ? code : audit_lanes(s);
	code = code ? code : audit_batches(s);
	return code ? code : audit_host(s);
}
