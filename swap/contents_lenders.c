/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Has lenders write what is wanted of their memory into rooms, from which contents_stage.c copies it to its place. A lender
 * that cannot reach the first room is handed to the carrier, which reads its memory instead. Nobody is trusted: what a lender
 * writes, at any time, is written into rooms alone, and what has come is compared by contents_check.c.
 */
#define MD_LOG_DOMAIN "swap"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "swap/contents_share.h"

#define MESSAGES_MOST 256u       /* of a lender, before others have their turn */
#define SILENCE_NS 1000000000ull /* a lender that has a room or chunks, and says nothing */

static struct md_swap_lender *lender_at(const struct md_swap_share *s, uint8_t number)
{
	return &s->carry->lenders.list[number];
}

bool md_swap_share_gives(const struct md_swap_share *s, uint8_t lender)
{
	enum md_swap_lender_way way = lender_at(s, lender)->way;
	return way == MD_LENDER_PUSHES || (way == MD_LENDER_CARRIED && s->carry->ready && !s->over);
}

/* ---- the end of a lender ---- */

void md_swap_share_lose_lender(struct md_swap_share *s, uint8_t lender)
{
	if (lender < MD_CARRY_LENDERS)
		s->offers.lost[lender] = true;
}

void md_swap_share_lose_carried(struct md_swap_share *s)
{
	for (uint8_t i = 0; i < s->carry->lenders.count; i++)
		if (lender_at(s, i)->way == MD_LENDER_CARRIED)
			md_swap_share_lose_lender(s, i);
}

/*
 * rooms_back: it writes nothing more. Else its copies may still be under way, and their slots are not used again, so that
 * other lenders' blocks do not differ because of it.
 */
static void leave(struct md_swap_share *s, uint8_t number, bool rooms_back, const char *why)
{
	struct md_swap_lender *lender = lender_at(s, number);
	md_debug("process %d on %s lends nothing more: %s", lender->pid, lender->gpu, why);
	md_swap_share_lose_lender(s, number);
	for (size_t i = 0; i < s->count; i++) {
		struct md_share_chunk *chunk = &s->chunks[i];
		if (chunk->state != MD_SHARE_LENT || !chunk->pushed || chunk->lender != number)
			continue;
		s->stage.slots[chunk->slot].lent = !rooms_back;
		md_swap_share_note_back(s, chunk, false);
	}
	md_swap_lender_leave(lender, rooms_back);
}

/* The carrier has the connection from now on. */
static enum md_status hand_to_carrier(struct md_swap_share *s, uint8_t number, const char *why, struct md_error *err)
{
	struct md_swap_lender *lender = lender_at(s, number);
	struct md_error lost = {0};
	md_debug("process %d on %s does not write here, so that the carrier reads there: %s", lender->pid, lender->gpu,
		 why);
	if (s->over) {
		leave(s, number, true, "there is no carrier");
		return MD_OK;
	}
	snprintf(s->report->carried_because, sizeof(s->report->carried_because), "%s", why);
	lender->way = MD_LENDER_CARRIED;
	enum md_status status = md_swap_carry_lender(s->carry, number, lender, &lost);
	close(lender->fd);
	lender->fd = -1;
	return status == MD_OK ? MD_OK : md_swap_share_give_up(s, NULL, false, err);
}

/* ---- rooms ---- */

/* MD_ERR_BUSY: the lender does not read now. */
static enum md_status tell_room(struct md_swap_share *s, struct md_swap_lender *lender, unsigned room,
				struct md_error *err)
{
	const struct md_share_room *from = &s->stage.rooms[room];
	struct md_carry_message message = {.kind = MD_CARRY_ROOM, .part = room, .bytes = from->bytes};
	if (lender->rooms >> room & 1)
		return MD_OK;
	MD_FORWARD(md_carry_wire_send(lender->fd, &message, from->fd, err));
	lender->rooms |= 1u << room;
	return MD_OK;
}

