/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/core/shares.h"

#include <stdlib.h>

#include "base/array.h"
#include "scheduler/core/books.h"
#include "scheduler/core/registry.h"
#include "scheduler/core/resident.h"

/* ---- credits ---------------------------------------------------------------------------------------------------- */

/* Of memory that so many have, all but one count it in vain. */
static uint64_t too_often(uint64_t bytes, uint32_t sharers)
{
	return sharers > 1 ? bytes * (sharers - 1) : 0;
}

static void add(struct md_gpu *g, const struct md_sched_share *share)
{
	g->shared += too_often(share->bytes, share->there);
	g->shared_soon += too_often(share->bytes, share->there - share->leaving);
	g->shared_busy += too_often(share->bytes, share->busy);
}

static void take(struct md_gpu *g, const struct md_sched_share *share)
{
	g->shared -= too_often(share->bytes, share->there);
	g->shared_soon -= too_often(share->bytes, share->there - share->leaving);
	g->shared_busy -= too_often(share->bytes, share->busy);
}

static void count_as(struct medusa_sched *s, struct md_sched_sharer *sharer, bool there, bool leaving, bool busy)
{
	struct md_sched_share *share = &s->shares[sharer->share];
	struct md_gpu *g = &s->gpus[share->gpu];
	if (sharer->there == there && sharer->leaving == leaving && sharer->busy == busy)
		return;
	if (sharer->there != there)
		g->changed = s->now;
	take(g, share);
	share->there += (uint32_t)there - sharer->there;
	share->leaving += (uint32_t)leaving - sharer->leaving;
	share->busy += (uint32_t)busy - sharer->busy;
	add(g, share);
	sharer->there = there;
	sharer->leaving = leaving;
	sharer->busy = busy;
}

static void count(struct medusa_sched *s, struct md_sched_sharer *sharer, const struct md_copy *copy)
{
	bool leaving = copy->state == MD_LEAVING, there = leaving || copy->state == MD_THERE;
	count_as(s, sharer, there, leaving, there && !leaving && md_held(copy));
}

void md_shares_count(const struct medusa_sched *s, uint32_t gpu, struct md_gpu *counted)
{
	for (uint32_t i = 0; i < s->share_count; i++) {
		struct md_sched_share share = {.bytes = s->shares[i].bytes};
		if (s->shares[i].gpu != gpu)
			continue;
		for (uint32_t m = s->shares[i].first; m != NONE; m = s->sharers[m].next_of_share) {
			const struct md_copy *copy = md_copy_at(s, s->sharers[m].artifact, gpu);
			share.there += copy->state == MD_THERE || copy->state == MD_LEAVING;
			share.leaving += copy->state == MD_LEAVING;
			share.busy += copy->state == MD_THERE && md_held(copy);
		}
		add(counted, &share);
	}
}

/* ---- the tables ------------------------------------------------------------------------------------------------- */

static uint32_t find_share(const struct medusa_sched *s, uint64_t number, uint32_t gpu)
{
	uint64_t found;
	uint32_t share = md_map_get(&s->share_numbers, number, &found) ? (uint32_t)found : NONE;
	while (share != NONE && s->shares[share].gpu != gpu)
		share = s->shares[share].next;
	return share;
}

static uint32_t find_sharer(const struct medusa_sched *s, uint32_t share, uint32_t artifact)
{
	uint32_t sharer = share == NONE ? NONE : s->shares[share].first;
	while (sharer != NONE && s->sharers[sharer].artifact != artifact)
		sharer = s->sharers[sharer].next_of_share;
	return sharer;
}

static bool reserve(struct medusa_sched *s)
{
	if (s->free_share == NONE) {
		if (!MD_ARRAY_GROW(s->shares, s->share_count, s->share_capacity))
			return false;
		s->shares[s->share_count] = (struct md_sched_share){.gpu = NONE, .first = NONE, .next = NONE};
		s->free_share = s->share_count++;
	}
	if (s->free_sharer != NONE)
		return true;
	if (!MD_ARRAY_GROW(s->sharers, s->sharer_count, s->sharer_capacity))
		return false;
	s->sharers[s->sharer_count] = (struct md_sched_sharer){.next_of_share = NONE};
	s->free_sharer = s->sharer_count++;
	return true;
}

/* NONE: out of memory, and nothing has changed. */
static uint32_t make_share(struct medusa_sched *s, uint64_t number, uint32_t gpu, uint64_t bytes)
{
	uint64_t before;
	uint32_t share = s->free_share;
	uint32_t others = md_map_get(&s->share_numbers, number, &before) ? (uint32_t)before : NONE;
	if (!md_map_put(&s->share_numbers, number, share))
		return NONE;
	s->free_share = s->shares[share].next;
	s->shares[share] =
	    (struct md_sched_share){.number = number, .bytes = bytes, .gpu = gpu, .first = NONE, .next = others};
	return share;
}

/* The last one that had it has left. */
static void free_share(struct medusa_sched *s, uint32_t share)
{
	struct md_sched_share *gone = &s->shares[share];
	uint64_t first = NONE;
	md_map_get(&s->share_numbers, gone->number, &first);
	uint32_t at = (uint32_t)first;
	if (at != share) {
		while (s->shares[at].next != share)
			at = s->shares[at].next;
		s->shares[at].next = gone->next;
	} else if (gone->next == NONE) {
		md_map_remove(&s->share_numbers, gone->number, NULL);
	} else {
		md_map_put(&s->share_numbers, gone->number, gone->next); /* it is there, so no memory is needed */
	}
	*gone = (struct md_sched_share){.gpu = NONE, .first = NONE, .next = s->free_share};
	s->free_share = share;
}

