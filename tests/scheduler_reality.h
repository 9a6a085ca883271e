/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What really lies on a node's GPUs, by the test's own account: transfers under way, artifacts, runs with their KV cache.
 * Events may be lost on their way to the scheduler; this account is never wrong.
 */
#ifndef MD_TESTS_SCHEDULER_REALITY_H
#define MD_TESTS_SCHEDULER_REALITY_H

#include <stdbool.h>
#include <string.h>

#include <criterion/criterion.h>

#include "medusa/scheduler.h"

#define REALITY_MOST 8192
#define REALITY_WAITS 4
#define REALITY_OWNERS 64

struct open { /* a transfer under way */
	uint64_t transfer, bytes;
	enum medusa_sched_action_type type;
	enum medusa_sched_class artifact;
	uint32_t owner, gpu, reads_from; /* owner: function or backbone */
};

struct running { /* a request in a batch that still holds its memory */
	uint64_t request, batch, kv, waits[REALITY_WAITS];
	uint32_t function, gpu;
};

struct reality {
	struct open open[REALITY_MOST];
	size_t open_count;
	struct open unheard[REALITY_MOST]; /* copies in that have ended, and the scheduler was not told */
	size_t unheard_count;
	uint64_t failed[REALITY_MOST]; /* transfers that have failed; the last ones */
	size_t failed_count;
	struct running running[REALITY_MOST];
	size_t running_count;
	uint64_t lies[8][4][REALITY_OWNERS]; /* bytes, by GPU, class and owner */
	uint64_t whole[4][REALITY_OWNERS];   /* bytes of all of it */
	uint64_t artifacts[8], kv[8];
	uint32_t backbone_of[REALITY_OWNERS]; /* by function */
	uint64_t kv_of[REALITY_OWNERS];
};

/* ---- artifacts -------------------------------------------------------------------------------------------------- */

static inline uint32_t reality_owner(const struct medusa_sched_action *a)
{
	return a->artifact == MEDUSA_SCHED_CLASS_BACKBONE ? a->backbone : a->function;
}

static inline void reality_lies(struct reality *r, uint32_t gpu, enum medusa_sched_class artifact, uint32_t owner,
				uint64_t bytes)
{
	if (gpu == MEDUSA_SCHED_NONE)
		return;
	r->artifacts[gpu] += bytes - r->lies[gpu][artifact][owner];
	r->lies[gpu][artifact][owner] = bytes;
}

/* Whether something of the function's own lies there, besides the rest of an evicted context. */
static inline bool reality_has(const struct reality *r, uint32_t gpu, const struct medusa_sched_function *spec,
			       uint32_t function)
{
	return r->lies[gpu][MEDUSA_SCHED_CLASS_WEIGHTS][function] ||
	       r->lies[gpu][MEDUSA_SCHED_CLASS_CONTEXT][function] > spec->residue_bytes;
}

static inline bool reality_leaves(enum medusa_sched_action_type type)
{
	return type == MEDUSA_SCHED_ACTION_EVICT || type == MEDUSA_SCHED_ACTION_OFFLOAD;
}

/*
 * It has left, or all but its residue. Perhaps it had left before: if the owner dies while the scheduler does not know of the
 * end of an eviction, the scheduler evicts it again.
 */
static inline void reality_left(struct reality *r, const struct open *o)
{
	if (o->gpu == MEDUSA_SCHED_NONE)
		return;
	uint64_t lay = r->lies[o->gpu][o->artifact][o->owner], stays = 0;
	if (o->type == MEDUSA_SCHED_ACTION_EVICT)
		stays = r->whole[o->artifact][o->owner] - o->bytes;
	reality_lies(r, o->gpu, o->artifact, o->owner, stays < lay ? stays : lay);
}

