/* SPDX-License-Identifier: Apache-2.0 */
/* Which adapter lies in which slot of the device's pool: who uses it, who waits for it. Decides; others copy. */
#ifndef LLAMA_ADAPTERS_SLOTS_H
#define LLAMA_ADAPTERS_SLOTS_H

#include <stdatomic.h>

#include "models/llama/adapters/store.h"

/* Read by other threads at any time. */
struct lora_counts {
	atomic_size_t used;             /* slots that requests use */
	atomic_size_t copied, replaced; /* adapters that came into a slot; that made way for another one */
};

struct lora_slot {
	uint64_t version;                   /* of the weights in it; 0: nothing */
	const struct lora_weights *weights; /* while they are copied */
	int layers;                         /* that are there */
	unsigned users;
	uint64_t left;  /* when its last user left */
	uint64_t claim; /* version of the weights that get it next: only who uses it now goes on; 0: none */
	bool wanted;    /* in this round somebody waits for it by that claim */
};

struct lora_slots {
	struct lora_slot *slots;
	int count, layers; /* layers: of an adapter */
	uint64_t clock;
	struct lora_counts *counts;
};

bool lora_slots_init(struct lora_slots *slots, int count, int layers,
		     struct lora_counts *counts); /* false: out of memory */
void lora_slots_finish(struct lora_slots *slots); /* also on a zeroed one */

/*
 * In each round everybody who waits asks, in the order in which they came, until they have a slot. Who finds none
 * claims one of those in use: nobody who comes later gets it, and so it becomes free when its users have ended. A
 * claim for which nobody asks in a round is over.
 */
void lora_slots_begin_round(struct lora_slots *slots);
void lora_slots_end_round(struct lora_slots *slots);
/* A slot, used once more, that holds these weights or will; -1: wait. */
int lora_slots_take(struct lora_slots *slots, const struct lora_weights *weights);
void lora_slots_leave(struct lora_slots *slots, int slot);
bool lora_slots_ready(const struct lora_slots *slots, int slot);
bool lora_slots_claimed(const struct lora_slots *slots, int slot);

/* A slot into which layer slots[].layers of slots[].weights is to be copied; -1: none. */
int lora_slots_copying(const struct lora_slots *slots);
/* That layer is there. */
void lora_slots_copied(struct lora_slots *slots, int slot);

#endif
