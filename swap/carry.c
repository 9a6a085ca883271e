/* SPDX-License-Identifier: Apache-2.0 */
/* Speaks with the carrier, and stops doing so when the carrier does not keep to the rules. */
#define MD_LOG_DOMAIN "swap"

#include "swap/carry.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "swap/pulse.h"

#define FINISH_NS 3000000000ull /* for giving up the memory */
#define SAY_NS 3000000000ull    /* for room for one more message */

void md_swap_carry_init(struct md_swap_carry *carry, struct md_swap_carrier *carrier)
{
	*carry = (struct md_swap_carry){.carrier.fd = -1, .heard_at = md_clock_ns()};
	md_swap_lenders_init(&carry->lenders, carrier && carrier->peers ? carrier->lenders : -1);
	if (!carrier)
		return;
	carry->carrier = *carrier;
	carrier->fd = carrier->lenders = -1;
	carry->wanted = true;
}

/* ---- saying ---- */

/* A carrier that is at something long reads later, and is waited for. */
static enum md_status say(struct md_swap_carry *carry, struct md_carry_message *message, int passed,
			  struct md_error *err)
{
	struct md_error why = {0};
	uint64_t began = md_clock_ns();
	if (!md_swap_carry_is_open(carry))
		return md_error_set(err, MD_ERR_TRUNCATED, "there is no carrier");
	enum md_status status = md_carry_wire_send(carry->carrier.fd, message, passed, &why);
	while (status == MD_ERR_BUSY && md_clock_ns() - began < SAY_NS) {
		struct pollfd room = {.fd = carry->carrier.fd, .events = POLLOUT};
		poll(&room, 1, 1);
		md_swap_pulse_step();
		status = md_carry_wire_send(carry->carrier.fd, message, passed, &why);
	}
	if (status == MD_OK)
		return MD_OK;
	snprintf(carry->why, sizeof(carry->why), "the carrier does not take messages (%.200s)", why.message);
	return md_error_set(err, why.status, "%s", carry->why);
}

enum md_status md_swap_carry_begin(struct md_swap_carry *carry, const char *gpu, struct md_error *err)
{
	struct md_carry_message message = {.kind = MD_CARRY_BEGIN, .count = 1};
	snprintf(message.gpus[0], sizeof(message.gpus[0]), "%s", gpu);
	return say(carry, &message, -1, err);
}

enum md_status md_swap_carry_part(struct md_swap_carry *carry, uint32_t part, uint64_t bytes, int memory,
				  struct md_error *err)
{
	struct md_carry_message message = {.kind = MD_CARRY_PART, .part = part, .bytes = bytes};
	return say(carry, &message, memory, err);
}

enum md_status md_swap_carry_chunk(struct md_swap_carry *carry, struct md_carry_message *chunk, struct md_error *err)
{
	chunk->kind = MD_CARRY_CHUNK;
	return say(carry, chunk, -1, err);
}

enum md_status md_swap_carry_take(struct md_swap_carry *carry, struct md_carry_message *take, struct md_error *err)
{
	take->kind = MD_CARRY_TAKE;
	return say(carry, take, -1, err);
}

enum md_status md_swap_carry_lender(struct md_swap_carry *carry, uint32_t number, const struct md_swap_lender *lender,
				    struct md_error *err)
{
	struct md_carry_message message = {.kind = MD_CARRY_LENDER, .link = number};
	snprintf(message.gpus[0], sizeof(message.gpus[0]), "%s", lender->gpu);
	return say(carry, &message, lender->fd, err);
}

void md_swap_carry_stale(struct md_swap_carry *carry, struct md_carry_message *stale)
{
	struct md_error none = {0};
	stale->kind = MD_CARRY_STALE;
	if (md_swap_carry_is_open(carry))
		md_carry_wire_send(carry->carrier.fd, stale, -1, &none);
}

/* ---- hearing ---- */

static enum md_carry_event take_ready(struct md_swap_carry *carry, const struct md_carry_message *message)
{
	if (carry->ready || !message->count)
		return MD_CARRY_EVENT_LIAR;
	carry->ready = true;
	carry->links = message->count;
	memcpy(carry->gpus, message->gpus, sizeof(carry->gpus));
	return MD_CARRY_EVENT_READY;
}

