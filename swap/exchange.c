/* SPDX-License-Identifier: Apache-2.0 */
/* Out and in, step by step, and back again when a step fails. */
#define MD_LOG_DOMAIN "swap"

#include "swap/exchange.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/cleanup.h"
#include "driver/device_hash.h"
#include "swap/arrival.h"
#include "swap/book.h"
#include "swap/contents.h"
#include "swap/contents_stage.h"
#include "swap/elsewhere.h"
#include "swap/pool_spill.h"
#include "swap/pulse.h"
#include "swap/reach.h"

#define SLOW_NS 20000000u       /* of an answer of medusa-backbone; others take well under a millisecond */
#define SLOW_MOST_NS 500000000u /* of all slow ones of an in */
#define LOOK_STEP ((uint64_t)64 << 20)
#define LOOK_AT_IN ((uint64_t)256 << 20) /* while the engine waits */

struct md_swap_exchange {
	const struct md_swap_below *below;
	struct md_swap_pool *pool;
	struct md_swap_links links;
	struct md_swap_contents contents; /* while the memory is out */
	struct md_hash zeros;             /* of a block of zeros */
	struct md_swap_leads leads;
	size_t looked; /* blocks of the contents that have been looked through for addresses */
	uint8_t *room; /* of a block that is looked through while it may be moved; NULL: not yet */
	bool out, arriving;
	bool fills;               /* others are to have some of what comes in */
	uint64_t slow_ns;         /* that medusa-backbone took for slow answers in this in */
	bool distrust;            /* what was given held something else: nothing is merged any more */
	struct md_swap_book book; /* while the memory is in */
};

static struct md_hash hash_of_zeros(void)
{
	static const uint8_t zeros[MD_SWAP_BLOCK]; /* no page of it is ever written */
	return md_device_hash_bytes(zeros, sizeof(zeros));
}

enum md_status md_swap_exchange_create(const struct md_swap_below *below, struct md_swap_pool *pool,
				       struct md_swap_exchange **exchange, struct md_error *err)
{
	struct md_swap_exchange *made = calloc(1, sizeof(*made));
	if (!made)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the state of an exchange");
	enum md_status status = md_swap_links_init(&made->links, below->driver, pool, err);
	if (status != MD_OK) {
		free(made);
		return status;
	}
	made->below = below;
	made->pool = pool;
	made->zeros = hash_of_zeros();
	*exchange = made;
	return MD_OK;
}

void md_swap_exchange_destroy(struct md_swap_exchange *exchange)
{
	if (!exchange)
		return;
	md_swap_links_finish(&exchange->links);
	md_swap_contents_finish(&exchange->contents, exchange->pool);
	md_swap_leads_finish(&exchange->leads);
	md_swap_book_clear(&exchange->book);
	free(exchange->room);
	free(exchange);
}

struct md_swap_book *md_swap_exchange_book(struct md_swap_exchange *exchange)
{
	return &exchange->book;
}

bool md_swap_exchange_is_out(const struct md_swap_exchange *exchange)
{
	return exchange->out;
}

bool md_swap_exchange_is_arriving(const struct md_swap_exchange *exchange)
{
	return exchange->arriving;
}

bool md_swap_exchange_prepare(struct md_swap_exchange *exchange, CUcontext context, uint64_t bytes)
{
	struct md_swap_links *links = &exchange->links;
	uint64_t chunk_bytes = MD_SWAP_CHUNK * MD_SWAP_BLOCK;
	uint32_t populated = md_swap_pool_populated(exchange->pool) / MD_SWAP_CHUNK, chunk = 0;
	struct md_swap_link *link;
	struct md_error err = {0};
	if (exchange->out || md_swap_links_get(links, context, &link, &err) != MD_OK)
		return false;
	if (links->cannot_lock || links->locked_count == links->chunks || links->locked_count * chunk_bytes >= bytes)
		return false;
	while (chunk < populated && links->locked[chunk])
		chunk++;
	if (chunk == populated)
		return false;
	md_swap_links_lock(links, link, chunk * MD_SWAP_CHUNK);
	return true;
}

/* ---- looking for addresses ---- */

