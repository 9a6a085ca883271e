/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets which slot: nobody is passed over for ever, and what is on its way belongs to those who wait for it. */
#include <criterion/criterion.h>

#include "models/llama/adapters/slots.h"

enum { LAYERS = 3, ADAPTERS = 9 };

static struct lora_counts counts;
static struct lora_slots slots;
static struct lora_weights weights[ADAPTERS];

static void open_slots(void)
{
	cr_assert(lora_slots_init(&slots, 2, LAYERS, &counts));
	for (int i = 0; i < ADAPTERS; i++)
		weights[i].version = (uint64_t)i + 1;
}

static void close_slots(void)
{
	lora_slots_finish(&slots);
}

TestSuite(lora_slots, .init = open_slots, .fini = close_slots);

static void copy(int slot)
{
	while (!lora_slots_ready(&slots, slot)) {
		cr_assert_eq(lora_slots_copying(&slots), slot);
		lora_slots_copied(&slots, slot);
	}
}

/* A round in which these ask in this order; each one's slot, or -1. Slots are whole afterwards. */
static void ask(const int *adapters, int *got, int count)
{
	lora_slots_begin_round(&slots);
	for (int i = 0; i < count; i++)
		got[i] = lora_slots_take(&slots, &weights[adapters[i]]);
	lora_slots_end_round(&slots);
	for (int slot = lora_slots_copying(&slots); slot >= 0; slot = lora_slots_copying(&slots))
		copy(slot);
}

static int ask_one(int adapter)
{
	int got;
	ask(&adapter, &got, 1);
	return got;
}

Test(lora_slots, an_adapter_is_copied_once)
{
	int first = ask_one(0);
	cr_assert_geq(first, 0);
	cr_assert_eq(ask_one(0), first, "another request for the same one");
	lora_slots_leave(&slots, first);
	lora_slots_leave(&slots, first);
	cr_assert_eq(ask_one(0), first, "it stays when nobody uses it");
	cr_assert_eq(counts.copied, 1);
	cr_assert_eq(counts.used, 1);
	lora_slots_leave(&slots, first);
	cr_assert_eq(counts.used, 0);
}

Test(lora_slots, the_one_that_was_left_first_makes_way)
{
	int a = ask_one(0), b = ask_one(1);
	cr_assert_neq(a, b, "an empty slot goes first");
	lora_slots_leave(&slots, b);
	lora_slots_leave(&slots, a);
	cr_assert_eq(ask_one(2), b);
	cr_assert_eq(counts.replaced, 1);
	cr_assert_eq(ask_one(0), a, "the other one is still there");
}

Test(lora_slots, who_waits_is_not_passed_over)
{
	int a = ask_one(0), b = ask_one(1), got[3];
	ask((int[]){2, 0, 1}, got, 3);
	cr_assert_eq(got[0], -1, "both slots are in use");
	cr_assert_eq(got[1] < 0, got[2] >= 0, "one slot is claimed: nobody else gets it (%d, %d)", got[1], got[2]);
	int claimed = got[1] < 0 ? a : b, open = got[1] < 0 ? 1 : 0;
	cr_assert(lora_slots_claimed(&slots, claimed));
	for (int round = 0; round < 50; round++) {
		ask((int[]){2, open, 1 - open}, got, 3);
		cr_assert_eq(got[0], -1);
		cr_assert_geq(got[1], 0, "the other adapter goes on");
		cr_assert_eq(got[2], -1, "round %d: the claim has gone to the other slot", round);
		lora_slots_leave(&slots, got[1]);
	}
	lora_slots_leave(&slots, claimed);
	ask((int[]){1 - open, 2}, got, 2);
	cr_assert_eq(got[0], -1, "who comes back first does not get it either");
	cr_assert_eq(got[1], claimed);
	cr_assert_not(lora_slots_claimed(&slots, claimed));
}

Test(lora_slots, a_claim_ends_with_who_waits)
{
	int a = ask_one(0), b = ask_one(1);
	cr_assert_eq(ask_one(2), -1);
	cr_assert(lora_slots_claimed(&slots, a) != lora_slots_claimed(&slots, b));
	ask(NULL, NULL, 0);
	cr_assert_not(lora_slots_claimed(&slots, a));
	cr_assert_not(lora_slots_claimed(&slots, b));
	cr_assert_eq(ask_one(0), a);
}

Test(lora_slots, each_waiting_adapter_claims_one_slot)
{
	int a = ask_one(0), b = ask_one(1), got[4];
	ask((int[]){2, 2, 3, 4}, got, 4);
	for (int i = 0; i < 4; i++)
		cr_assert_eq(got[i], -1);
	cr_assert(lora_slots_claimed(&slots, a) && lora_slots_claimed(&slots, b));
	lora_slots_leave(&slots, a);
	lora_slots_leave(&slots, b);
	ask((int[]){2, 2, 3, 4}, got, 4);
	cr_assert_geq(got[0], 0);
	cr_assert_eq(got[1], got[0], "both requests of one adapter share its slot");
	cr_assert_geq(got[2], 0);
	cr_assert_neq(got[2], got[0]);
	cr_assert_eq(got[3], -1, "the last one waits");
}

Test(lora_slots, half_an_adapter_is_none)
{
	lora_slots_begin_round(&slots);
	int slot = lora_slots_take(&slots, &weights[0]);
	lora_slots_end_round(&slots);
	lora_slots_copied(&slots, slot);
	cr_assert_not(lora_slots_ready(&slots, slot));
	cr_assert_eq(slots.slots[slot].weights, &weights[0]);
	lora_slots_leave(&slots, slot);
	cr_assert_eq(lora_slots_copying(&slots), -1, "nobody waits for it, and its memory may be gone");
	cr_assert_null(slots.slots[slot].weights);
	cr_assert_eq(slots.slots[slot].version, 0);
	cr_assert_eq(counts.copied, 0);
}

Test(lora_slots, other_weights_of_the_same_name_are_others)
{
	struct lora_weights newer = {.version = 77};
	int a = ask_one(0);
	lora_slots_leave(&slots, a);
	cr_assert_neq(lora_slots_take(&slots, &newer), a);
}

/* Whatever comes and goes, a request that asks in every round is served after as many ends as there are slots and waiters. */
Test(lora_slots, nobody_starves)
{
	int held[2] = {ask_one(0), ask_one(1)}, waiting[4] = {2, 3, 4, 5}, got[5];
	int served = 0;
	for (int round = 0; round < 40 && served < 4; round++) {
		lora_slots_leave(&slots, held[round % 2]);
		/* newcomers for what is there stand behind */
		int asks[5];
		for (int i = served; i < 4; i++)
			asks[i - served] = waiting[i];
		asks[4 - served] = round % 2;
		ask(asks, got, 5 - served);
		held[round % 2] = got[0] >= 0 ? got[0] : got[4 - served];
		cr_assert_geq(held[round % 2], 0);
		served += got[0] >= 0;
	}
	cr_assert_eq(served, 4, "%d of 4 were served", served);
}
