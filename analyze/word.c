/* SPDX-License-Identifier: Apache-2.0 */
/* One 8-byte word in both captures: constant, pointer, noise, or unprovable. */
#include <inttypes.h>
#include <stdio.h>

#include "analyze/analysis.h"

/* How far from its allocation a "virtual origin" (base minus a tile's offset) is still believed. */
#define ORIGIN_LIMIT (UINT64_C(64) << 20)

/*
 * True: places one and two are the same place of the same object. A binding counts as an object of its own, wherever
 * its allocation lies. *split says that the allocations agree but the bindings do not.
 */
static bool same_place(const struct md_analysis *analysis, const struct md_place *one, const struct md_place *two,
		       bool *split)
{
	*split = false;
	if (one->binding != MD_NONE && two->binding != MD_NONE &&
	    analysis->binding_match[one->binding] == two->binding && one->offset == two->offset && !one->replaced &&
	    !two->replaced)
		return true;
	if (analysis->partner[one->alloc] != two->alloc || one->alloc_offset != two->alloc_offset)
		return false;
	*split = one->binding != MD_NONE || two->binding != MD_NONE;
	return true;
}

static void take_place(const struct md_place *place, int64_t beyond, struct md_target *target)
{
	*target = (struct md_target){place->alloc, place->binding, place->offset + beyond};
}

/* Words for a place, for messages. */
static void describe_place(const struct md_view *view, const struct md_place *place, char *text, size_t size)
{
	if (place->binding != MD_NONE)
		snprintf(text, size, "binding %.64s+%" PRId64, view->bindings[place->binding].name, place->offset);
	else
		snprintf(text, size, "allocation %" PRIu32 "+%" PRIu64 " bound to nothing", place->alloc,
			 place->alloc_offset);
}

static enum md_word refuse_split(const struct md_analysis *analysis, const struct md_place *one,
				 const struct md_place *two, char *why)
{
	char first[128], second[128];
	describe_place(&analysis->views[0], one, first, sizeof(first));
	describe_place(&analysis->views[1], two, second, sizeof(second));
	snprintf(why, MD_WORD_WHY_BYTES, "points into %s in the first capture and into %s in the second", first,
		 second);
	return MD_WORD_REFUSED;
}

/*
 * The name of the range was bound elsewhere later. A graph that was made before still uses the range, and no binding
 * says where it will be. For a graph that was made after, the range is memory like any other.
 */
static bool uses_replaced(const struct md_analysis *analysis, struct md_place *place, uint64_t graph_sequence,
			  char *why)
{
	if (!place->replaced)
		return false;
	if (graph_sequence < place->replaced) {
		snprintf(why, MD_WORD_WHY_BYTES, "points into binding %.64s, which was bound elsewhere afterwards",
			 analysis->views[0].bindings[place->binding].name);
		return true;
	}
	place->binding = MD_NONE;
	place->offset = (int64_t)place->alloc_offset;
	place->last = place->alloc_offset + 1 == analysis->views[0].allocs[place->alloc].size;
	place->replaced = 0;
	return false;
}

enum md_word md_word_guess(struct md_analysis *analysis, uint64_t value, uint64_t graph_sequence,
			   struct md_target *target, char *why)
{
	struct md_place place;
	if (!md_view_locate(&analysis->views[0], value, &place))
		return MD_WORD_CONSTANT;
	if (uses_replaced(analysis, &place, graph_sequence, why))
		return MD_WORD_REFUSED;
	take_place(&place, 0, target);
	return MD_WORD_POINTER;
}

/* Both values lie in live memory, but not at the same place. `one` is the word's place in the first capture. */
static enum md_word doubt(const struct md_analysis *analysis, struct md_place *one, const struct md_place *two,
			  uint64_t graph_sequence, struct md_target *target, char *why)
{
	char first[128], second[128];
	if (uses_replaced(analysis, one, graph_sequence, why))
		return MD_WORD_REFUSED;
	describe_place(&analysis->views[0], one, first, sizeof(first));
	describe_place(&analysis->views[1], two, second, sizeof(second));
	snprintf(why, MD_WORD_WHY_BYTES, "points into %s in the first capture and into %s in the second%s%s", first,
		 second, analysis->diverged ? "; " : "", analysis->divergence);
	take_place(one, 0, target);
	return MD_WORD_DOUBTFUL;
}