static bool look(struct md_swap_exchange *x, uint64_t bytes)
{
	const struct md_swap_contents *contents = &x->contents;
	uint64_t looked_at = 0;
	x->room = x->room ? x->room : malloc(MD_SWAP_BLOCK);
	if (!x->room)
		return false;
	for (; x->looked < contents->block_count && looked_at < bytes; x->looked++) {
		const struct md_hash_range *at = &contents->hashes[x->looked];
		uint32_t block = contents->blocks[x->looked];
		const void *data;
		if (block >= MD_SWAP_ZERO || md_swap_is_spilled(block) || md_swap_leads_find(&x->leads, &at->hash))
			continue;
		data = md_swap_pool_peek(x->pool, &at->hash, block, x->room);
		if (data && !md_swap_leads_scan(&x->leads, &at->hash, data, at->size))
			return false;
		looked_at += at->size;
	}
	return x->looked < contents->block_count;
}

/* Words that point to memory that exists now are addresses. */
static void note_regions(struct md_swap_exchange *x)
{
	for (size_t i = 0; i < x->contents.part_count; i++)
		md_swap_leads_add_region(&x->leads, x->contents.parts[i].range.address,
					 x->contents.parts[i].range.bytes);
	pthread_mutex_lock(&md_swap_memory_lock);
	md_swap_elsewhere_regions(&x->leads);
	pthread_mutex_unlock(&md_swap_memory_lock);
	x->looked = 0;
}

bool md_swap_exchange_look(struct md_swap_exchange *exchange)
{
	return exchange->out && md_swap_prepares_overlap() && look(exchange, LOOK_STEP);
}

enum md_status md_swap_exchange_detach(struct md_swap_exchange *exchange, struct md_error *err)
{
	return md_swap_links_unlock(&exchange->links, err);
}

/* ---- in ---- */

/* Unmaps memory that was mapped and has not got its bytes. */
static void retreat(struct md_swap_exchange *x)
{
	struct md_error err = {0};
	md_swap_contents_settle(&x->contents, &x->links);
	for (size_t i = 0; i < x->contents.part_count; i++) {
		struct md_swap_part *part = &x->contents.parts[i];
		if (part->place != MD_SWAP_EMPTY && part->place != MD_SWAP_GIVEN)
			continue;
		if (x->below->unmap(&part->range, &err) == MD_OK)
			part->place = MD_SWAP_AWAY;
		else
			md_warn("memory that was mapped for a swap cannot be unmapped again: %s", err.message);
	}
}

/* Sets an error that says how much memory is missing on a device. */
static enum md_status explain(struct md_swap_exchange *x, const struct md_swap_range *range, const struct md_error *why,
			      struct md_error *err)
{
	uint64_t wanted = 0;
	size_t free_bytes = 0, total = 0;
	struct md_swap_link *link;
	struct md_error none;
	for (size_t i = 0; i < x->contents.part_count; i++)
		if (x->contents.parts[i].place == MD_SWAP_AWAY && x->contents.parts[i].range.device == range->device)
			wanted += x->contents.parts[i].range.bytes;
	if (why->status != MD_ERR_DRIVER_MEMORY ||
	    md_swap_links_get(&x->links, range->context, &link, &none) != MD_OK ||
	    x->below->driver->cuMemGetInfo_v2(&free_bytes, &total))
		return md_error_set(err, why->status, "%s", why->message);
	uint64_t missing = wanted > free_bytes ? wanted - free_bytes : 0;
	if (!missing)
		return md_error_set(err, why->status,
				    "device %d has no room for %" PRIu64
				    " bytes that are to come back, though %zu are free: "
				    "try again (%s)",
				    range->device, wanted, free_bytes, why->message);
	return md_error_set(err, why->status,
			    "device %d has %zu bytes free, and %" PRIu64 " are to come back: free %" PRIu64
			    " on it and try again (%s)",
			    range->device, free_bytes, wanted, missing, why->message);
}

/* What a part holds, wherever it is. False: out of memory. */
static bool hash_part(const struct md_swap_contents *contents, const struct md_swap_part *part, struct md_hash *hash)
{
	MD_AUTO_FREE struct md_hash *all = calloc(part->count, sizeof(*all));
	for (size_t i = 0; all && i < part->count; i++)
		all[i] = contents->hashes[part->first + i].hash;
	if (all)
		*hash = md_hash_bytes(all, part->count * sizeof(*all));
	return all != NULL;
}

/* The engine waits meanwhile, so slow answers are few, however many allocations there are. */
static bool is_too_slow(struct md_swap_exchange *x, uint64_t began)
{
	uint64_t took = md_clock_ns() - began;
	if (took >= SLOW_NS)
		x->slow_ns += took;
	if (x->slow_ns < SLOW_MOST_NS)
		return false;
	md_info("medusa-backbone answers slowly, and is not asked any more for this in");
	return true;
}

