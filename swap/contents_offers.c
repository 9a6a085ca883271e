/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks that engines on other GPUs have: found by their hashes in what lenders offer. What has come from there is checked
 * by contents_check.c.
 */
#define MD_LOG_DOMAIN "swap"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "swap/contents_share.h"

/* ---- places ---- */

static uint64_t key_of(const struct md_hash *hash)
{
	uint64_t key;
	memcpy(&key, hash->bytes, sizeof(key));
	return key;
}

const struct md_share_place *md_swap_offers_place(const struct md_swap_share *s, size_t block)
{
	const struct md_hash *hash = &s->contents->hashes[block].hash;
	uint64_t index = 0;
	if (!md_map_get(&s->offers.places, key_of(hash), &index) || !index || index > s->offers.count)
		return NULL;
	const struct md_share_place *place = &s->offers.list[index - 1];
	return md_hash_equal(&place->block.hash, hash) && !s->offers.lost[place->lender] ? place : NULL;
}

bool md_swap_offers_have(const struct md_swap_share *s, const struct md_share_chunk *chunk)
{
	return chunk->lender != MD_SHARE_NO_LENDER && !chunk->differs && !s->offers.lost[chunk->lender] &&
	       s->lendable[chunk->part];
}

/* Blocks of zeros belong to any lender. */
static uint8_t lender_of(const struct md_swap_share *s, size_t block, uint8_t before)
{
	const struct md_share_place *place = md_swap_share_is_copied(s, block) ? md_swap_offers_place(s, block) : NULL;
	if (!md_swap_share_is_copied(s, block))
		return before;
	return place ? place->lender : MD_SHARE_NO_LENDER;
}

/* ---- an offer ---- */

/* The first lender of a block stays the one, as long as it is there: chunks count on it. */
static bool add_place(struct md_share_offers *offers, const struct md_carry_offered *block, uint8_t lender)
{
	uint64_t known = 0;
	if (md_map_get(&offers->places, key_of(&block->hash), &known) && known && known <= offers->count &&
	    !offers->lost[offers->list[known - 1].lender])
		return true;
	if (!md_map_put(&offers->places, key_of(&block->hash), offers->count + 1))
		return false;
	offers->list[offers->count++] = (struct md_share_place){*block, lender};
	return true;
}

/* The file is another process's: it is read, and not mapped, so that it may shrink. False: it was of no use. */
static bool read_offer(struct md_share_offers *offers, int file, uint64_t bytes, uint8_t lender)
{
	size_t count = bytes / sizeof(struct md_carry_offered);
	if (bytes % sizeof(struct md_carry_offered) || count > MD_CARRY_OFFERED_MOST - offers->count)
		return false;
	MD_AUTO_FREE struct md_carry_offered *blocks = calloc(count + 1, sizeof(*blocks));
	struct md_share_place *list = md_array_resize(offers->list, offers->count + count + 1, sizeof(*list));
	if (list)
		offers->list = list;
	if (!blocks || !list || pread(file, blocks, bytes, 0) != (ssize_t)bytes)
		return false;
	for (size_t i = 0; i < count; i++)
		if (!add_place(offers, &blocks[i], lender))
			return false;
	return true;
}

/* The rest of the chunk becomes one of its own, at the end of the list, which has room for one of each block. */
static void cut(struct md_swap_share *s, size_t index, size_t count)
{
	struct md_share_chunk *chunk = &s->chunks[index], *rest = &s->chunks[s->count++];
	*rest = *chunk;
	rest->first += count;
	rest->count -= count;
	rest->bytes = md_swap_share_bytes(s, rest->first, rest->count);
	chunk->count = count;
	chunk->bytes = md_swap_share_bytes(s, chunk->first, chunk->count);
	s->left++;
}

static void divide(struct md_swap_share *s, size_t index)
{
	struct md_share_chunk *chunk = &s->chunks[index];
	uint8_t lender = MD_SHARE_NO_LENDER;
	bool known = false;
	size_t end = chunk->first + chunk->count;
	for (size_t i = chunk->first; i < end; i++) {
		uint8_t next = lender_of(s, i, lender);
		if (md_swap_share_is_copied(s, i) && known && next != lender) {
			cut(s, index, i - chunk->first);
			break;
		}
		known = known || md_swap_share_is_copied(s, i);
		lender = next;
	}
	chunk->lender = lender;
}

void md_swap_offers_add(struct md_swap_share *s, uint8_t lender, int file, uint64_t bytes)
{
	if (!s->times.offered)
		s->times.offered = md_clock_ns();
	if (read_offer(&s->offers, file, bytes, lender))
		s->offers.lenders++;
	for (size_t i = 0; i < s->count; i++) { /* what was cut off comes later in this loop */
		bool free = s->chunks[i].state == MD_SHARE_FREE;
		s->offers.in_time = s->offers.in_time || free;
		if (free && !md_swap_offers_have(s, &s->chunks[i]))
			divide(s, i);
	}
	s->front = 0;
	s->back = s->count;
}

/* ---- who copies what ---- */

static bool is_wanted(const struct md_swap_share *s, const struct md_share_chunk *chunk, uint8_t lender)
{
	return chunk->state == MD_SHARE_FREE && chunk->bytes && md_swap_offers_have(s, chunk) &&
	       (lender == MD_SHARE_NO_LENDER ? md_swap_share_gives(s, chunk->lender) : chunk->lender == lender);
}

size_t md_swap_offers_next(const struct md_swap_share *s, uint8_t lender)
{
	size_t i = s->offers.lenders ? s->count : 0;
	while (i && !is_wanted(s, &s->chunks[i - 1], lender))
		i--;
	return i ? i - 1 : s->count;
}

