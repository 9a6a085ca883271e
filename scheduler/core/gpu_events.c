/* SPDX-License-Identifier: Apache-2.0 */
/* Events of GPUs and transfers: what is lost, has failed or arrived, and the batches that are affected. */
#include "scheduler/core/gpu_events.h"

#include "scheduler/core/abort.h"
#include "scheduler/core/action.h"
#include "scheduler/core/backbone.h"
#include "scheduler/core/batch.h"
#include "scheduler/core/books.h"
#include "scheduler/core/claims.h"
#include "scheduler/core/dispatch.h"
#include "scheduler/core/keep.h"
#include "scheduler/core/registry.h"
#include "scheduler/core/shares.h"
#include "scheduler/core/transfer.h"

static bool uses(const struct md_function *f, uint32_t artifact)
{
	bool does = false;
	for (int kind = 0; kind < MD_FUNCTION_ARTIFACTS; kind++)
		does |= f->artifacts[kind] == artifact;
	return does;
}

/* Fails the batches of this GPU that use the artifact, or are of the function (NONE and NONE: all batches). */
static void fail_batches(struct medusa_sched *s, uint32_t gpu, uint32_t artifact, uint32_t function,
			 enum medusa_sched_reason reason, enum md_blame blame)
{
	for (uint32_t b = s->gpus[gpu].first_batch, next; b != NONE; b = next) {
		next = s->batches[b].newer;
		bool fails = artifact == NONE && function == NONE;
		fails |= function != NONE && s->batches[b].function == function;
		fails |= artifact != NONE && uses(&s->functions[s->batches[b].function], artifact);
		if (fails)
			md_batch_fail(s, b, reason, blame);
	}
}

/* Evicts what arrived for a function that is unregistered by now, and what could not be evicted before. */
static void ended_for(struct medusa_sched *s, uint32_t artifact)
{
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	if (a->kind == MEDUSA_SCHED_CLASS_BACKBONE)
		md_backbone_unused(s, a->owner);
	else if (s->functions[a->owner].gone)
		md_function_changed(s, a->owner);
}

void md_transfer_arrives(struct medusa_sched *s, uint32_t transfer)
{
	uint32_t artifact = s->transfers[transfer].artifact, gpu = s->transfers[transfer].gpu;
	md_transfer_done(s, transfer);
	/* the rest of a context whose process died while it was evicted */
	if (gpu != NONE && md_copy_at(s, artifact, gpu)->state == MD_SUSPENDED && md_copy_at(s, artifact, gpu)->failed)
		md_transfer_out(s, artifact, gpu, 0, true, true);
	ended_for(s, artifact);
}

#define SET_BACK_NS 1000000000ull /* after the first failure; twice as long after each further one */
#define SET_BACK_TIMES 9u         /* is doubled so often: 512 s */

/* What fails again and again is not loaded ahead again and again. A request that wants it has it tried at once. */
static void set_back(struct medusa_sched *s, uint32_t function)
{
	struct md_function *f = &s->functions[function];
	f->preload_after = s->now + (SET_BACK_NS << (f->failures < SET_BACK_TIMES ? f->failures : SET_BACK_TIMES));
	f->failures++;
}

static void set_users_back(struct medusa_sched *s, uint32_t backbone)
{
	for (uint32_t f = s->backbones[backbone].first_user; f != NONE; f = s->functions[f].next_user)
		set_back(s, f);
}