/* A transfer begins, or an eviction that takes no time has happened. */
static inline void reality_begin(struct reality *r, const struct medusa_sched_action *a)
{
	struct open o = {a->transfer,
			 a->bytes,
			 a->type,
			 a->artifact,
			 reality_owner(a),
			 a->gpu,
			 a->source == MEDUSA_SCHED_SOURCE_PEER ? a->peer : MEDUSA_SCHED_NONE};
	if (!reality_leaves(a->type)) {
		r->whole[o.artifact][o.owner] = a->bytes;
		reality_lies(r, o.gpu, o.artifact, o.owner, a->bytes);
	} else if (!a->transfer) {
		reality_left(r, &o);
	}
	if (!a->transfer)
		return;
	for (size_t i = 0; i < r->open_count; i++) {
		const struct open *other = &r->open[i];
		bool same = other->artifact == o.artifact && other->owner == o.owner && other->gpu == o.gpu;
		cr_assert(!same || reality_leaves(other->type) != reality_leaves(o.type) || reality_leaves(o.type),
			  "two copies of artifact %d of %u into GPU %u at a time", (int)o.artifact, o.owner, o.gpu);
	}
	cr_assert_lt(r->open_count, REALITY_MOST, "more transfers than the test can remember");
	r->open[r->open_count++] = o;
}

/* ---- runs ------------------------------------------------------------------------------------------------------- */

static inline void reality_stop(struct reality *r, size_t i)
{
	r->kv[r->running[i].gpu] -= r->running[i].kv;
	r->running[i] = r->running[--r->running_count];
}

static inline void reality_request_ends(struct reality *r, uint64_t request, uint64_t batch)
{
	for (size_t i = 0; i < r->running_count; i++) {
		if (r->running[i].request != request || r->running[i].batch != batch)
			continue;
		reality_stop(r, i);
		return;
	}
}

static inline bool reality_runs(const struct reality *r, uint64_t request, uint64_t batch)
{
	for (size_t i = 0; i < r->running_count; i++)
		if (r->running[i].request == request && r->running[i].batch == batch)
			return true;
	return false;
}

static inline void reality_batch_ends(struct reality *r, uint64_t batch)
{
	for (size_t i = r->running_count; i-- > 0;)
		if (r->running[i].batch == batch)
			reality_stop(r, i);
}

/* Whether a run of the function on the GPU needs what the transfer brings. */
static inline bool reality_brings(const struct reality *r, const struct open *o, uint32_t function, uint32_t gpu)
{
	if (reality_leaves(o->type))
		return false;
	if (o->artifact == MEDUSA_SCHED_CLASS_BACKBONE)
		return o->gpu == gpu && o->owner == r->backbone_of[function];
	return o->owner == function && o->gpu == (o->artifact == MEDUSA_SCHED_CLASS_LIBRARY ? MEDUSA_SCHED_NONE : gpu);
}

/*
 * A run begins. It names exactly the transfers that bring what it needs; some of those that it names may have ended
 * already, if the scheduler was not told (told: it was).
 */
static inline void reality_run(struct reality *r, const struct medusa_sched_action *a, const uint64_t *kv, bool told)
{
	struct running run = {.batch = a->batch, .function = a->function, .gpu = a->gpu};
	uint32_t expected = 0, named = 0;
	cr_assert_leq(a->transfer_count, REALITY_WAITS);
	for (size_t i = 0; i < r->open_count; i++) {
		if (!reality_brings(r, &r->open[i], a->function, a->gpu))
			continue;
		expected++;
		for (uint32_t t = 0; t < a->transfer_count; t++)
			named += a->transfers[t] == r->open[i].transfer;
	}
	cr_assert(expected == named && (!told || expected == a->transfer_count),
		  "a run of function %u on GPU %u needs %u transfers, and names %u of them among %u", a->function,
		  a->gpu, expected, named, a->transfer_count);
	for (uint32_t t = 0; t < a->transfer_count; t++)
		run.waits[t] = a->transfers[t];
	for (uint32_t i = 0; i < a->request_count; i++) {
		run.request = a->requests[i];
		run.kv = kv[run.request] ? kv[run.request] : r->kv_of[a->function];
		cr_assert_lt(r->running_count, REALITY_MOST, "more runs than the test can remember");
		r->kv[a->gpu] += run.kv;
		r->running[r->running_count++] = run;
	}
}

/* ---- what ends -------------------------------------------------------------------------------------------------- */

static inline struct open *reality_find(struct reality *r, uint64_t transfer)
{
	for (size_t i = 0; transfer && i < r->open_count; i++)
		if (r->open[i].transfer == transfer)
			return &r->open[i];
	return NULL;
}

