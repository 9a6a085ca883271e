/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashes what has come from engines on other GPUs, and compares. A lender's engine runs meanwhile, so nothing that it has
 * said is believed. A thread of its own waits for the hashes, so that more is asked for and goes over the own link.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "swap/contents_share.h"
#include "swap/pulse.h"

#define CHECK_BYTES ((uint64_t)512 << 20) /* that are hashed at a time, while more is coming */

/* ---- of the thread ---- */

/* Links belong to the exchange's thread, so this one has a copy. */
static enum md_status hash(struct md_share_check *check)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	size_t failed = 0;
	const struct md_cuda *driver = check->driver;
	MD_FORWARD(md_cuda_call_in(driver, &check->err, cuCtxSetCurrent, check->link.context));
	driver->cuThreadExchangeStreamCaptureMode(&mode);
	return md_device_hash(&check->link.hasher, check->link.aside, check->hashes, check->count, &failed,
			      &check->err);
}

static void *run(void *argument)
{
	struct md_share_check *check = argument;
	check->status = hash(check);
	check->ended = md_clock_ns();
	atomic_store(&check->done, true);
	return NULL;
}

/* ---- beginning ---- */

static bool is_of(const struct md_swap_share *s, const struct md_share_chunk *chunk, CUcontext context)
{
	return chunk->state == MD_SHARE_UNCHECKED && s->contents->parts[chunk->part].range.context == context;
}

/* All chunks in one context. */
static enum md_status gather(struct md_swap_share *s, CUcontext context, struct md_error *err)
{
	struct md_share_check *check = &s->check;
	size_t count = 0;
	for (size_t i = 0; i < s->count; i++)
		count += is_of(s, &s->chunks[i], context) ? s->chunks[i].count : 0;
	check->hashes = calloc(count + 1, sizeof(*check->hashes));
	if (!check->hashes)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the hashes of %zu blocks", count);
	for (size_t i = 0; i < s->count; i++) {
		struct md_share_chunk *chunk = &s->chunks[i];
		if (!is_of(s, chunk, context))
			continue;
		for (size_t b = chunk->first; b < chunk->first + chunk->count; b++)
			if (md_swap_share_is_copied(s, b))
				check->hashes[check->count++] = s->contents->hashes[b];
		chunk->state = MD_SHARE_CHECKING;
		s->unchecked -= chunk->bytes;
	}
	return MD_OK;
}

static enum md_status begin(struct md_swap_share *s, CUcontext context, struct md_error *err)
{
	struct md_swap_link *link;
	MD_FORWARD(md_swap_links_get(s->links, context, &link, err));
	s->check = (struct md_share_check){.driver = s->links->driver, .link = *link, .began = md_clock_ns()};
	MD_FORWARD(gather(s, context, err));
	s->check.runs = !md_thread_start(&s->check.thread, run, &s->check);
	if (!s->check.runs)
		run(&s->check);
	return MD_OK;
}

/* ---- the result ---- */

static void note_stale(const struct md_swap_share *s, struct md_carry_message *stale, size_t block)
{
	const struct md_share_place *place = md_swap_offers_place(s, block);
	if (place && stale->count < MD_CARRY_CHUNK_BLOCKS)
		stale->takes[stale->count++] =
		    (struct md_carry_take){.part = place->block.part, .block = place->block.block};
}

/* hashes: of the blocks of the chunk that were copied. Returns how many there are. */
static size_t judge(struct md_swap_share *s, struct md_share_chunk *chunk, const struct md_hash_range *hashes)
{
	size_t count = 0;
	struct md_carry_message stale = {.link = chunk->lender};
	for (size_t i = chunk->first; i < chunk->first + chunk->count; i++) {
		if (!md_swap_share_is_copied(s, i) ||
		    md_hash_equal(&hashes[count++].hash, &s->contents->hashes[i].hash))
			continue;
		chunk->differs = true;
		note_stale(s, &stale, i);
	}
	if (chunk->differs) {
		md_swap_share_note_stale(s, &stale);
		s->report->differed += chunk->bytes;
		md_swap_share_free(s, chunk);
		return count;
	}
	chunk->state = MD_SHARE_DONE;
	s->left--;
	return count;
}

/* The order of chunks is that in which their hashes were gathered. */
static enum md_status end(struct md_swap_share *s, struct md_error *err)
{
	struct md_share_check *check = &s->check;
	size_t at = 0;
	if (check->runs)
		pthread_join(check->thread, NULL);
	s->times.ns_check += check->ended - check->began;
	for (size_t i = 0; i < s->count && check->status == MD_OK; i++)
		if (s->chunks[i].state == MD_SHARE_CHECKING)
			at += judge(s, &s->chunks[i], check->hashes + at);
	free(check->hashes);
	check->hashes = NULL;
	md_swap_pulse_step();
	return check->status == MD_OK ? MD_OK : md_error_set(err, check->status, "%s", check->err.message);
}

bool md_swap_check_works(const struct md_swap_share *s)
{
	return s->check.hashes != NULL;
}

enum md_status md_swap_check_await(struct md_swap_share *s, struct md_error *err)
{
	return md_swap_check_works(s) ? end(s, err) : MD_OK;
}

enum md_status md_swap_check_step(struct md_swap_share *s, bool *moved, struct md_error *err)
{
	if (md_swap_check_works(s) && atomic_load(&s->check.done)) {
		*moved = true;
		MD_FORWARD(end(s, err));
	}
	if (md_swap_check_works(s) || !s->unchecked ||
	    (s->unchecked < CHECK_BYTES && (s->taken || md_swap_stage_works(s))))
		return MD_OK;
	*moved = true;
	for (size_t i = 0; i < s->count; i++)
		if (s->chunks[i].state == MD_SHARE_UNCHECKED)
			return begin(s, s->contents->parts[s->chunks[i].part].range.context, err);
	return MD_OK;
}