/* Whether it is mapped now. Only what is to come in by these contents counts, not what was noted of it at some time. */
static bool merge(struct md_swap_exchange *x, struct md_swap_part *part, bool *merging)
{
	bool hopeless = false;
	struct md_hash holds;
	if (!*merging || !part->count || !hash_part(&x->contents, part, &holds))
		return false;
	uint64_t began = md_clock_ns();
	enum md_swap_merged merged = x->below->merge(&part->range, &holds, &hopeless);
	*merging = !hopeless && !is_too_slow(x, began);
	x->fills |= merged == MD_SWAP_FILLS;
	part->place = merged == MD_SWAP_FILLS ? MD_SWAP_EMPTY : merged == MD_SWAP_READS ? MD_SWAP_GIVEN : MD_SWAP_AWAY;
	return merged != MD_SWAP_NOT_MERGED;
}

/* The engine waits, so a broker that does not answer is asked once. */
static void commit_all(struct md_swap_exchange *x)
{
	bool answers = true;
	for (size_t i = 0; i < x->contents.part_count && answers; i++) {
		uint64_t began = md_clock_ns();
		if (x->contents.parts[i].place == MD_SWAP_EMPTY)
			answers = x->below->commit(&x->contents.parts[i].range) && !is_too_slow(x, began);
	}
}

static enum md_status map_all(struct md_swap_exchange *x, bool merging, struct md_swap_report *report,
			      struct md_error *err)
{
	for (size_t i = 0; i < x->contents.part_count; i++) {
		struct md_swap_part *part = &x->contents.parts[i];
		struct md_error why = {0};
		if (part->place != MD_SWAP_AWAY)
			continue;
		if (!merge(x, part, &merging)) {
			if (x->below->map(&part->range, &why) != MD_OK) {
				retreat(x);
				return explain(x, &part->range, &why, err);
			}
			part->place = MD_SWAP_EMPTY;
		}
		md_swap_pulse_step();
		report->bytes += part->range.bytes;
	}
	return MD_OK;
}

static enum md_status copy_all(struct md_swap_exchange *x, struct md_swap_carry *carry, struct md_swap_report *report,
			       struct md_error *err)
{
	if (carry->wanted)
		return md_swap_contents_share(&x->contents, x->below, &x->links, carry, report, err);
	return md_swap_contents_copy(&x->contents, &x->links, MD_SWAP_TO_DEVICE, report, err);
}

static enum md_status fill_all(struct md_swap_exchange *x, bool verify, struct md_swap_carry *carry,
			       struct md_swap_report *report, struct md_error *err)
{
	uint64_t began = md_clock_ns();
	enum md_status status = copy_all(x, carry, report, err);
	report->ns_copy = md_clock_ns() - began - report->ns_lock;
	if (status == MD_OK && verify) {
		began = md_clock_ns();
		status = md_swap_contents_verify(&x->contents, &x->links, err);
		report->ns_hash = md_clock_ns() - began;
	}
	if (status != MD_OK) {
		x->distrust |= status == MD_ERR_CORRUPT;
		retreat(x);
	}
	return status;
}

static enum md_status carry(struct md_swap_exchange *x, bool hurry, struct md_error *err)
{
	bool over = false;
	if (!x->arriving)
		return MD_OK;
	MD_FORWARD(md_swap_arrival_carry(hurry, &over, err));
	if (over) {
		x->arriving = false;
		md_swap_book_write(&x->book, &x->contents);
		md_swap_contents_finish(&x->contents, x->pool);
	}
	return MD_OK;
}

/* Opens the gate before the bytes are there. */
static enum md_status let_arrive(struct md_swap_exchange *x, struct md_swap_report *report, struct md_error *err)
{
	struct md_swap_arrival_counts counts;
	struct md_error later; /* the next step tries again */
	enum md_status status = md_swap_contents_lock(&x->contents, &x->links, report, err);
	if (status == MD_OK)
		status = md_swap_arrival_begin(&x->contents, &x->links, &x->leads, err);
	if (status != MD_OK) {
		retreat(x);
		return status;
	}
	md_swap_arrival_count(&counts);
	report->coming = counts.left;
	report->resident = x->contents.resident;
	x->out = false;
	x->arriving = true;
	x->below->open_gate();
	carry(x, false, &later);
	return MD_OK;
}

