/* SPDX-License-Identifier: Apache-2.0 */
/* Artifacts on their way: sent for, arrived, failed, evicted. */
#include <stdlib.h>

#include "base/array.h"
#include "scheduler/core/action.h"
#include "scheduler/core/alarm.h"
#include "scheduler/core/backbone.h"
#include "scheduler/core/books.h"
#include "scheduler/core/state.h"
#include "scheduler/core/transfer.h"

/*
 * A number is made of how often this place in the table has been used, and the place; this bit tells it from a batch's.
 * So it is known for each number whether an action can have named it.
 */
#define MARK 0x80000000u

static uint32_t transfer_create(struct medusa_sched *s)
{
	if (s->free_transfer == NONE) {
		if (!MD_ARRAY_GROW(s->transfers, s->transfer_count, s->transfer_capacity))
			return NONE;
		if (!md_alarms_reserve(s))
			return NONE;
		s->transfers[s->transfer_count] = (struct md_transfer){.next_free = NONE};
		s->free_transfer = s->transfer_count++;
	}
	uint32_t index = s->free_transfer;
	uint64_t use = (s->transfers[index].id >> 32) + 1;
	s->free_transfer = s->transfers[index].next_free;
	s->transfers[index] = (struct md_transfer){.id = use << 32 | MARK | index, .peer = NONE, .live = true};
	s->generation++;
	return index;
}

static void transfer_free(struct medusa_sched *s, uint32_t transfer)
{
	s->transfers[transfer].live = false;
	md_priority_remove(&s->transfer_alarms, transfer);
	s->transfers[transfer].next_free = s->free_transfer;
	s->free_transfer = transfer;
}

uint32_t md_transfer_find(const struct medusa_sched *s, uint64_t id, bool *never)
{
	uint32_t index = (uint32_t)id & ~MARK;
	*never = !(id & MARK) || index >= s->transfer_count || !(id >> 32) || id > s->transfers[index].id;
	if (*never || !s->transfers[index].live || s->transfers[index].id != id)
		return NONE;
	return index;
}

void md_transfer_describe(const struct medusa_sched *s, struct medusa_sched_action *action, uint32_t artifact,
			  uint32_t gpu)
{
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	bool backbone = a->kind == MEDUSA_SCHED_CLASS_BACKBONE;
	action->artifact = a->kind;
	action->backbone = backbone ? a->owner : NONE;
	action->function = backbone ? NONE : a->owner;
	action->gpu = gpu;
}

/* ---- in --------------------------------------------------------------------------------------------------------- */

static enum medusa_sched_source choose_source(const struct medusa_sched *s, uint32_t artifact, uint32_t gpu,
					      uint32_t peer)
{
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	if (a->kind == MEDUSA_SCHED_CLASS_CONTEXT)
		return MEDUSA_SCHED_SOURCE_MADE;
	if (gpu == NONE)
		return MEDUSA_SCHED_SOURCE_COLD;
	if (peer != NONE && peer != gpu && md_copy_readable(s, artifact, peer))
		return MEDUSA_SCHED_SOURCE_PEER;
	return a->host == MD_THERE ? MEDUSA_SCHED_SOURCE_HOST : MEDUSA_SCHED_SOURCE_COLD;
}

/* Pins what a transfer reads from, and what it would be of no use without. */
static void pin_copy(struct medusa_sched *s, uint32_t artifact, uint32_t gpu, int by)
{
	struct md_copy *copy = md_copy_at(s, artifact, gpu);
	bool was = md_held(copy);
	copy->pins += (uint32_t)by;
	md_held_changed(s, artifact, gpu, was);
}

static void count_source(struct medusa_sched *s, const struct md_transfer *t, bool preload)
{
	if (preload)
		s->stats.preloads++;
	if (t->source == MEDUSA_SCHED_SOURCE_PEER) {
		s->stats.swaps_peer += !preload;
		s->stats.bytes_peer += t->bytes;
	} else if (t->source == MEDUSA_SCHED_SOURCE_HOST) {
		s->stats.swaps_host += !preload;
		s->stats.bytes_host += t->bytes;
	} else if (t->source == MEDUSA_SCHED_SOURCE_COLD) {
		s->stats.swaps_cold += !preload;
		s->stats.bytes_cold += t->bytes;
	}
}

