/* SPDX-License-Identifier: Apache-2.0 */
#include "models/llama/adapters/slots.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool lora_slots_init(struct lora_slots *slots, int count, int layers, struct lora_counts *counts)
{
	*slots = (struct lora_slots){.count = count, .layers = layers, .counts = counts};
	slots->slots = calloc((size_t)count + 1, sizeof(*slots->slots));
	return slots->slots != NULL;
}

void lora_slots_finish(struct lora_slots *slots)
{
	free(slots->slots);
	memset(slots, 0, sizeof(*slots));
}

void lora_slots_begin_round(struct lora_slots *slots)
{
	for (int i = 0; i < slots->count; i++)
		slots->slots[i].wanted = false;
}

void lora_slots_end_round(struct lora_slots *slots)
{
	for (int i = 0; i < slots->count; i++)
		if (!slots->slots[i].wanted)
			slots->slots[i].claim = 0;
}

/* ---- choosing ---- */

static bool is_open(const struct lora_slot *slot, uint64_t version)
{
	return !slot->claim || slot->claim == version;
}

/* One that holds the weights and is not claimed for others; of several, one that is ready. */
static struct lora_slot *find_holding(const struct lora_slots *slots, uint64_t version)
{
	struct lora_slot *best = NULL;
	for (int i = 0; i < slots->count; i++) {
		struct lora_slot *slot = &slots->slots[i];
		if (slot->version == version && is_open(slot, version) && (!best || slot->layers > best->layers))
			best = slot;
	}
	return best;
}

/* The slot that was claimed goes first, so that nobody waits for two; then empty ones, then the one that was left first. */
static bool is_better(const struct lora_slot *slot, const struct lora_slot *best)
{
	if (!best || !slot->claim != !best->claim)
		return !best || slot->claim;
	if (!slot->version != !best->version)
		return !slot->version;
	return slot->left < best->left;
}

static struct lora_slot *find_claim(const struct lora_slots *slots, uint64_t version)
{
	for (int i = 0; i < slots->count; i++)
		if (slots->slots[i].claim == version)
			return &slots->slots[i];
	return NULL;
}

static struct lora_slot *find_free(const struct lora_slots *slots, uint64_t version)
{
	struct lora_slot *best = NULL;
	for (int i = 0; i < slots->count; i++) {
		struct lora_slot *slot = &slots->slots[i];
		if (!slot->users && is_open(slot, version) && is_better(slot, best))
			best = slot;
	}
	return best;
}

/* A slot that is free now, but claimed by somebody who came later: the two change places. */
static struct lora_slot *exchange(struct lora_slots *slots, uint64_t version)
{
	struct lora_slot *own = find_claim(slots, version);
	for (int i = 0; own && i < slots->count; i++) {
		struct lora_slot *slot = &slots->slots[i];
		if (slot->users || slot->wanted)
			continue;
		own->claim = slot->claim;
		return slot;
	}
	return NULL;
}

/* The slot that it has claimed, or else claims: the one with the fewest users. */
static void claim(struct lora_slots *slots, uint64_t version)
{
	struct lora_slot *best = find_claim(slots, version);
	for (int i = 0; i < slots->count; i++) {
		struct lora_slot *slot = &slots->slots[i];
		if (!slot->claim && slot->users && (!best || (!best->claim && slot->users < best->users)))
			best = slot;
	}
	if (best) {
		best->claim = version;
		best->wanted = true;
	}
}

/* Weights that must leave their slot take no other one before they have: that would move everybody in a circle. */
static bool is_somewhere(const struct lora_slots *slots, uint64_t version)
{
	for (int i = 0; i < slots->count; i++)
		if (slots->slots[i].version == version)
			return true;
	return false;
}

static void fill(struct lora_slots *slots, struct lora_slot *slot, const struct lora_weights *weights)
{
	slots->counts->replaced += slot->version && slot->layers == slots->layers;
	*slot = (struct lora_slot){.version = weights->version, .weights = weights};
}

int lora_slots_take(struct lora_slots *slots, const struct lora_weights *weights)
{
	struct lora_slot *slot = find_holding(slots, weights->version);
	if (!slot && ((slot = find_free(slots, weights->version)) || (slot = exchange(slots, weights->version))))
		fill(slots, slot, weights);
	if (!slot && !is_somewhere(slots, weights->version))
		claim(slots, weights->version);
	if (!slot)
		return -1;
	slot->claim = 0;
	slots->counts->used += !slot->users++;
	return (int)(slot - slots->slots);
}

/* Weights that are not whole are no use without somebody who waits for them: their memory may go at any time. */
void lora_slots_leave(struct lora_slots *slots, int number)
{
	struct lora_slot *slot = &slots->slots[number];
	assert(slot->users);
	slot->left = ++slots->clock;
	if (--slot->users)
		return;
	slots->counts->used--;
	if (slot->layers < slots->layers)
		*slot = (struct lora_slot){.left = slot->left, .claim = slot->claim, .wanted = slot->wanted};
}

bool lora_slots_ready(const struct lora_slots *slots, int slot)
{
	return slots->slots[slot].layers == slots->layers;
}

bool lora_slots_claimed(const struct lora_slots *slots, int slot)
{
	return slots->slots[slot].claim != 0;
}

/* ---- copying ---- */

int lora_slots_copying(const struct lora_slots *slots)
{
	for (int i = 0; i < slots->count; i++)
		if (slots->slots[i].users && slots->slots[i].layers < slots->layers)
			return i;
	return -1;
}

void lora_slots_copied(struct lora_slots *slots, int number)
{
	struct lora_slot *slot = &slots->slots[number];
	if (++slot->layers < slots->layers)
		return;
	slot->weights = NULL;
	slots->counts->copied++;
}
