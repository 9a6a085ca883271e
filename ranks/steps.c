/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps in shared memory. Each is decided by one word, as a vote is: no rank takes a step that another one has given up. Only
 * the last decision is kept, because a rank that it was made without has taken all steps before.
 */
#include "ranks/steps.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "ranks/rounds_memory.h"

#define NS_PER_S UINT64_C(1000000000)

/* In the low bits of a decision, with the number of the step, counted from 1, above them. */
enum { TAKEN = 1, GIVEN_UP };

static uint32_t decision_on(uint32_t number, uint32_t how)
{
	return ((number + 1) << 2) | how;
}

static void decide(struct md_rounds *rounds, uint32_t number, uint32_t how)
{
	uint32_t before = number ? decision_on(number - 1, TAKEN) : 0;
	atomic_compare_exchange_strong(&rounds->memory->step, &before, decision_on(number, how));
	md_rounds_wake(rounds->memory);
}

/* 0: not yet. A rank has taken all steps before the last decision, and nothing comes after one that was given up. */
static uint32_t decided(const struct md_rounds *rounds, uint32_t number)
{
	uint32_t last = atomic_load(&rounds->memory->step), at = last >> 2, how = last & 3;
	if (at > number + 1)
		return TAKEN;
	return at == number + 1 || how == GIVEN_UP ? how : 0;
}

/* The first rank that has not come; the number of ranks: there is none. */
static uint32_t find_late(const struct md_rounds *rounds, uint32_t number)
{
	uint32_t rank = 0;
	while (rank < rounds->ranks && atomic_load(&rounds->memory->seats[rank].steps) > number)
		rank++;
	return rank;
}

static void say(struct md_rounds *rounds, uint32_t number, const struct md_step *step)
{
	struct md_seat *seat = &rounds->memory->seats[rounds->own];
	struct md_step_said *said = &seat->said[number % 2];
	said->hash = md_hash_checksum(step->text, strlen(step->text));
	snprintf(said->text, sizeof(said->text), "%s", step->text);
	said->yes = step->yes;
	atomic_store(&seat->steps, number + 1);
}

static void give_up(struct md_rounds *rounds, uint32_t number, const struct md_step *step, uint64_t waited_ns)
{
	uint32_t late = find_late(rounds, number), process;
	if (late == rounds->ranks) /* all have come, so it is taken */
		return;
	decide(rounds, number, GIVEN_UP);
	if (decided(rounds, number) == TAKEN)
		return;
	process = atomic_load(&rounds->memory->seats[late].process);
	if (process)
		md_rounds_end(rounds, MD_ROUNDS_LATE, late,
			      "rank %u (process %u) has not come in %" PRIu64 " s to: %.120s", late, process,
			      waited_ns / NS_PER_S, step->text);
	else
		md_rounds_end(rounds, MD_ROUNDS_LATE, late, "rank %u has not come in %" PRIu64 " s to: %.120s", late,
			      waited_ns / NS_PER_S, step->text);
}

static uint32_t await(struct md_rounds *rounds, uint32_t number, const struct md_step *step)
{
	uint64_t began = md_clock_ns();
	for (;;) {
		uint32_t seen = atomic_load(&rounds->memory->changes), how = decided(rounds, number);
		uint64_t waited = md_clock_ns() - began;
		if (how)
			return how;
		if (find_late(rounds, number) == rounds->ranks)
			decide(rounds, number, TAKEN);
		else if (!step->connected(step->user) || md_rounds_ended(rounds, NULL))
			decide(rounds, number, GIVEN_UP);
		else if (waited >= step->patience_ns)
			give_up(rounds, number, step, waited);
		else
			md_rounds_doze(rounds->memory, seen, step->patience_ns - waited);
	}
}

/* All have come, and nobody writes again what is read here before this rank comes to the next step. */
static enum md_status compare(const struct md_rounds *rounds, uint32_t number, bool *all_yes, struct md_error *err)
{
	const struct md_step_said *own = &rounds->memory->seats[rounds->own].said[number % 2];
	bool yes = true;
	for (uint32_t rank = 0; rank < rounds->ranks; rank++) {
		struct md_step_said other = rounds->memory->seats[rank].said[number % 2];
		other.text[sizeof(other.text) - 1] = '\0';
		if (other.hash != own->hash)
			return md_error_set(err, MD_ERR_MISMATCH, "rank %u is at: %s; rank %u is at: %s", rank,
					    other.text, rounds->own, own->text);
		yes &= other.yes;
	}
	*all_yes = yes;
	return MD_OK;
}

enum md_status md_rounds_step(struct md_rounds *rounds, uint32_t number, const struct md_step *step, bool *all_yes,
			      struct md_error *err)
{
	bool connected = step->connected(step->user);
	if (md_rounds_ended(rounds, err))
		return err->status;
	if (!connected)
		return md_error_set(err, MD_ERR_NOT_FOUND, "rank %u has lost the other ranks", rounds->own);
	/* The end is said a moment after a step has been given up. Who goes on in between would write what a slower rank still reads. */
	if (decided(rounds, number) != GIVEN_UP) {
		say(rounds, number, step);
		if (await(rounds, number, step) == TAKEN)
			return compare(rounds, number, all_yes, err);
	}
	if (!md_rounds_ended(rounds, err))
		md_error_set(err, MD_ERR_NOT_FOUND, "ranks have lost each other at: %s", step->text);
	return err->status;
}