/* Whether one that has offered something gives it at once. */
static bool any_gives(const struct md_swap_share *s)
{
	bool any = false;
	for (uint8_t i = 0; i < s->carry->lenders.count; i++)
		any = any || md_swap_share_gives(s, i);
	return any;
}

size_t md_swap_offers_for_own(const struct md_swap_share *s)
{
	double own = md_swap_share_own_speed(s), takes = md_swap_share_speed(&s->takes);
	uint64_t left = s->takes.outstanding;
	size_t first = s->count;
	for (size_t i = s->count; i; i--) {
		if (s->chunks[i - 1].state != MD_SHARE_FREE)
			continue;
		first = i - 1;
		left += s->chunks[i - 1].bytes;
	}
	if (first == s->count || !any_gives(s))
		return first;
	if (own <= 0 || takes <= 0)
		return s->own_busy ? s->count : first;
	bool sooner = (double)(s->own_busy + s->chunks[first].bytes) / own <= (double)left / takes;
	return sooner ? first : s->count;
}

void md_swap_offers_fill(const struct md_swap_share *s, const struct md_share_chunk *chunk, uint64_t offset,
			 struct md_carry_message *take)
{
	const struct md_swap_part *part = &s->contents->parts[chunk->part];
	take->link = chunk->lender;
	for (size_t i = chunk->first; i < chunk->first + chunk->count && take->count < MD_CARRY_CHUNK_BLOCKS; i++) {
		const struct md_share_place *place = md_swap_share_is_copied(s, i) ? md_swap_offers_place(s, i) : NULL;
		uint64_t at = chunk->staged ? offset + take->count * MD_SWAP_BLOCK : (i - part->first) * MD_SWAP_BLOCK;
		if (place)
			take->takes[take->count++] = (struct md_carry_take){at, place->block.part, place->block.block};
	}
}

/* ---- the end ---- */

static bool any_is(const struct md_swap_share *s, enum md_swap_lender_way way)
{
	bool any = false;
	for (unsigned i = 0; i < s->carry->lenders.count; i++)
		any = any || s->carry->lenders.list[i].way == way;
	return any;
}

static void explain(const struct md_swap_share *s, char *text, size_t size)
{
	bool lost = s->offers.refused || any_is(s, MD_LENDER_ASKED);
	for (size_t i = 0; i < MD_CARRY_LENDERS; i++)
		lost = lost || s->offers.lost[i];
	if (*s->carry->why)
		snprintf(text, size, "%s", s->carry->why);
	else if (!s->offers.lenders)
		snprintf(text, size, "no engine on a GPU that reaches this one has offered its memory in time");
	else if (any_is(s, MD_LENDER_CARRIED) && !s->carry->ready)
		snprintf(text, size, "the carrier was not ready in time; the next time it will be");
	else if (!s->offers.in_time)
		snprintf(text, size, "the other engine's offer came when all was under way from the pool");
	else if (s->report->differed)
		snprintf(text, size, "blocks of other engines had other bytes than these engines knew of");
	else if (lost)
		snprintf(text, size, "another engine has not handed its memory over");
	else
		snprintf(text, size, "no engine on another GPU has blocks of this one");
}

/* 0: never. */
static uint64_t since(const struct md_swap_share *s, uint64_t time)
{
	return time ? time - s->began : 0;
}

static double ms_since(const struct md_swap_share *s, uint64_t time)
{
	return (double)since(s, time) / 1e6;
}

static void report_times(const struct md_swap_share *s)
{
	uint64_t *times = s->report->peer_times;
	times[MD_PEER_READY] = since(s, s->times.ready);
	times[MD_PEER_OFFERED] = since(s, s->times.offered);
	times[MD_PEER_ASKED] = since(s, s->times.asked);
	times[MD_PEER_CAME] = since(s, s->times.came);
	times[MD_PEER_CAME_LAST] = since(s, s->times.came_last);
	times[MD_PEER_OWN_LAST] = since(s, s->times.own_last);
	times[MD_PEER_CHECK] = s->times.ns_check;
	times[MD_PEER_LEND] = s->times.ns_lend;
}

/* Where the time goes. */
static void say_times(const struct md_swap_share *s)
{
	md_debug("from other engines, ms: carrier ready %.1f, offered %.1f, asked for %.1f, first came %.1f, last came "
		 "%.1f (%" PRIu64 " bytes); by the own link until %.1f (%" PRIu64 " bytes); hashed in %.1f",
		 ms_since(s, s->times.ready), ms_since(s, s->times.offered), ms_since(s, s->times.asked),
		 ms_since(s, s->times.came), ms_since(s, s->times.came_last), s->takes.done,
		 ms_since(s, s->times.own_last), s->own_bytes, (double)s->times.ns_check / 1e6);
}

void md_swap_offers_report(const struct md_swap_share *s)
{
	struct md_swap_report *report = s->report;
	uint64_t pushed = 0;
	for (size_t i = 0; i < s->count; i++) {
		report->by_peers += s->chunks[i].taken ? s->chunks[i].bytes : 0;
		pushed += s->chunks[i].pushed ? s->chunks[i].bytes : 0;
	}
	if (s->carry->carrier.peers && !report->by_peers)
		explain(s, report->peers_because, sizeof(report->peers_because));
	if (s->carry->carrier.peers) {
		report_times(s);
		report->peer_times[MD_PEER_PUSHED] = pushed;
		say_times(s);
	}
	if (report->differed)
		md_debug("%" PRIu64 " bytes of other engines differed, and came from the pool", report->differed);
}

void md_swap_offers_finish(struct md_share_offers *offers)
{
	md_map_finish(&offers->places);
	free(offers->list);
	offers->list = NULL;
}