/* Opens the gate when all is back. */
static enum md_status bring_back(struct md_swap_exchange *x, const struct md_swap_settings *settings,
				 struct md_swap_carry *carrying, struct md_swap_report *report, struct md_error *err)
{
	uint64_t began = md_clock_ns();
	if (settings->overlap && carrying->wanted)
		return md_error_set(err, MD_ERR_INVALID,
				    "neighbours and peers cannot fill memory while the engine uses it: ask for overlap "
				    "or for them, not for both");
	bool spilled = false;
	if (settings->overlap && settings->verify)
		return md_error_set(
		    err, MD_ERR_INVALID,
		    "memory cannot be verified while the engine uses it: ask for verify or for overlap, "
		    "not for both");
	MD_FORWARD(md_swap_contents_locate(&x->contents, x->pool, &spilled, err));
	if (spilled && carrying->wanted) {
		carrying->wanted = false;
		snprintf(carrying->why, sizeof(carrying->why), "part of the memory lies in the pool's spill file");
	}
	if (settings->overlap && !spilled)
		look(x, LOOK_AT_IN);
	bool merging = settings->merge && x->below->merge && !settings->overlap && !carrying->wanted && !x->distrust;
	x->fills = false;
	x->slow_ns = 0;
	MD_FORWARD(map_all(x, merging, report, err));
	report->ns_map = md_clock_ns() - began;
	if (settings->overlap && !spilled)
		return let_arrive(x, report, err);
	/* What others are to have is compared before they have it. */
	MD_FORWARD(fill_all(x, settings->verify || x->fills, carrying, report, err));
	if (x->fills)
		commit_all(x);
	report->resident = x->contents.resident;
	x->out = false;
	x->below->open_gate();
	md_swap_book_write(&x->book, &x->contents);
	md_swap_contents_finish(&x->contents, x->pool);
	return MD_OK;
}

enum md_status md_swap_in(struct md_swap_exchange *exchange, const struct md_swap_settings *settings,
			  struct md_swap_report *report, struct md_error *err)
{
	struct md_swap_report done = {0};
	struct md_swap_carry carrying;
	uint64_t began = md_clock_ns();
	if (!exchange->out)
		return md_error_set(err, MD_ERR_BUSY, "the engine's memory is in already");
	exchange->links.cannot_lock = false;
	md_swap_pool_work(exchange->pool);
	md_swap_carry_init(&carrying, settings->carrier);
	enum md_status status = bring_back(exchange, settings, &carrying, &done, err);
	if (status != MD_OK)
		md_swap_pool_rest(exchange->pool);
	done.ns_total = md_clock_ns() - began;
	md_swap_carry_finish(&carrying);
	md_swap_lenders_finish(&carrying.lenders, carrying.times);
	md_swap_stage_given_back();
	if (status != MD_OK)
		return status;
	for (size_t i = MD_PEER_COPIER; i < MD_PEER_TIMES; i++)
		done.peer_times[i] = carrying.times[i];
	if (carrying.carrier.neighbours)
		snprintf(done.because, sizeof(done.because), "%s", carrying.why);
	if (carrying.carrier.peers && !done.by_peers && !*done.peers_because)
		snprintf(done.peers_because, sizeof(done.peers_because), "%s", carrying.why);
	*report = done;
	return MD_OK;
}

/* ---- arriving ---- */

enum md_status md_swap_exchange_carry(struct md_swap_exchange *exchange, struct md_error *err)
{
	return carry(exchange, false, err);
}

enum md_status md_swap_exchange_settle(struct md_swap_exchange *exchange, uint64_t deadline_ns, struct md_error *err)
{
	uint64_t began = md_clock_ns();
	struct md_swap_arrival_counts counts;
	for (;;) {
		MD_FORWARD(carry(exchange, true, err));
		md_swap_pulse_step();
		if (!exchange->arriving)
			return MD_OK;
		md_swap_arrival_count(&counts);
		if (md_clock_ns() - began >= deadline_ns)
			return md_error_set(err, MD_ERR_TIMEOUT,
					    "%" PRIu64 " bytes of the engine's memory are still on their way in",
					    counts.left);
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	}
}

/* ---- out ---- */

/* Takes blocks that may be lost for blocks of zeros. */
static uint64_t discard(struct md_swap_exchange *x)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < x->contents.block_count; i++) {
		struct md_hash_range *block = &x->contents.hashes[i];
		if (block->size != MD_SWAP_BLOCK || !x->below->discardable(block->address, block->size))
			continue;
		block->hash = x->zeros;
		bytes += block->size;
	}
	return bytes;
}