static bool uses_host_link(const struct md_transfer *t)
{
	return t->gpu != NONE && (t->source == MEDUSA_SCHED_SOURCE_HOST || t->source == MEDUSA_SCHED_SOURCE_COLD);
}

static void enter_books(struct medusa_sched *s, struct md_transfer *t)
{
	struct md_sched_artifact *a = &s->artifacts[t->artifact];
	if (t->gpu == NONE || t->to_host) {
		a->host = MD_LOADING;
		a->host_transfer = (uint32_t)(t - s->transfers);
		s->host_used += a->bytes;
	}
	if (t->source == MEDUSA_SCHED_SOURCE_HOST)
		a->host_pins++;
	if (t->gpu == NONE)
		return;
	struct md_gpu *g = &s->gpus[t->gpu];
	struct md_copy *copy = md_copy_at(s, t->artifact, t->gpu);
	bool was = md_held(copy);
	if (copy->state == MD_SUSPENDED) {
		g->residues -= s->functions[a->owner].spec.residue_bytes;
		md_copy_leave(s, t->artifact, t->gpu);
	}
	copy->state = MD_LOADING;
	md_adapter_counted(s, t->artifact, t->gpu, 1);
	copy->transfer = (uint32_t)(t - s->transfers);
	copy->draining = copy->failed = false;
	copy->since = copy->used = s->now;
	g->artifacts += a->bytes;
	g->transfers++;
	g->changed = s->now;
	g->host_in += uses_host_link(t);
	g->host_in_heavy += uses_host_link(t) && t->heavy;
	md_held_changed(s, t->artifact, t->gpu, was);
	if (t->source == MEDUSA_SCHED_SOURCE_PEER)
		pin_copy(s, t->artifact, t->peer, 1);
	if (t->pins_backbone)
		pin_copy(s, s->functions[a->owner].artifacts[MEDUSA_SCHED_CLASS_BACKBONE], t->gpu, 1);
}

/* Undoes what enter_books did, except for the copy itself. */
static void leave_books(struct medusa_sched *s, const struct md_transfer *t)
{
	struct md_sched_artifact *a = &s->artifacts[t->artifact];
	if (t->source == MEDUSA_SCHED_SOURCE_HOST)
		a->host_pins--;
	if (t->gpu == NONE)
		return;
	struct md_gpu *g = &s->gpus[t->gpu];
	g->transfers--;
	g->changed = s->now;
	g->host_in -= uses_host_link(t);
	g->host_in_heavy -= uses_host_link(t) && t->heavy;
	if (t->source == MEDUSA_SCHED_SOURCE_PEER && t->peer != NONE)
		pin_copy(s, t->artifact, t->peer, -1);
	if (t->pins_backbone)
		pin_copy(s, s->functions[a->owner].artifacts[MEDUSA_SCHED_CLASS_BACKBONE], t->gpu, -1);
}

bool md_send_for(struct medusa_sched *s, uint32_t artifact, uint32_t gpu, uint32_t peer, bool preload)
{
	struct md_sched_artifact *a = &s->artifacts[artifact];
	uint32_t index = transfer_create(s);
	struct medusa_sched_action *action =
	    index == NONE ? NULL : md_act(s, preload ? MEDUSA_SCHED_ACTION_PRELOAD : MEDUSA_SCHED_ACTION_SWAP_IN);
	if (!action) {
		if (index != NONE)
			transfer_free(s, index);
		return false;
	}
	struct md_transfer *t = &s->transfers[index];
	t->artifact = artifact;
	t->gpu = gpu;
	t->direction = MD_IN;
	t->source = choose_source(s, artifact, gpu, peer);
	t->peer = t->source == MEDUSA_SCHED_SOURCE_PEER ? peer : NONE;
	t->bytes = a->bytes;
	t->heavy = a->kind == MEDUSA_SCHED_CLASS_BACKBONE || s->functions[a->owner].heavy;
	t->to_host = gpu != NONE && t->source == MEDUSA_SCHED_SOURCE_COLD && a->host == MD_ABSENT &&
		     (!s->host_limit || s->host_used + a->bytes <= s->host_limit);
	t->pins_backbone = gpu != NONE && a->kind != MEDUSA_SCHED_CLASS_BACKBONE &&
			   s->functions[a->owner].artifacts[MEDUSA_SCHED_CLASS_BACKBONE] != NONE;
	enter_books(s, t);
	md_alarm_transfer(s, index);
	count_source(s, t, preload);
	md_transfer_describe(s, action, artifact, gpu);
	action->transfer = t->id;
	action->source = t->source;
	action->peer = t->peer;
	action->bytes = t->bytes;
	action->to_host = gpu == NONE || t->to_host;
	return true;
}