/* The artifact will not arrive: fails the batches that need it there (of a library: on all GPUs). */
void md_transfer_fails(struct medusa_sched *s, uint32_t transfer)
{
	enum md_blame blame = MD_BLAME_BATCH;
	struct md_transfer t = s->transfers[transfer];
	if (t.failing)
		blame =
		    MD_BLAME_NODE; /* it was asked to end, because of what happened where it reads from or goes to */
	md_transfer_drop(s, transfer);
	md_keep_failed(s);
	ended_for(s, t.artifact);
	if (t.direction == MD_OUT)
		return;
	if (!t.failing && s->artifacts[t.artifact].kind == MEDUSA_SCHED_CLASS_BACKBONE)
		set_users_back(s, s->artifacts[t.artifact].owner);
	else if (!t.failing)
		set_back(s, s->artifacts[t.artifact].owner);
	bool host = t.gpu == NONE && s->artifacts[t.artifact].kind == MEDUSA_SCHED_CLASS_LIBRARY;
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		if (t.gpu != gpu && !host)
			continue;
		md_keep_drop(s, gpu, t.artifact, NONE);
		fail_batches(s, gpu, t.artifact, NONE, MEDUSA_SCHED_REASON_LOAD_FAILED, blame);
	}
}

static void lose_copy(struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	struct md_copy *copy = md_copy_at(s, artifact, gpu);
	if (copy->state == MD_THERE)
		s->artifacts[artifact].copies--;
	if (copy->state == MD_THERE || copy->state == MD_SUSPENDED)
		md_copy_leave(s, artifact, gpu);
	if (copy->state != MD_ABSENT)
		md_adapter_counted(s, artifact, gpu, -1);
	md_shares_drop(s, artifact, gpu);
	*copy = (struct md_copy){.older = NONE, .newer = NONE};
}

static void drop_claims(struct medusa_sched *s, uint32_t gpu)
{
	while (s->gpus[gpu].claim_count) {
		uint32_t function = s->gpus[gpu].claims[0];
		md_claim_drop(s, function);
		md_function_changed(s, function);
	}
}

/* ---- copies whose source or place has failed: the node is asked to end them, and they are in the books until it has - */

/* Copies of the artifact (NONE: of any) that read from the GPU, or with `into` go there, and were not asked to end yet. */
static bool is_hit(const struct md_transfer *t, uint32_t gpu, uint32_t artifact, bool into)
{
	if (!t->live || t->direction == MD_OUT || t->failing || (artifact != NONE && t->artifact != artifact))
		return false;
	return t->peer == gpu || (into && t->gpu == gpu);
}

static bool ends_room(struct medusa_sched *s, uint32_t gpu, const uint32_t *artifacts, uint32_t count, bool into)
{
	size_t hit = 0;
	for (uint32_t i = 0; i < s->transfer_count; i++)
		for (uint32_t a = 0; a < count; a++)
			hit += is_hit(&s->transfers[i], gpu, artifacts[a], into);
	return md_action_room(s, hit, 0);
}

/* There is room for the actions. */
static void end_copies(struct medusa_sched *s, uint32_t gpu, uint32_t artifact, bool into)
{
	for (uint32_t i = 0; i < s->transfer_count; i++)
		if (is_hit(&s->transfers[i], gpu, artifact, into))
			md_transfer_end(s, i);
}