static enum md_status save(struct md_swap_exchange *x, struct md_swap_report *report, struct md_error *err)
{
	uint64_t began = md_clock_ns(), hashed;
	MD_FORWARD(md_swap_contents_gather(x->below, &x->contents, err));
	MD_FORWARD(md_swap_contents_hash(&x->contents, &x->links, err));
	hashed = md_clock_ns();
	report->ns_hash = hashed - began;
	report->discarded = discard(x);
	MD_FORWARD(md_swap_contents_reserve(&x->contents, x->pool, &x->zeros, report, err));
	MD_FORWARD(md_swap_contents_copy(&x->contents, &x->links, MD_SWAP_TO_HOST, report, err));
	for (size_t i = 0; i < x->contents.block_count; i++)
		if (x->contents.fresh[i])
			md_swap_pool_filled(x->pool, x->contents.blocks[i]);
	report->ns_copy = md_clock_ns() - hashed - report->ns_lock;
	/* Discarded blocks were counted as zeros, beside blocks of zeros that are needed. */
	report->zero -= report->discarded;
	return MD_OK;
}

static enum md_status unmap_all(struct md_swap_exchange *x, struct md_swap_report *report, struct md_error *err)
{
	uint64_t began = md_clock_ns();
	for (size_t i = 0; i < x->contents.part_count; i++) {
		struct md_swap_part *part = &x->contents.parts[i];
		enum md_status status = x->below->unmap(&part->range, err);
		md_swap_pulse_step();
		if (status == MD_ERR_UNSUPPORTED && part->range.flags & MD_SWAP_MOVES) {
			x->contents.resident +=
			    part->range.bytes; /* nothing of it was copied, and it can be used where it is */
			continue;
		}
		MD_FORWARD(status);
		part->place = MD_SWAP_AWAY;
		report->bytes += part->range.bytes;
	}
	report->resident = x->contents.resident;
	report->ns_unmap = md_clock_ns() - began;
	return MD_OK;
}

static void note_all(struct md_swap_exchange *x)
{
	struct md_hash hash;
	for (size_t i = 0; i < x->contents.part_count && x->below->note; i++) {
		const struct md_swap_part *part = &x->contents.parts[i];
		if (part->count)
			x->below->note(&part->range, hash_part(&x->contents, part, &hash) ? &hash : NULL);
	}
}

/* Part of the memory is out, and the rest could not go: brings back the part that is out, if possible. */
static void turn_back(struct md_swap_exchange *x)
{
	const struct md_swap_settings settings = {0};
	struct md_swap_report report = {0};
	struct md_swap_carry none;
	struct md_error err = {0};
	x->out = true;
	md_swap_carry_init(&none, NULL);
	if (bring_back(x, &settings, &none, &report, &err) != MD_OK)
		md_warn("part of the engine's memory is out and does not come back: %s", err.message);
}

enum md_status md_swap_out(struct md_swap_exchange *exchange, const struct md_swap_settings *settings,
			   struct md_swap_report *report, struct md_error *err)
{
	struct md_swap_report done = {0};
	uint64_t began = md_clock_ns();
	if (exchange->out)
		return md_error_set(err, MD_ERR_BUSY, "the engine's memory is out already");
	MD_FORWARD(md_swap_exchange_settle(exchange, settings->deadline_ns, err));
	uint64_t spent = md_clock_ns() - began; /* the deadline is for both */
	MD_FORWARD(exchange->below->close_gate(spent < settings->deadline_ns ? settings->deadline_ns - spent : 0, err));
	md_swap_pulse_step();
	done.ns_quiesce = md_clock_ns() - began;
	exchange->links.cannot_lock = false;
	enum md_status status = save(exchange, &done, err);
	if (status != MD_OK) {
		md_swap_contents_settle(&exchange->contents, &exchange->links);
		md_swap_contents_finish(&exchange->contents, exchange->pool);
		exchange->below->open_gate();
		return status;
	}
	note_all(exchange); /* also if part of it cannot go: what went may come in by another call */
	status = unmap_all(exchange, &done, err);
	if (status != MD_OK) {
		turn_back(exchange);
		return status;
	}
	exchange->out = true;
	md_swap_book_clear(&exchange->book);
	note_regions(exchange);
	md_swap_pool_rest(exchange->pool);
	done.ns_total = md_clock_ns() - began;
	*report = done;
	return MD_OK;
}
