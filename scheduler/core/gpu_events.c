/* SPDX-License-Identifier: Apache-2.0 */
/* Events of GPUs and transfers: what is lost, has failed or arrived, and the batches that are affected. */
#include "scheduler/core/gpu_events.h"

#include "scheduler/core/batch.h"
#include "scheduler/core/books.h"
#include "scheduler/core/dispatch.h"
#include "scheduler/core/transfer.h"

/* Fails the batches of this GPU that use the artifact (NONE: all batches). */
static void fail_batches(struct medusa_sched *s, uint32_t gpu, uint32_t artifact, enum medusa_sched_reason reason,
			 enum md_blame blame)
{
	for (uint32_t b = s->gpus[gpu].first_batch, next; b != NONE; b = next) {
		next = s->batches[b].newer;
		const uint32_t *artifacts = s->functions[s->batches[b].function].artifacts;
		bool uses = artifact == NONE;
		for (int kind = 0; kind < MD_FUNCTION_ARTIFACTS; kind++)
			uses |= artifacts[kind] == artifact;
		if (uses)
			md_batch_fail(s, b, reason, blame);
	}
}

/* Evicts what arrived for a function that is unregistered by now, and what could not be evicted before. */
static void ended_for(struct medusa_sched *s, uint32_t artifact)
{
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	if (a->kind != MEDUSA_SCHED_CLASS_BACKBONE && s->functions[a->owner].gone)
		md_function_changed(s, a->owner);
}

void md_transfer_arrives(struct medusa_sched *s, uint32_t transfer)
{
	uint32_t artifact = s->transfers[transfer].artifact;
	md_transfer_done(s, transfer);
	ended_for(s, artifact);
}

/* The artifact will not arrive: fails the batches that need it there (of a library: on all GPUs). */
static void transfer_fails(struct medusa_sched *s, uint32_t transfer, enum md_blame blame)
{
	struct md_transfer t = s->transfers[transfer];
	md_transfer_drop(s, transfer);
	ended_for(s, t.artifact);
	if (t.direction == MD_OUT)
		return;
	bool host = t.gpu == NONE && s->artifacts[t.artifact].kind == MEDUSA_SCHED_CLASS_LIBRARY;
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		if (t.gpu == gpu || host)
			fail_batches(s, gpu, t.artifact, MEDUSA_SCHED_REASON_LOAD_FAILED, blame);
	}
}

void md_transfer_fails(struct medusa_sched *s, uint32_t transfer)
{
	transfer_fails(s, transfer, MD_BLAME_BATCH);
}

static void lose_copy(struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	struct md_copy *copy = md_copy_at(s, artifact, gpu);
	if (copy->state == MD_THERE)
		s->artifacts[artifact].copies--;
	if (copy->state == MD_THERE || copy->state == MD_SUSPENDED)
		md_copy_leave(s, artifact, gpu);
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

void md_gpu_lost(struct medusa_sched *s, uint32_t gpu)
{
	struct md_gpu *g = &s->gpus[gpu];
	if (!g->present)
		return;
	g->present = false;
	s->free_slots -= g->slots - g->running;
	for (uint32_t i = 0; i < s->transfer_count; i++) {
		if (!s->transfers[i].live)
			continue;
		if (s->transfers[i].gpu == gpu)
			md_transfer_drop(s, i);
		else if (s->transfers[i].peer == gpu)
			transfer_fails(s, i, MD_BLAME_NODE);
	}
	fail_batches(s, gpu, NONE, MEDUSA_SCHED_REASON_FAILED, MD_BLAME_NODE);
	drop_claims(s, gpu);
	for (uint32_t a = 0; a < s->artifact_count; a++)
		lose_copy(s, a, gpu);
	g->artifacts = g->residues = g->held = g->kv = g->foreign = 0;
	g->grown = false;
	g->changed = s->now;
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
	drop_claims(s, gpu);
}

/* The artifact's owner on this GPU died: its transfers fail, and what was there is evicted when nobody needs it. */
static void fail_copy(struct medusa_sched *s, uint32_t gpu, uint32_t artifact)
{
	for (uint32_t i = 0; i < s->transfer_count; i++) {
		const struct md_transfer *t = &s->transfers[i];
		if (t->live && t->artifact == artifact && (t->gpu == gpu || t->peer == gpu))
			transfer_fails(s, i, MD_BLAME_NODE);
	}
	fail_batches(s, gpu, artifact, MEDUSA_SCHED_REASON_FAILED, MD_BLAME_NODE);
	struct md_copy *copy = md_copy_at(s, artifact, gpu);
	if (copy->state != MD_THERE)
		return;
	/* adapters may still be on their way to it: it is evicted when they have arrived */
	copy->failed = copy->draining = true;
	s->gpus[gpu].draining = true;
}

void md_backbone_failed(struct medusa_sched *s, uint32_t gpu, uint32_t backbone)
{
	fail_copy(s, gpu, s->backbones[backbone].artifact);
}

void md_function_failed(struct medusa_sched *s, uint32_t gpu, uint32_t function)
{
	const uint32_t *artifacts = s->functions[function].artifacts;
	for (int kind = MEDUSA_SCHED_CLASS_WEIGHTS; kind <= MEDUSA_SCHED_CLASS_CONTEXT; kind++)
		if (artifacts[kind] != NONE)
			fail_copy(s, gpu, artifacts[kind]);
}

/*
 * Memory that the driver reports as used, beyond what the books know, is used by other processes. A report is ignored
 * if it was taken before the last change of the books, or so soon after it that the driver may not have caught up. A
 * report that is lower than the books never makes memory free.
 */
void md_memory_report(struct medusa_sched *s, const struct medusa_sched_event *e)
{
	struct md_gpu *g = &s->gpus[e->gpu];
	uint64_t ours = g->artifacts + g->residues + g->kv;
	if (e->as_of < g->changed + s->options.report_lag_ns || g->transfers || g->leaving) {
		s->stats.reports_ignored++;
		return;
	}
	uint64_t foreign = e->bytes > ours ? e->bytes - ours : 0;
	s->happened += foreign != g->foreign;
	g->foreign = foreign;
}