static enum md_status tell_carrier(struct md_swap_share *s, unsigned room, struct md_error *err)
{
	struct md_share_room *from = &s->stage.rooms[room];
	if (from->carried)
		return MD_OK;
	MD_FORWARD(
	    md_swap_carry_part(s->carry, (uint32_t)(s->contents->part_count + room), from->bytes, from->fd, err));
	from->carried = true;
	return MD_OK;
}

/* Whether a lender can write here is found out with the first room; that one alone has what others wait for. */
static enum md_status ask(struct md_swap_share *s, uint8_t number, struct md_error *err)
{
	struct md_swap_lender *lender = lender_at(s, number);
	size_t next = md_swap_offers_next(s, number);
	struct md_swap_link *link;
	struct md_error why = {0};
	unsigned slot = 0;
	if (next == s->count)
		return MD_OK;
	if (!s->pushes)
		return hand_to_carrier(s, number, "MEDUSA_SWAP_PEER_PUSH is off", err);
	MD_FORWARD(md_swap_links_get(s->links, s->contents->parts[s->chunks[next].part].range.context, &link, err));
	enum md_share_where where = md_swap_stage_find(s, link->context, &slot);
	if (where == MD_SHARE_TO_PLACE)
		return hand_to_carrier(s, number, "there are no rooms to write into", err);
	slot = where == MD_SHARE_NOWHERE ? 0 : slot;
	if (tell_room(s, lender, md_swap_stage_room_of(slot), &why) != MD_OK) {
		leave(s, number, true, why.message);
		return MD_OK;
	}
	lender->way = MD_LENDER_ASKED;
	lender->heard_at = md_clock_ns();
	return MD_OK;
}

/* ---- what lenders say ---- */

static void take_offer(struct md_swap_share *s, uint8_t number, const struct md_carry_message *offer, int file)
{
	struct md_swap_lender *lender = lender_at(s, number);
	lender->pid = (int)offer->part;
	snprintf(lender->gpu, sizeof(lender->gpu), "%s", offer->gpus[0]);
	if (!strcmp(lender->gpu, s->gpu) || file < 0) {
		leave(s, number, true, file < 0 ? "an offer without a file" : "it is on the same GPU");
		s->offers.lost[number] = false; /* it has offered nothing */
		return;
	}
	lender->way = MD_LENDER_OFFERS;
	md_swap_offers_add(s, number, file, offer->bytes);
}

/* NULL: the lender has no such chunk. */
static struct md_share_chunk *find_pushed(const struct md_swap_share *s, uint8_t number, uint32_t index)
{
	struct md_share_chunk *chunk = index < s->count ? &s->chunks[index] : NULL;
	return chunk && chunk->state == MD_SHARE_LENT && chunk->pushed && chunk->lender == number ? chunk : NULL;
}

/* False: it makes no sense. */
static bool take_done(struct md_swap_share *s, uint8_t number, const struct md_carry_message *done,
		      enum md_status *status, struct md_error *err)
{
	struct md_share_chunk *chunk = find_pushed(s, number, done->chunk);
	if (!chunk || chunk->bytes != done->bytes)
		return false;
	lender_at(s, number)->asked--;
	md_swap_share_note_back(s, chunk, true);
	*status = md_swap_stage_came(s, done->chunk, err);
	return true;
}

/* The engine there may have freed this memory, and no other. */
static bool take_not(struct md_swap_share *s, uint8_t number, uint32_t index)
{
	struct md_share_chunk *chunk = find_pushed(s, number, index);
	if (!chunk)
		return false;
	lender_at(s, number)->asked--;
	s->stage.slots[chunk->slot].lent = false;
	md_swap_share_note_back(s, chunk, false);
	chunk->lender = MD_SHARE_NO_LENDER;
	s->offers.refused = true;
	return true;
}