static enum md_carry_event understand(struct md_swap_carry *carry, const struct md_carry_message *message)
{
	switch (message->kind) {
	case MD_CARRY_READY:
		return take_ready(carry, message);
	case MD_CARRY_DONE:
		return carry->ready && message->link < carry->links ? MD_CARRY_EVENT_DONE : MD_CARRY_EVENT_LIAR;
	case MD_CARRY_NOT:
		return carry->ready ? MD_CARRY_EVENT_NOT : MD_CARRY_EVENT_LIAR;
	case MD_CARRY_END:
		for (unsigned i = MD_PEER_COPIER; i < MD_PEER_TIMES; i++)
			carry->times[i] += message->times[i];
		return MD_CARRY_EVENT_ENDED;
	case MD_CARRY_FAILED:
		snprintf(carry->why, sizeof(carry->why), "%s", message->text);
		return MD_CARRY_EVENT_LOST;
	default:
		return MD_CARRY_EVENT_LIAR;
	}
}

enum md_carry_event md_swap_carry_hear(struct md_swap_carry *carry, struct md_carry_message *message)
{
	struct md_error why = {0};
	bool there = false;
	int passed = -1;
	enum md_carry_event event = MD_CARRY_EVENT_NONE;
	if (!md_swap_carry_is_open(carry))
		return event;
	enum md_status status = md_carry_wire_receive(carry->carrier.fd, message, &passed, &there, &why);
	if (status == MD_ERR_TRUNCATED) {
		snprintf(carry->why, sizeof(carry->why), "the carrier has ended");
		return MD_CARRY_EVENT_LOST;
	}
	if (status != MD_OK)
		event = MD_CARRY_EVENT_LIAR;
	else if (there)
		event = understand(carry, message);
	if (passed >= 0)
		close(passed);
	if (event == MD_CARRY_EVENT_LIAR)
		snprintf(carry->why, sizeof(carry->why), "the carrier has sent what makes no sense");
	if (there)
		carry->heard_at = md_clock_ns();
	return event;
}

/* Waits for a message, at most so long. */
static void wait_for(const struct md_swap_carry *carry, int milliseconds)
{
	struct pollfd ready = {.fd = carry->carrier.fd, .events = POLLIN};
	poll(&ready, 1, milliseconds);
}

/* ---- the end ---- */

static void close_it(struct md_swap_carry *carry)
{
	close(carry->carrier.fd);
	carry->carrier.fd = -1;
	carry->ready = false;
}

void md_swap_carry_abandon(struct md_swap_carry *carry, const char *why)
{
	if (!md_swap_carry_is_open(carry))
		return;
	if (why)
		snprintf(carry->why, sizeof(carry->why), "%s", why);
	close_it(carry);
	if (carry->carrier.end)
		carry->carrier.end(carry->carrier.user);
}

static bool goes_on(enum md_carry_event event)
{
	return event == MD_CARRY_EVENT_NONE || event == MD_CARRY_EVENT_DONE || event == MD_CARRY_EVENT_NOT;
}

void md_swap_carry_finish(struct md_swap_carry *carry)
{
	struct md_carry_message message = {.kind = MD_CARRY_END};
	struct md_error none;
	uint64_t began = md_clock_ns();
	if (!md_swap_carry_is_open(carry))
		return;
	if (!carry->ready) { /* it has nothing of ours */
		if (!*carry->why)
			snprintf(carry->why, sizeof(carry->why),
				 "the carrier was not ready in time; the next time it will be");
		close_it(carry);
		return;
	}
	enum md_carry_event event =
	    say(carry, &message, -1, &none) == MD_OK ? MD_CARRY_EVENT_NONE : MD_CARRY_EVENT_LOST;
	while (goes_on(event) && md_clock_ns() - began < FINISH_NS) {
		event = md_swap_carry_hear(carry, &message);
		md_swap_pulse_step();
		if (event == MD_CARRY_EVENT_NONE)
			wait_for(carry, 100);
	}
	if (event == MD_CARRY_EVENT_ENDED)
		close_it(carry);
	else
		md_swap_carry_abandon(carry,
				      event == MD_CARRY_EVENT_NONE ? "the carrier does not give up the memory" : NULL);
}