void md_transfer_orphan(struct medusa_sched *s, uint32_t transfer)
{
	struct md_transfer *t = &s->transfers[transfer];
	pin_copy(s, t->artifact, t->peer, -1);
	t->peer = NONE;
}

static void note_loaded(struct medusa_sched *s, const struct md_sched_artifact *a)
{
	if (a->kind != MEDUSA_SCHED_CLASS_BACKBONE) {
		s->functions[a->owner].loaded_at = s->now;
		return;
	}
	for (uint32_t f = s->backbones[a->owner].first_user; f != NONE; f = s->functions[f].next_user)
		s->functions[f].loaded_at = s->now;
}

static void arrive(struct medusa_sched *s, const struct md_transfer *t)
{
	struct md_sched_artifact *a = &s->artifacts[t->artifact];
	leave_books(s, t);
	if (t->gpu == NONE || t->to_host) {
		a->host = MD_THERE;
		md_host_enter(s, t->artifact);
	}
	if (t->gpu == NONE)
		return;
	struct md_copy *copy = md_copy_at(s, t->artifact, t->gpu);
	bool was = md_held(copy);
	copy->state = MD_THERE;
	copy->draining &= !t->late && !t->failing;
	copy->used = s->now;
	a->copies++;
	note_loaded(s, a);
	md_held_changed(s, t->artifact, t->gpu, was);
	md_copy_enter(s, t->artifact, t->gpu);
}

static void miss(struct medusa_sched *s, const struct md_transfer *t)
{
	struct md_sched_artifact *a = &s->artifacts[t->artifact];
	leave_books(s, t);
	if (t->gpu == NONE || t->to_host) {
		a->host = MD_ABSENT;
		s->host_used -= a->bytes;
	}
	if (t->gpu == NONE)
		return;
	struct md_copy *copy = md_copy_at(s, t->artifact, t->gpu);
	bool was = md_held(copy);
	copy->state = MD_ABSENT;
	copy->draining = false;
	md_adapter_counted(s, t->artifact, t->gpu, -1);
	s->gpus[t->gpu].artifacts -= a->bytes;
	md_held_changed(s, t->artifact, t->gpu, was);
}

/* ---- out -------------------------------------------------------------------------------------------------------- */

/* Ends a copy that was THERE or LEAVING and is in no list any more: its residue remains, or nothing. */
static void gone(struct medusa_sched *s, uint32_t artifact, uint32_t gpu, uint64_t freed)
{
	struct md_gpu *g = &s->gpus[gpu];
	struct md_copy *copy = md_copy_at(s, artifact, gpu);
	uint64_t residue = s->artifacts[artifact].bytes - freed;
	bool was = md_held(copy);
	copy->state = residue ? MD_SUSPENDED : MD_ABSENT;
	copy->draining = false;
	copy->failed &= residue > 0; /* the caller sends the residue of what has failed away, too */
	md_adapter_counted(s, artifact, gpu, -1);
	g->artifacts -= s->artifacts[artifact].bytes;
	g->residues += residue;
	g->changed = s->now;
	md_held_changed(s, artifact, gpu, was);
	if (residue)
		md_copy_enter(s, artifact, gpu);
}

static void out_of_host(struct medusa_sched *s, uint32_t artifact)
{
	md_host_leave(s, artifact);
	s->artifacts[artifact].host = MD_ABSENT;
	s->host_used -= s->artifacts[artifact].bytes;
}

