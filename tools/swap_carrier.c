/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-swap run's side of the carrier: starts it, connects it with engines, and kills it. */
#include "tools/swap_carrier.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "swap/carry_wire.h"
#include "tools/swap_borrow.h"
#include "tools/swap_child.h"

/* A carrier that has not said for so long that it has done what it was asked for is stopped, say: another one replaces it. */
#define SILENCE_NS 30000000000ull

static void forget(struct md_swap_server *s)
{
	s->carrier_links = s->carrier_locked = s->carrier_asked = 0;
	*s->carrier_gpus = '\0';
}

static enum md_status start(struct md_swap_server *s, struct md_error *err)
{
	if (s->carrier && !s->carrier->gone)
		return MD_OK;
	forget(s);
	return md_swap_child_start(s, MD_SWAP_CARRIER_WORD, MD_SWAP_CARRIER, s->pool_fd, &s->carrier, err);
}

static enum md_status tell(struct md_swap_server *s, const char *what, const char *gpu, int passed,
			   struct md_error *err)
{
	struct md_swap_letter letter;
	uint64_t now = md_clock_ns();
	if (s->carrier_asked && now > s->carrier_asked + SILENCE_NS)
		md_swap_carrier_end(s);
	MD_FORWARD(start(s, err));
	if (!s->carrier_asked)
		s->carrier_asked = now;
	MD_FORWARD(md_swap_letter_begin(&letter, err));
	md_json_text(&letter.json, "do", what);
	md_json_text(&letter.json, "gpu", gpu);
	return md_swap_letter_send(&letter, s->carrier->wire.fd, passed, err);
}

void md_swap_carrier_prepare(struct md_swap_server *s, const char *gpu)
{
	struct md_error none = {0};
	tell(s, "prepare", gpu, -1, &none);
}

/* The carrier has one connection at a time; of several processes, the one with the most memory gets it. */
static bool is_largest(const struct md_swap_server *s, const struct md_swap_client *engine)
{
	for (size_t i = 0; i < s->client_count; i++) {
		const struct md_swap_client *other = s->clients[i];
		if (other->role == MD_SWAP_ENGINE && !other->gone && other->out &&
		    (other->away > engine->away || (other->away == engine->away && other->pid < engine->pid)))
			return false;
	}
	return true;
}

int md_swap_carrier_give(struct md_swap_server *s, const struct md_swap_client *engine, int *lenders)
{
	struct md_error err = {0};
	int ends[2];
	if (s->now.work != MD_SWAP_IN || !(s->now.neighbours || s->now.peers) ||
	    (!s->now.process && !is_largest(s, engine)))
		return -1;
	enum md_status status = md_carry_wire_pair(ends, &err);
	if (status == MD_OK) {
		status = tell(s, "carry", "", ends[1], &err);
		if (status == MD_ERR_TRUNCATED && s->carrier && !s->carrier->gone) { /* it has just ended */
			s->carrier->gone = true;
			status = tell(s, "carry", "", ends[1], &err);
		}
		close(ends[1]);
		if (status != MD_OK)
			close(ends[0]);
	}
	if (status == MD_OK && s->now.peers)
		*lenders = md_swap_borrow_ask(s);
	if (status == MD_OK)
		return ends[0];
	snprintf(s->now.neighbours ? s->because : s->peers_because, sizeof(s->because), "%.255s", err.message);
	return -1;
}

void md_swap_carrier_hear(struct md_swap_server *s, const struct md_swap_message *message)
{
	s->carrier_asked = 0;
	s->carrier_links = md_swap_message_number(message, "neighbours");
	s->carrier_locked = md_swap_message_number(message, "locked");
	snprintf(s->carrier_gpus, sizeof(s->carrier_gpus), "%s", md_swap_message_text(message, "gpus"));
}

void md_swap_carrier_end(struct md_swap_server *s)
{
	if (!s->carrier)
		return;
	kill(s->carrier->pid, SIGKILL);
	s->carrier->gone = true;
	forget(s);
}