/* False: it makes no sense. */
static bool take_room(struct md_swap_share *s, uint8_t number, const struct md_carry_message *answer,
		      enum md_status *status, struct md_error *err)
{
	struct md_swap_lender *lender = lender_at(s, number);
	if (answer->part >= MD_CARRY_ROOMS || !(lender->rooms >> answer->part & 1))
		return false;
	if (answer->count) {
		lender->way = MD_LENDER_PUSHES;
		return true;
	}
	lender->rooms &= ~(1u << answer->part);
	if (lender->way == MD_LENDER_ASKED)
		*status = hand_to_carrier(s, number, answer->text, err);
	else
		leave(s, number, false, answer->text);
	return true;
}

/* False: it makes no sense. */
static bool understand(struct md_swap_share *s, uint8_t number, const struct md_carry_message *message, int file,
		       enum md_status *status, struct md_error *err)
{
	const struct md_swap_lender *lender = lender_at(s, number);
	switch (message->kind) {
	case MD_CARRY_OFFER:
		if (lender->way == MD_LENDER_SILENT)
			take_offer(s, number, message, file);
		return lender->way != MD_LENDER_SILENT;
	case MD_CARRY_ROOM:
		return take_room(s, number, message, status, err);
	case MD_CARRY_DONE:
		return take_done(s, number, message, status, err);
	case MD_CARRY_NOT:
		return take_not(s, number, message->chunk);
	case MD_CARRY_FAILED:
		leave(s, number, true, message->text);
		return true;
	default:
		return false;
	}
}

static enum md_status hear(struct md_swap_share *s, uint8_t number, bool *moved, struct md_error *err)
{
	struct md_swap_lender *lender = lender_at(s, number);
	for (unsigned i = 0; lender->fd >= 0 && i < MESSAGES_MOST; i++) {
		struct md_carry_message message;
		struct md_error why = {0};
		enum md_status status = MD_OK;
		bool there = false;
		int passed = -1;
		if (md_carry_wire_receive(lender->fd, &message, &passed, &there, &why) != MD_OK)
			leave(s, number, false, why.message);
		if (!there)
			return MD_OK;
		*moved = true;
		lender->heard_at = md_clock_ns();
		bool good = understand(s, number, &message, passed, &status, err);
		if (passed >= 0)
			close(passed);
		MD_FORWARD(status);
		if (!good)
			leave(s, number, false, "it has sent what makes no sense");
	}
	return MD_OK;
}

static bool is_silent(const struct md_swap_lender *lender)
{
	return lender->fd >= 0 && (lender->way == MD_LENDER_ASKED || lender->asked) &&
	       md_clock_ns() - lender->heard_at > SILENCE_NS;
}

enum md_status md_swap_share_hear_lenders(struct md_swap_share *s, bool *moved, struct md_error *err)
{
	md_swap_lenders_accept(&s->carry->lenders);
	for (uint8_t i = 0; i < s->carry->lenders.count; i++) {
		MD_FORWARD(hear(s, i, moved, err));
		if (is_silent(lender_at(s, i)))
			leave(s, i, false, "it does not go on");
		if (lender_at(s, i)->way == MD_LENDER_OFFERS)
			MD_FORWARD(ask(s, i, err));
	}
	return MD_OK;
}

/* ---- what lenders are asked for ---- */

/* *taken is false if the lender does not read now. */
static void have_pushed(struct md_swap_share *s, struct md_share_chunk *chunk, struct md_carry_message *message,
			bool *taken)
{
	struct md_swap_lender *lender = lender_at(s, chunk->lender);
	unsigned room = md_swap_stage_room_of(chunk->slot);
	struct md_error why = {0};
	message->kind = MD_CARRY_TAKE;
	message->part = room;
	enum md_status status = tell_room(s, lender, room, &why);
	if (status == MD_OK)
		status = md_carry_wire_send(lender->fd, message, -1, &why);
	*taken = status == MD_OK;
	if (status == MD_OK && !lender->asked++)
		lender->heard_at = md_clock_ns();
	if (status == MD_OK)
		md_swap_share_note_lent(s, chunk, true, true);
	else if (status != MD_ERR_BUSY)
		leave(s, chunk->lender, false, why.message);
}