static inline void reality_drop_waiting(struct reality *r, uint64_t transfer)
{
	for (size_t i = r->running_count; i-- > 0;) {
		bool waits = false;
		for (int t = 0; t < REALITY_WAITS; t++)
			waits |= r->running[i].waits[t] == transfer;
		if (waits)
			reality_stop(r, i);
	}
}

/* The transfer has ended; if it brought something and failed, the node drops the runs that waited for it. */
static inline void reality_transfer_ends(struct reality *r, uint64_t transfer, bool failed)
{
	struct open *o = reality_find(r, transfer), ended;
	if (!o) {
		/* it is said again: runs may have begun to wait for it since it failed */
		if (failed)
			reality_drop_waiting(r, transfer);
		return;
	}
	ended = *o;
	if (failed)
		r->failed[r->failed_count++ % REALITY_MOST] = transfer;
	*o = r->open[--r->open_count];
	if (reality_leaves(ended.type)) {
		if (!failed)
			reality_left(r, &ended);
	} else if (failed) {
		reality_lies(r, ended.gpu, ended.artifact, ended.owner, 0);
		reality_drop_waiting(r, transfer);
	}
	for (size_t i = 0; !failed && i < r->running_count; i++)
		for (int t = 0; t < REALITY_WAITS; t++)
			if (r->running[i].waits[t] == transfer)
				r->running[i].waits[t] = 0;
}

static inline bool reality_failed(const struct reality *r, uint64_t transfer)
{
	for (size_t i = 0; i < r->failed_count && i < REALITY_MOST; i++)
		if (r->failed[i] == transfer)
			return true;
	return false;
}

/* The end of this transfer is not reported. */
static inline void reality_unheard(struct reality *r, uint64_t transfer)
{
	const struct open *o = reality_find(r, transfer);
	if (!o || reality_leaves(o->type))
		return;
	cr_assert_lt(r->unheard_count, REALITY_MOST, "more lost ends than the test can remember");
	r->unheard[r->unheard_count++] = *o;
}

static inline void reality_heard(struct reality *r, uint64_t transfer)
{
	for (size_t i = r->unheard_count; transfer && i-- > 0;)
		if (r->unheard[i].transfer == transfer)
			r->unheard[i] = r->unheard[--r->unheard_count];
}

/*
 * The scheduler does not know that the copy to a lost GPU has ended, and takes it for failed; so do the runs that use it.
 */
static inline void reality_drop(struct reality *r, size_t unheard)
{
	const struct open o = r->unheard[unheard];
	r->unheard[unheard] = r->unheard[--r->unheard_count];
	reality_lies(r, o.gpu, o.artifact, o.owner, 0);
	for (size_t i = r->running_count; i-- > 0;)
		if (reality_brings(r, &o, r->running[i].function, r->running[i].gpu))
			reality_stop(r, i);
}

/* Copies from it to other GPUs go on until the scheduler asks to end them. */
static inline void reality_gpu_lost(struct reality *r, uint32_t gpu)
{
	for (size_t i = r->unheard_count; i-- > 0;)
		if (r->unheard[i].gpu == gpu)
			reality_drop(r, i);
	for (size_t i = r->running_count; i-- > 0;)
		if (r->running[i].gpu == gpu)
			reality_stop(r, i);
	for (size_t i = r->open_count; i-- > 0;)
		if (i < r->open_count && r->open[i].gpu == gpu)
			reality_transfer_ends(r, r->open[i].transfer, true);
	memset(r->lies[gpu], 0, sizeof(r->lies[gpu]));
	r->artifacts[gpu] = 0;
}

/* Copies to and from there go on until the scheduler asks to end them. */
static inline void reality_backbone_failed(struct reality *r, uint32_t gpu, uint32_t backbone)
{
	for (size_t i = r->running_count; i-- > 0;)
		if (r->running[i].gpu == gpu && r->backbone_of[r->running[i].function] == backbone)
			reality_stop(r, i);
}

static inline void reality_function_failed(struct reality *r, uint32_t gpu, uint32_t function)
{
	for (size_t i = r->running_count; i-- > 0;)
		if (r->running[i].gpu == gpu && r->running[i].function == function)
			reality_stop(r, i);
}

#endif