static int no_room(struct medusa_sched *s)
{
	return md_fail(s, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for actions");
}

int md_gpu_lost(struct medusa_sched *s, uint32_t gpu)
{
	static const uint32_t any = NONE;
	struct md_gpu *g = &s->gpus[gpu];
	if (!g->present)
		return MEDUSA_SCHED_OK;
	if (!ends_room(s, gpu, &any, 1, false))
		return no_room(s);
	md_keep_drop(s, gpu, NONE, NONE);
	g->present = false;
	s->free_slots -= g->slots - g->running;
	for (uint32_t i = 0; i < s->transfer_count; i++) {
		if (s->transfers[i].live && s->transfers[i].gpu == gpu)
			md_transfer_drop(s, i);
	}
	end_copies(s, gpu, NONE, false);
	for (uint32_t i = 0; i < s->transfer_count; i++) {
		if (s->transfers[i].live && s->transfers[i].peer == gpu)
			md_transfer_orphan(s, i);
	}
	fail_batches(s, gpu, NONE, NONE, MEDUSA_SCHED_REASON_FAILED, MD_BLAME_NODE);
	drop_claims(s, gpu);
	for (uint32_t a = 0; a < s->artifact_count; a++)
		lose_copy(s, a, gpu);
	g->artifacts = g->residues = g->held = g->kv = g->foreign = 0;
	g->grown = false;
	g->changed = s->now;
	return MEDUSA_SCHED_OK;
}

void md_gpu_back(struct medusa_sched *s, uint32_t gpu)
{
	struct md_gpu *g = &s->gpus[gpu];
	g->closed = false;
	if (g->present)
		return;
	g->present = true;
	g->changed = s->now;
	s->free_slots += g->slots - g->running;
}

void md_gpu_drain(struct medusa_sched *s, uint32_t gpu)
{
	s->gpus[gpu].closed = true;
	md_keep_drop(s, gpu, NONE, NONE);
	drop_claims(s, gpu);
}

/*
 * What the artifact's owner has left behind on this GPU goes as soon as nobody needs it. It may still be read from, or
 * adapters be on their way to it; an eviction under way goes on.
 */
static void leave_behind(struct medusa_sched *s, uint32_t gpu, uint32_t artifact)
{
	struct md_copy *copy = md_copy_at(s, artifact, gpu);
	if (copy->state == MD_SUSPENDED)
		md_transfer_out(s, artifact, gpu, 0, true, true);
	if (copy->state != MD_THERE && copy->state != MD_LEAVING)
		return;
	copy->failed = copy->draining = true;
	s->gpus[gpu].draining = true;
}

int md_backbone_failed(struct medusa_sched *s, uint32_t gpu, uint32_t backbone)
{
	uint32_t artifact = s->backbones[backbone].artifact;
	if (!ends_room(s, gpu, &artifact, 1, true))
		return no_room(s);
	end_copies(s, gpu, artifact, true);
	set_users_back(s, backbone);
	md_keep_drop(s, gpu, artifact, NONE);
	fail_batches(s, gpu, artifact, NONE, MEDUSA_SCHED_REASON_FAILED, MD_BLAME_NODE);
	leave_behind(s, gpu, artifact);
	return MEDUSA_SCHED_OK;
}

int md_function_failed(struct medusa_sched *s, uint32_t gpu, uint32_t function)
{
	uint32_t own[2], count = 0;
	for (int kind = MEDUSA_SCHED_CLASS_WEIGHTS; kind <= MEDUSA_SCHED_CLASS_CONTEXT; kind++)
		if (s->functions[function].artifacts[kind] != NONE)
			own[count++] = s->functions[function].artifacts[kind];
	if (!ends_room(s, gpu, own, count, true))
		return no_room(s);
	for (uint32_t i = 0; i < count; i++)
		end_copies(s, gpu, own[i], true);
	set_back(s, function);
	md_keep_drop(s, gpu, NONE, function);
	/* all of them, also if all that they use is a backbone */
	fail_batches(s, gpu, NONE, function, MEDUSA_SCHED_REASON_FAILED, MD_BLAME_NODE);
	for (uint32_t i = 0; i < count; i++)
		leave_behind(s, gpu, own[i]);
	return MEDUSA_SCHED_OK;
}

/*
 * Memory that the driver reports as used, beyond what the books know, is used by other processes. A report is ignored
 * if it was taken before the last change of the books, or so soon after it that the driver may not have caught up. A
 * report that is lower than the books never makes memory free.
 */
void md_memory_report(struct medusa_sched *s, const struct medusa_sched_event *e)
{
	struct md_gpu *g = &s->gpus[e->gpu];
	uint64_t ours = g->artifacts + g->residues + g->kv - g->shared;
	if (e->as_of < g->changed + s->options.report_lag_ns || g->transfers || g->leaving) {
		s->stats.reports_ignored++;
		return;
	}
	uint64_t foreign = e->bytes > ours ? e->bytes - ours : 0;
	s->happened += foreign != g->foreign;
	g->foreign = foreign;
}