static enum md_status have_carried(struct md_swap_share *s, struct md_share_chunk *chunk,
				   struct md_carry_message *message, struct md_error *err)
{
	struct md_error lost = {0};
	enum md_status status = MD_OK;
	if (chunk->staged)
		status = tell_carrier(s, md_swap_stage_room_of(chunk->slot), &lost);
	else if (!md_swap_share_lend_part(s, chunk->part, &status, &lost))
		return MD_OK;
	if (chunk->staged)
		message->part = md_swap_stage_part(s, chunk->slot);
	if (status == MD_OK)
		status = md_swap_carry_take(s->carry, message, &lost);
	if (status != MD_OK)
		return md_swap_share_give_up(s, NULL, false, err);
	md_swap_share_note_lent(s, chunk, true, false);
	return MD_OK;
}

/* *taken is false if there is no room for it now. */
static enum md_status take(struct md_swap_share *s, size_t index, bool *taken, struct md_error *err)
{
	struct md_share_chunk *chunk = &s->chunks[index];
	struct md_carry_message message = {.part = (uint32_t)chunk->part, .chunk = (uint32_t)index};
	bool pushes = lender_at(s, chunk->lender)->way == MD_LENDER_PUSHES;
	struct md_swap_link *link;
	MD_FORWARD(md_swap_links_get(s->links, s->contents->parts[chunk->part].range.context, &link, err));
	enum md_share_where where = md_swap_stage_find(s, link->context, &chunk->slot);
	*taken = where != MD_SHARE_NOWHERE;
	chunk->staged = where == MD_SHARE_STAGED_THERE;
	if (where == MD_SHARE_TO_PLACE &&
	    pushes) { /* of another context than the rooms: lenders write into these alone */
		chunk->lender = MD_SHARE_NO_LENDER;
		s->front = 0;
		return MD_OK;
	}
	if (!*taken)
		return MD_OK;
	md_swap_offers_fill(s, chunk, md_swap_stage_offset(&s->stage, chunk->slot), &message);
	MD_FORWARD(md_swap_share_zero(s, chunk, link, err));
	if (!pushes)
		return have_carried(s, chunk, &message, err);
	have_pushed(s, chunk, &message, taken);
	return MD_OK;
}

enum md_status md_swap_share_feed_takes(struct md_swap_share *s, struct md_error *err)
{
	size_t next;
	bool taken = true;
	while (taken && s->taken < s->most_taken && (next = md_swap_offers_next(s, MD_SHARE_NO_LENDER)) < s->count)
		MD_FORWARD(take(s, next, &taken, err));
	return MD_OK;
}

void md_swap_share_note_stale(struct md_swap_share *s, struct md_carry_message *stale)
{
	const struct md_swap_lender *lender = lender_at(s, (uint8_t)stale->link);
	struct md_error none = {0};
	stale->kind = MD_CARRY_STALE;
	if (lender->way == MD_LENDER_CARRIED)
		md_swap_carry_stale(s->carry, stale);
	else if (lender->fd >= 0)
		md_carry_wire_send(lender->fd, stale, -1, &none);
}

void md_swap_share_wait(const struct md_swap_share *s, unsigned us)
{
	const struct md_swap_lenders *lenders = &s->carry->lenders;
	struct pollfd ready[2 + MD_CARRY_LENDERS] = {{.fd = s->carry->carrier.fd, .events = POLLIN},
						     {.fd = lenders->coming, .events = POLLIN}};
	struct timespec most = {.tv_nsec = (long)us * 1000};
	for (unsigned i = 0; i < lenders->count; i++)
		ready[2 + i] = (struct pollfd){.fd = lenders->list[i].fd, .events = POLLIN};
	ppoll(ready, 2 + lenders->count, &most, NULL);
}