/* A value that lies in live memory in both captures may be an address; all others are noise. */
static enum md_word doubt_or_noise(const struct md_analysis *analysis, uint64_t one_value, uint64_t two_value,
				   uint64_t graph_sequence, struct md_target *target, char *why)
{
	struct md_place one, two;
	if (!md_view_locate(&analysis->views[0], one_value, &one) ||
	    !md_view_locate(&analysis->views[1], two_value, &two))
		return MD_WORD_NOISE;
	return doubt(analysis, &one, &two, graph_sequence, target, why);
}

/* The same offset in two allocations of the same kind: a pointer, if two blocks swapped their places and addresses. */
static bool alike(const struct md_analysis *analysis, const struct md_place *one, const struct md_place *two)
{
	const struct md_view_alloc *a = &analysis->views[0].allocs[one->alloc];
	const struct md_view_alloc *b = &analysis->views[1].allocs[two->alloc];
	return one->alloc_offset == two->alloc_offset && a->family == b->family && a->size == b->size;
}

/* Both values lie in allocations and name the same place. */
static enum md_word accept(struct md_analysis *analysis, struct md_place *one, const struct md_place *two, bool split,
			   int64_t beyond, uint64_t graph_sequence, struct md_target *target, char *why)
{
	bool replaced = one->replaced != 0;
	if (uses_replaced(analysis, one, graph_sequence, why))
		return MD_WORD_REFUSED;
	if (split && !replaced)
		return refuse_split(analysis, one, two, why);
	take_place(one, beyond, target);
	return MD_WORD_POINTER;
}

/*
 * The value is equal in both captures. If the memory there did not move, no capture can tell a pointer from a number
 * that looks like one. The value is taken as a pointer: a number would have to name this very place of this very
 * allocation.
 */
static enum md_word resolve_equal(struct md_analysis *analysis, uint64_t value, uint64_t graph_sequence,
				  struct md_target *target, char *why)
{
	struct md_place one, two;
	enum md_word word;
	bool split;
	if (!md_view_locate(&analysis->views[0], value, &one) || !md_view_locate(&analysis->views[1], value, &two))
		return MD_WORD_CONSTANT;
	if (!same_place(analysis, &one, &two, &split)) {
		if (alike(analysis, &one, &two))
			return doubt(analysis, &one, &two, graph_sequence, target, why);
		analysis->lookalike_words++;
		return MD_WORD_CONSTANT;
	}
	word = accept(analysis, &one, &two, split, 0, graph_sequence, target, why);
	analysis->fixed_words += word == MD_WORD_POINTER;
	return word;
}

/*
 * Whether both values are one past the end of the same object. The memory behind the end need not be the same in both
 * captures.
 */
static bool ends_together(const struct md_analysis *analysis, uint64_t one_value, uint64_t two_value,
			  struct md_place *one, struct md_place *two, bool *split)
{
	return md_view_locate(&analysis->views[0], one_value - 1, one) &&
	       md_view_locate(&analysis->views[1], two_value - 1, two) && one->last && two->last &&
	       same_place(analysis, one, two, split);
}

enum md_word md_word_resolve(struct md_analysis *analysis, uint64_t one_value, uint64_t two_value,
			     uint64_t graph_sequence, struct md_target *target, char *why)
{
	struct md_place one, two;
	bool in_one, in_two, split;
	if (analysis->captures == 1)
		return md_word_guess(analysis, one_value, graph_sequence, target, why);
	if (one_value == two_value)
		return resolve_equal(analysis, one_value, graph_sequence, target, why);
	in_one = md_view_locate(&analysis->views[0], one_value, &one);
	in_two = md_view_locate(&analysis->views[1], two_value, &two);
	if (in_one && in_two && same_place(analysis, &one, &two, &split))
		return accept(analysis, &one, &two, split, 0, graph_sequence, target, why);
	{
		struct md_place one_end, two_end;
		if (ends_together(analysis, one_value, two_value, &one_end, &two_end, &split))
			return accept(analysis, &one_end, &two_end, split, 1, graph_sequence, target, why);
	}
	/* A virtual origin may lie anywhere, in other allocations, too: it is known by how far it moved. */
	if (md_map_get(&analysis->deltas, two_value - one_value, NULL))
		return MD_WORD_OPEN;
	return doubt_or_noise(analysis, one_value, two_value, graph_sequence, target, why);
}

/* ---- virtual origins --------------------------------------------------------------------------------------------- */

struct nearest {
	uint32_t alloc;
	uint64_t distance;
	bool tie;
};