static void residue_gone(struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	md_copy_leave(s, artifact, gpu);
	struct md_copy *copy = md_copy_at(s, artifact, gpu);
	copy->state = MD_ABSENT;
	copy->failed = copy->draining = false;
	s->gpus[gpu].residues -= s->functions[s->artifacts[artifact].owner].spec.residue_bytes;
	s->gpus[gpu].changed = s->now;
}

/* Begins an eviction that takes time. */
static uint64_t start_leaving(struct medusa_sched *s, uint32_t transfer, uint32_t artifact, uint32_t gpu,
			      uint64_t freed)
{
	struct md_transfer *t = &s->transfers[transfer];
	struct md_copy *copy = md_copy_at(s, artifact, gpu);
	t->artifact = artifact;
	t->gpu = gpu;
	t->direction = MD_OUT;
	t->bytes = freed;
	bool was = md_held(copy);
	copy->state = MD_LEAVING;
	md_adapter_leaves(s, artifact, gpu, 1);
	copy->transfer = transfer;
	s->gpus[gpu].leaving += freed;
	md_held_changed(s, artifact, gpu, was);
	md_alarm_transfer(s, transfer);
	return t->id;
}

bool md_transfer_out(struct medusa_sched *s, uint32_t artifact, uint32_t gpu, uint64_t freed, bool offload,
		     bool at_once)
{
	bool suspended = gpu != NONE && md_copy_at(s, artifact, gpu)->state == MD_SUSPENDED;
	bool timed = !at_once && gpu != NONE && !suspended;
	uint32_t index = timed ? transfer_create(s) : NONE;
	struct medusa_sched_action *action =
	    timed && index == NONE ? NULL
				   : md_act(s, offload ? MEDUSA_SCHED_ACTION_OFFLOAD : MEDUSA_SCHED_ACTION_EVICT);
	if (!action) {
		if (index != NONE)
			transfer_free(s, index);
		return false;
	}
	md_transfer_describe(s, action, artifact, gpu);
	action->bytes = suspended ? s->functions[s->artifacts[artifact].owner].spec.residue_bytes : freed;
	offload ? s->stats.offloads++ : s->stats.evictions++;
	if (gpu == NONE) {
		out_of_host(s, artifact);
	} else if (suspended) {
		residue_gone(s, artifact, gpu);
	} else {
		s->artifacts[artifact].copies--;
		md_copy_leave(s, artifact, gpu);
		if (timed)
			action->transfer = start_leaving(s, index, artifact, gpu, freed);
		else
			gone(s, artifact, gpu, freed);
	}
	return true;
}

/* The eviction failed: the copy is still there. If its owner has failed, it is evicted once more. */
static void stays(struct medusa_sched *s, const struct md_transfer *t)
{
	struct md_copy *copy = md_copy_at(s, t->artifact, t->gpu);
	bool was = md_held(copy);
	copy->state = MD_THERE;
	copy->draining = copy->failed;
	s->gpus[t->gpu].draining |= copy->failed;
	s->artifacts[t->artifact].copies++;
	md_held_changed(s, t->artifact, t->gpu, was);
	md_copy_enter(s, t->artifact, t->gpu);
}

/* An eviction under way has ended, well or not. */
static void left(struct medusa_sched *s, const struct md_transfer *t)
{
	s->gpus[t->gpu].leaving -= t->bytes;
	md_adapter_leaves(s, t->artifact, t->gpu, -1);
}

/* ---- their ends ------------------------------------------------------------------------------------------------- */

void md_transfer_done(struct medusa_sched *s, uint32_t transfer)
{
	struct md_transfer t = s->transfers[transfer];
	transfer_free(s, transfer);
	if (t.direction == MD_OUT)
		left(s, &t);
	if (t.direction == MD_IN)
		arrive(s, &t);
	else
		gone(s, t.artifact, t.gpu, t.bytes);
}

void md_transfer_drop(struct medusa_sched *s, uint32_t transfer)
{
	struct md_transfer t = s->transfers[transfer];
	transfer_free(s, transfer);
	if (t.direction == MD_OUT)
		left(s, &t);
	if (t.direction == MD_IN)
		miss(s, &t);
	else
		stays(s, &t);
}