static void unlink_sharer(struct medusa_sched *s, uint32_t sharer)
{
	struct md_sched_sharer *gone = &s->sharers[sharer];
	struct md_sched_share *share = &s->shares[gone->share];
	uint32_t *of_copy = &md_copy_at(s, gone->artifact, share->gpu)->shares, *of_share = &share->first;
	count_as(s, gone, false, false, false);
	while (*of_copy != sharer + 1)
		of_copy = &s->sharers[*of_copy - 1].next_of_copy;
	*of_copy = gone->next_of_copy;
	while (*of_share != sharer)
		of_share = &s->sharers[*of_share].next_of_share;
	*of_share = gone->next_of_share;
	if (share->first == NONE)
		free_share(s, gone->share);
	*gone = (struct md_sched_sharer){.next_of_share = s->free_sharer};
	s->free_sharer = sharer;
}

static void add_sharer(struct medusa_sched *s, uint32_t share, uint32_t artifact)
{
	uint32_t sharer = s->free_sharer;
	struct md_copy *copy = md_copy_at(s, artifact, s->shares[share].gpu);
	s->free_sharer = s->sharers[sharer].next_of_share;
	s->sharers[sharer] = (struct md_sched_sharer){.share = share,
						      .artifact = artifact,
						      .next_of_share = s->shares[share].first,
						      .next_of_copy = copy->shares};
	s->shares[share].first = sharer;
	copy->shares = sharer + 1;
	count(s, &s->sharers[sharer], copy);
}

void md_shares_drop(struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	const struct md_copy *copy = md_copy_at(s, artifact, gpu);
	while (copy->shares)
		unlink_sharer(s, copy->shares - 1);
}

void md_shares_follow(struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	const struct md_copy *copy = md_copy_at(s, artifact, gpu);
	if (copy->state == MD_ABSENT || copy->state == MD_SUSPENDED) {
		md_shares_drop(s, artifact, gpu);
		return;
	}
	for (uint32_t next = copy->shares; next; next = s->sharers[next - 1].next_of_copy)
		count(s, &s->sharers[next - 1], copy);
}

void md_shares_finish(struct medusa_sched *s)
{
	md_map_finish(&s->share_numbers);
	free(s->shares);
	free(s->sharers);
}

/* ---- the event -------------------------------------------------------------------------------------------------- */

/* What an artifact shares is a part of it, or the credit would be more than what was counted. */
static int check_sum(struct medusa_sched *s, uint32_t artifact, const struct medusa_sched_event *e)
{
	uint64_t sum = e->bytes, whole = s->artifacts[artifact].bytes;
	for (uint32_t next = md_copy_at(s, artifact, e->gpu)->shares; next; next = s->sharers[next - 1].next_of_copy)
		sum += s->shares[s->sharers[next - 1].share].bytes;
	if (sum <= whole)
		return MEDUSA_SCHED_OK;
	return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
		       "event->bytes: the artifact would share %llu bytes on gpu %u, and has %llu",
		       (unsigned long long)sum, e->gpu, (unsigned long long)whole);
}

static int join(struct medusa_sched *s, uint32_t share, uint32_t artifact, const struct medusa_sched_event *e)
{
	if (share != NONE && s->shares[share].bytes != e->bytes)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "event->bytes is %llu, and others have %llu bytes of share %llu on gpu %u",
			       (unsigned long long)e->bytes, (unsigned long long)s->shares[share].bytes,
			       (unsigned long long)e->share, e->gpu);
	int code = check_sum(s, artifact, e);
	if (code)
		return code;
	bool room = reserve(s);
	if (room && share == NONE)
		share = make_share(s, e->share, e->gpu, e->bytes);
	if (!room || share == NONE)
		return md_fail(s, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for share %llu",
			       (unsigned long long)e->share);
	add_sharer(s, share, artifact);
	return MEDUSA_SCHED_OK;
}

int md_shared(struct medusa_sched *s, const struct medusa_sched_event *e)
{
	uint32_t artifact = NONE;
	if (e->artifact != MEDUSA_SCHED_CLASS_BACKBONE && e->artifact != MEDUSA_SCHED_CLASS_WEIGHTS)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "event->artifact is %d: weights and backbones alone have memory in common",
			       (int)e->artifact);
	int code = md_find_artifact(s, e, &artifact);
	if (code)
		return code;
	int state = md_copy_at(s, artifact, e->gpu)->state;
	uint32_t share = find_share(s, e->share, e->gpu), sharer = find_sharer(s, share, artifact);
	if (!e->bytes && sharer != NONE)
		unlink_sharer(s, sharer);
	if (!e->bytes || state == MD_ABSENT || state == MD_SUSPENDED)
		return MEDUSA_SCHED_OK; /* it has left meanwhile */
	if (sharer != NONE && s->shares[share].bytes == e->bytes)
		return MEDUSA_SCHED_OK;
	return join(s, share, artifact, e);
}