/* Device memory only: numbers that moved with host memory are stale host pointers as a rule. */
static bool eligible(const struct md_analysis *analysis, uint32_t alloc, uint64_t delta, const uint8_t *referenced)
{
	const struct md_view_alloc *one = &analysis->views[0].allocs[alloc], *two;
	uint32_t partner = analysis->partner[alloc];
	if (partner == MD_NONE || one->family == MD_ALLOC_HOST || (referenced && !referenced[alloc]))
		return false;
	two = &analysis->views[1].allocs[partner];
	return two->address - one->address == delta && md_view_find(&analysis->views[1], two->address) == partner;
}

static void consider(struct nearest *nearest, uint32_t alloc, uint64_t distance)
{
	if (distance > nearest->distance)
		return;
	nearest->tie = nearest->alloc != MD_NONE && distance == nearest->distance;
	nearest->alloc = alloc;
	nearest->distance = distance;
}

/* Live allocations do not overlap, so walking outward from the value meets the nearest ones first. */
static struct nearest find_nearest(const struct md_analysis *analysis, uint64_t value, uint64_t delta,
				   const uint8_t *referenced)
{
	const struct md_interval_index *live = &analysis->views[0].live;
	const struct md_interval *floor = md_interval_floor(live, value);
	size_t above = floor ? (size_t)(floor - live->items) + 1 : 0;
	struct nearest nearest = {MD_NONE, ORIGIN_LIMIT, false};
	if (floor && value - floor->start < floor->size)
		above--; /* the value lies in this allocation, but moved by another distance */
	for (size_t i = above; i-- > 0;) {
		uint64_t distance = value - (live->items[i].start + live->items[i].size);
		if (distance > nearest.distance)
			break;
		if (eligible(analysis, (uint32_t)live->items[i].value, delta, referenced))
			consider(&nearest, (uint32_t)live->items[i].value, distance);
	}
	above += floor && value - floor->start < floor->size;
	for (size_t i = above; i < live->count; i++) {
		uint64_t distance = live->items[i].start - value;
		if (distance > nearest.distance)
			break;
		if (eligible(analysis, (uint32_t)live->items[i].value, delta, referenced))
			consider(&nearest, (uint32_t)live->items[i].value, distance);
	}
	return nearest;
}

enum md_word md_word_origin(struct md_analysis *analysis, uint64_t one, uint64_t two, uint64_t graph_sequence,
			    const uint8_t *referenced, struct md_target *target, char *why)
{
	const struct md_view *view = &analysis->views[0];
	struct nearest nearest = find_nearest(analysis, one, two - one, referenced);
	const struct md_view_alloc *alloc;
	const struct md_view_piece *piece;
	int64_t offset;
	/*
	 * An origin that lies in another live allocation is believed only of allocations that the graph refers to
	 * anyway.
	 */
	if (nearest.alloc == MD_NONE && md_view_find(view, one) == MD_NONE &&
	    md_view_find(&analysis->views[1], two) == MD_NONE)
		nearest = find_nearest(analysis, one, two - one, NULL);
	if (nearest.alloc == MD_NONE)
		return doubt_or_noise(analysis, one, two, graph_sequence, target, why);
	if (nearest.tie) {
		snprintf(why, MD_WORD_WHY_BYTES,
			 "ambiguous: two allocations, both %" PRIu64
			 " bytes away, moved by the same distance as this address",
			 nearest.distance);
		return MD_WORD_REFUSED;
	}
	alloc = &view->allocs[nearest.alloc];
	offset = (int64_t)(one - alloc->address);
	*target = (struct md_target){nearest.alloc, MD_NONE, offset};
	/* An address before or behind the allocation belongs to the binding at that end. */
	piece = md_view_piece_at(view, nearest.alloc, offset < 0 ? 0 : alloc->size - 1);
	if (piece && !piece->replaced) {
		const struct md_view_binding *binding = &view->bindings[piece->binding];
		uint32_t partner = analysis->binding_match[piece->binding];
		target->binding = piece->binding;
		target->offset = offset - (int64_t)piece->start + (int64_t)piece->binding_offset;
		if (partner == MD_NONE ||
		    analysis->views[1].bindings[partner].address - binding->address != two - one) {
			snprintf(why, MD_WORD_WHY_BYTES, "lies near binding %.64s, which moved differently",
				 binding->name);
			return MD_WORD_REFUSED;
		}
	}
	return MD_WORD_POINTER;
}
