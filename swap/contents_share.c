/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings memory in over several links: chunks of it lie in one list, from which this GPU's own link takes the first ones and
 * the carrier, for links of neighbours, the last ones. Each takes the next when one is done, so a slow link gets less. Chunks
 * that an engine on another GPU has come from there (contents_offers.c).
 */
#define MD_LOG_DOMAIN "swap"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/setting.h"
#include "driver/process_checkpoint.h"
#include "swap/contents_share.h"
#include "swap/pulse.h"

#define CHUNKS_LEAST 32u         /* that small memory is divided into */
#define LENT_OF_LINK 4u          /* chunks that the carrier has at a time: its staging buffers, and one more */
#define SILENCE_NS 3000000000ull /* a carrier that has chunks and says nothing */
#define ROOM_NS 10000000000ull   /* for memory that a dying carrier still holds */
#define DEVICES 64

/* ---- the list ---- */

static int busiest_device(const struct md_swap_contents *contents)
{
	uint64_t bytes[DEVICES] = {0};
	int most = 0;
	for (size_t i = 0; i < contents->part_count; i++) {
		const struct md_swap_part *part = &contents->parts[i];
		if (part->place == MD_SWAP_EMPTY && part->count && part->range.device >= 0 &&
		    part->range.device < DEVICES)
			bytes[part->range.device] += part->range.bytes;
	}
	for (int device = 1; device < DEVICES; device++)
		most = bytes[device] > bytes[most] ? device : most;
	return most;
}

static bool is_shared(const struct md_swap_part *part, int device)
{
	return part->place == MD_SWAP_EMPTY && part->count && part->range.device == device;
}

uint64_t md_swap_share_bytes(const struct md_swap_share *s, size_t first, size_t count)
{
	uint64_t bytes = 0;
	for (size_t i = first; i < first + count; i++)
		bytes += s->contents->blocks[i] < MD_SWAP_ZERO ? s->contents->hashes[i].size : 0;
	return bytes;
}

static void divide(struct md_swap_share *s, size_t part, size_t blocks)
{
	const struct md_swap_part *from = &s->contents->parts[part];
	s->lendable[part] = s->below->lend && from->range.bytes >= MD_SWAP_LENT_LEAST;
	for (size_t at = 0; at < from->count; at += blocks) {
		struct md_share_chunk *chunk = &s->chunks[s->count++];
		*chunk = (struct md_share_chunk){.part = part,
						 .first = from->first + at,
						 .count = from->count - at < blocks ? from->count - at : blocks};
		chunk->bytes = md_swap_share_bytes(s, chunk->first, chunk->count);
		chunk->lender = MD_SHARE_NO_LENDER;
		s->free_bytes += chunk->bytes;
	}
}

static enum md_status make_list(struct md_swap_share *s, int device, struct md_error *err)
{
	const struct md_swap_contents *contents = s->contents;
	size_t blocks = 0;
	for (size_t i = 0; i < contents->part_count; i++)
		blocks += is_shared(&contents->parts[i], device) ? contents->parts[i].count : 0;
	size_t size = blocks / CHUNKS_LEAST;
	size = size < 1 ? 1 : size > MD_CARRY_CHUNK_BLOCKS ? MD_CARRY_CHUNK_BLOCKS : size;
	s->chunk_blocks = size;
	s->device = device;
	s->chunks = calloc(blocks + contents->part_count + 1, sizeof(*s->chunks)); /* offers divide them further */
	s->lendable = calloc(contents->part_count + 1, sizeof(*s->lendable));
	s->lent_part = calloc(contents->part_count + 1, sizeof(*s->lent_part));
	if (!s->chunks || !s->lendable || !s->lent_part)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a list of %zu blocks", blocks);
	for (size_t i = 0; i < contents->part_count; i++)
		if (is_shared(&contents->parts[i], device))
			divide(s, i, size);
	s->left = s->back = s->count;
	return MD_OK;
}

static void count_all(struct md_swap_share *s)
{
	for (size_t i = 0; i < s->count; i++) {
		const struct md_share_chunk *chunk = &s->chunks[i];
		s->report->copied += chunk->bytes;
		for (size_t b = chunk->first; b < chunk->first + chunk->count; b++)
			s->report->zero += s->contents->blocks[b] == MD_SWAP_ZERO ? s->contents->hashes[b].size : 0;
	}
}

/* ---- the own link ---- */

enum md_status md_swap_share_zero(struct md_swap_share *s, const struct md_share_chunk *chunk,
				  const struct md_swap_link *link, struct md_error *err)
{
	for (size_t i = chunk->first; i < chunk->first + chunk->count; i++)
		if (s->contents->blocks[i] == MD_SWAP_ZERO)
			MD_FORWARD(md_swap_link_zero(s->links, link, s->contents->hashes[i].address,
						     s->contents->hashes[i].size, err));
	return MD_OK;
}

static void lock_pages(struct md_swap_share *s, const struct md_share_chunk *chunk, const struct md_swap_link *link)
{
	uint64_t began = md_clock_ns();
	for (size_t i = chunk->first; i < chunk->first + chunk->count; i++)
		if (s->contents->blocks[i] < MD_SWAP_ZERO)
			md_swap_links_lock(s->links, link, s->contents->blocks[i]);
	s->report->ns_lock += md_clock_ns() - began;
}

/* All of a chunk goes over one stream, whose end is the chunk's. */
static enum md_status submit(struct md_swap_share *s, unsigned slot, size_t index, struct md_error *err)
{
	struct md_share_chunk *chunk = &s->chunks[index];
	struct md_swap_run run = {.links = s->links, .direction = MD_SWAP_TO_DEVICE};
	struct md_swap_link *link, lane;
	MD_FORWARD(md_swap_links_get(s->links, s->contents->parts[chunk->part].range.context, &link, err));
	lane = *link;
	for (unsigned i = 0; i < MD_SWAP_STREAMS; i++)
		lane.streams[i] = link->streams[slot];
	run.link = &lane;
	lock_pages(s, chunk, link);
	chunk->state = MD_SHARE_OWN;
	s->slots[slot].stream = link->streams[slot];
	s->slots[slot].chunk = index;
	s->slots[slot].busy = true;
	s->free_bytes -= chunk->bytes;
	s->own_busy += chunk->bytes;
	MD_FORWARD(md_swap_share_zero(s, chunk, &lane, err));
	for (size_t i = chunk->first; i < chunk->first + chunk->count; i++)
		if (s->contents->blocks[i] < MD_SWAP_ZERO)
			MD_FORWARD(md_swap_run_add(&run, s->contents->hashes[i].address, s->contents->blocks[i],
						   s->contents->hashes[i].size, err));
	return md_swap_run_end(&run, err);
}

static enum md_status reap(struct md_swap_share *s, bool *moved, struct md_error *err)
{
	for (unsigned i = 0; i < MD_SWAP_STREAMS; i++) {
		struct md_share_chunk *chunk = &s->chunks[s->slots[i].chunk];
		if (!s->slots[i].busy)
			continue;
		CUresult result = s->links->driver->cuStreamQuery(s->slots[i].stream);
		if (result == CUDA_ERROR_NOT_READY)
			continue;
		MD_FORWARD(md_cuda_status(result, "cuStreamQuery of copies", err));
		s->slots[i].busy = false;
		chunk->state = MD_SHARE_DONE;
		chunk->by = 0;
		s->own_busy -= chunk->bytes;
		s->own_bytes += chunk->bytes;
		s->times.own_last = md_clock_ns();
		s->left--;
		*moved = true;
		md_swap_pulse_step();
	}
	return MD_OK;
}

/* What no engine on another GPU is known to have. */
static bool is_for_links(const struct md_swap_share *s, const struct md_share_chunk *chunk)
{
	return chunk->state == MD_SHARE_FREE && !md_swap_offers_have(s, chunk);
}

static enum md_status feed_own(struct md_swap_share *s, struct md_error *err)
{
	for (unsigned i = 0; i < MD_SWAP_STREAMS; i++) {
		if (s->slots[i].busy)
			continue;
		while (s->front < s->count && !is_for_links(s, &s->chunks[s->front]))
			s->front++;
		size_t next = s->front < s->count ? s->front : md_swap_offers_for_own(s);
		if (next == s->count)
			return MD_OK;
		MD_FORWARD(submit(s, i, next, err));
	}
	return MD_OK;
}

static bool own_works(const struct md_swap_share *s)
{
	for (unsigned i = 0; i < MD_SWAP_STREAMS; i++)
		if (s->slots[i].busy)
			return true;
	return false;
}

static enum md_status wait_for_own(struct md_swap_share *s, struct md_error *err)
{
	bool moved;
	while (own_works(s)) {
		MD_FORWARD(reap(s, &moved, err));
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	}
	return MD_OK;
}

/* ---- giving the carrier up ---- */

/* New physical memory at the same addresses. A carrier that is dying may hold the old one for a moment. */
static enum md_status renew_part(struct md_swap_share *s, struct md_swap_part *part, struct md_error *err)
{
	uint64_t began = md_clock_ns();
	enum md_status status;
	MD_FORWARD(s->below->unmap(&part->range, err));
	part->place = MD_SWAP_AWAY;
	while ((status = s->below->map(&part->range, err)) == MD_ERR_DRIVER_MEMORY && md_clock_ns() - began < ROOM_NS) {
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
		md_swap_pulse_step();
	}
	if (status == MD_OK)
		part->place = MD_SWAP_EMPTY;
	return status;
}

/* The carrier may still write there, or has written there what nobody knows. */
static bool is_tainted(const struct md_swap_share *s, size_t part, bool liar)
{
	for (size_t i = 0; i < s->count; i++)
		if (s->chunks[i].part == part && !s->chunks[i].staged &&
		    (s->chunks[i].state == MD_SHARE_LENT || (liar && s->chunks[i].by)))
			return true;
	return liar && s->lent_part[part];
}

void md_swap_share_free(struct md_swap_share *s, struct md_share_chunk *chunk)
{
	s->left += chunk->state == MD_SHARE_DONE;
	s->free_bytes += chunk->state == MD_SHARE_FREE ? 0 : chunk->bytes;
	s->unchecked -= chunk->state == MD_SHARE_UNCHECKED ? chunk->bytes : 0;
	chunk->state = MD_SHARE_FREE;
	chunk->taken = chunk->staged = chunk->pushed = false;
	chunk->by = 0;
	s->front = 0;
	s->back = s->count;
}

/* What a lender is writing into a room gets to the new memory later; its zeros were set in the old one. */
static enum md_status redo_chunks(struct md_swap_share *s, size_t part, struct md_error *err)
{
	struct md_swap_link *link;
	MD_FORWARD(md_swap_links_get(s->links, s->contents->parts[part].range.context, &link, err));
	for (size_t i = 0; i < s->count; i++) {
		if (s->chunks[i].part != part)
			continue;
		if (s->chunks[i].pushed && s->chunks[i].state == MD_SHARE_LENT)
			MD_FORWARD(md_swap_share_zero(s, &s->chunks[i], link, err));
		else
			md_swap_share_free(s, &s->chunks[i]);
	}
	return MD_OK;
}

/* From here on nothing goes over other links, but lenders that write into rooms go on. What has come already is checked as ever. */
enum md_status md_swap_share_give_up(struct md_swap_share *s, const char *why, bool liar, struct md_error *err)
{
	s->over = true;
	md_swap_carry_abandon(s->carry, why);
	md_warn("memory comes in without the carrier: %s", s->carry->why);
	md_swap_share_lose_carried(s);
	for (size_t i = 0; i < s->count; i++)
		if (s->chunks[i].state == MD_SHARE_LENT && s->chunks[i].taken && !s->chunks[i].pushed)
			s->takes.outstanding -= s->chunks[i].bytes;
	MD_FORWARD(wait_for_own(s, err));
	MD_FORWARD(md_swap_stage_abandon(s, err));
	MD_FORWARD(md_swap_check_await(s, err));
	for (size_t i = 0; i < s->contents->part_count; i++) {
		if (!is_tainted(s, i, liar))
			continue;
		MD_FORWARD(renew_part(s, &s->contents->parts[i], err));
		MD_FORWARD(redo_chunks(s, i, err));
	}
	s->taken -= s->lent_takes;
	s->lent = s->lent_takes = 0;
	s->carries.outstanding = 0;
	s->front = 0;
	return MD_OK;
}

/* ---- the carrier ---- */

static void fill_runs(const struct md_swap_share *s, const struct md_share_chunk *chunk,
		      struct md_carry_message *message)
{
	const struct md_swap_part *part = &s->contents->parts[chunk->part];
	for (size_t i = chunk->first; i < chunk->first + chunk->count; i++) {
		uint64_t offset = (i - part->first) * MD_SWAP_BLOCK;
		uint32_t block = s->contents->blocks[i];
		struct md_carry_run *last = message->count ? &message->runs[message->count - 1] : NULL;
		if (block >= MD_SWAP_ZERO)
			continue;
		if (last && last->offset + last->count * MD_SWAP_BLOCK == offset && last->block + last->count == block)
			last->count++;
		else
			message->runs[message->count++] = (struct md_carry_run){offset, block, 1};
	}
}

bool md_swap_share_lend_part(struct md_swap_share *s, size_t part, enum md_status *status, struct md_error *err)
{
	const struct md_swap_range *range = &s->contents->parts[part].range;
	struct md_error why = {0};
	MD_AUTO_FD int fd = -1;
	if (s->lent_part[part])
		return true;
	uint64_t began = md_clock_ns();
	enum md_status lent = s->below->lend(range, &fd, &why);
	s->times.ns_lend += md_clock_ns() - began;
	if (lent != MD_OK) {
		md_debug("%" PRIu64 " bytes go over this GPU's own link: %s", range->bytes, why.message);
		s->lendable[part] = false;
		return false;
	}
	s->lent_part[part] = true;
	*status = md_swap_carry_part(s->carry, (uint32_t)part, range->bytes, fd, err);
	return true;
}

void md_swap_share_note_lent(struct md_swap_share *s, struct md_share_chunk *chunk, bool takes, bool pushes)
{
	struct md_share_speed *speed = takes ? &s->takes : &s->carries;
	if (!pushes && !s->lent)
		s->carry->heard_at = md_clock_ns();
	if (!speed->since)
		speed->since = md_clock_ns();
	if (takes && !s->times.asked)
		s->times.asked = md_clock_ns();
	chunk->state = MD_SHARE_LENT;
	chunk->taken = takes;
	chunk->pushed = pushes;
	if (chunk->staged)
		s->stage.slots[chunk->slot].lent = true;
	s->free_bytes -= chunk->bytes;
	speed->outstanding += chunk->bytes;
	s->taken += takes;
	s->lent += !pushes;
	s->lent_takes += takes && !pushes;
}

/* The slot stays taken: whoever has given the chunk back decides whether it may be used again. */
void md_swap_share_note_back(struct md_swap_share *s, struct md_share_chunk *chunk, bool came)
{
	struct md_share_speed *speed = chunk->taken ? &s->takes : &s->carries;
	s->taken -= chunk->taken;
	s->lent -= !chunk->pushed;
	s->lent_takes -= chunk->taken && !chunk->pushed;
	speed->outstanding -= chunk->bytes;
	if (!came) {
		md_swap_share_free(s, chunk);
		return;
	}
	if (chunk->taken) {
		s->times.came_last = md_clock_ns();
		s->times.came = s->times.came ? s->times.came : s->times.came_last;
	}
	chunk->state = chunk->staged ? MD_SHARE_STAGED : chunk->taken ? MD_SHARE_UNCHECKED : MD_SHARE_DONE;
	s->unchecked += chunk->state == MD_SHARE_UNCHECKED ? chunk->bytes : 0;
	s->left -= !chunk->taken;
	speed->done += chunk->bytes;
	md_swap_pulse_step();
}

/* From the pool. */
static enum md_status lend(struct md_swap_share *s, size_t index, struct md_error *err)
{
	struct md_share_chunk *chunk = &s->chunks[index];
	struct md_carry_message message = {.part = (uint32_t)chunk->part, .chunk = (uint32_t)index};
	struct md_swap_link *link;
	struct md_error lost = {0};
	enum md_status status = MD_OK;
	MD_FORWARD(md_swap_links_get(s->links, s->contents->parts[chunk->part].range.context, &link, err));
	chunk->staged = false;
	if (!md_swap_share_lend_part(s, chunk->part, &status, &lost))
		return MD_OK;
	fill_runs(s, chunk, &message);
	MD_FORWARD(md_swap_share_zero(s, chunk, link, err));
	if (status == MD_OK)
		status = md_swap_carry_chunk(s->carry, &message, &lost);
	if (status != MD_OK)
		return md_swap_share_give_up(s, NULL, false, err);
	md_swap_share_note_lent(s, chunk, false, false);
	return MD_OK;
}

double md_swap_share_own_speed(const struct md_swap_share *s)
{
	return (double)s->own_bytes / (double)(md_clock_ns() - s->began + 1);
}

double md_swap_share_speed(const struct md_share_speed *speed)
{
	return speed->since ? (double)speed->done / (double)(md_clock_ns() - speed->since + 1) : 0;
}

/* Whether the carrier is done with one chunk more before the own link is done with all that is left, as far as that is known. */
static bool is_worth_it(const struct md_swap_share *s, const struct md_share_chunk *chunk)
{
	double own = md_swap_share_own_speed(s), carried = md_swap_share_speed(&s->carries);
	if (own <= 0 || carried <= 0)
		return true;
	return (double)(s->carries.outstanding + chunk->bytes) / carried <= (double)(s->free_bytes + s->own_busy) / own;
}

static bool may_be_carried(const struct md_swap_share *s, const struct md_share_chunk *chunk)
{
	return is_for_links(s, chunk) && chunk->bytes && s->lendable[chunk->part];
}

static enum md_status feed_carrier(struct md_swap_share *s, struct md_error *err)
{
	while (s->carry->ready && s->carry->carrier.neighbours && !s->over &&
	       s->lent - s->lent_takes < s->carry->links * LENT_OF_LINK) {
		while (s->back && !may_be_carried(s, &s->chunks[s->back - 1]))
			s->back--;
		if (!s->back || !is_worth_it(s, &s->chunks[s->back - 1]))
			return MD_OK;
		MD_FORWARD(lend(s, s->back - 1, err));
	}
	return MD_OK;
}

/* NULL: the carrier has no such chunk. */
static struct md_share_chunk *find_lent(struct md_swap_share *s, uint32_t index)
{
	struct md_share_chunk *chunk = index < s->count ? &s->chunks[index] : NULL;
	return chunk && chunk->state == MD_SHARE_LENT && !chunk->pushed ? chunk : NULL;
}

/* False: no such chunk is lent. */
static bool take_done(struct md_swap_share *s, const struct md_carry_message *message)
{
	struct md_share_chunk *chunk = find_lent(s, message->chunk);
	if (!chunk || chunk->bytes != message->bytes)
		return false;
	chunk->by = 1 + message->link;
	md_swap_share_note_back(s, chunk, true);
	return true;
}

/* False: no such chunk is to come from there. */
static bool take_not(struct md_swap_share *s, const struct md_carry_message *message)
{
	struct md_share_chunk *chunk = find_lent(s, message->chunk);
	if (!chunk || !chunk->taken)
		return false;
	if (chunk->staged)
		s->stage.slots[chunk->slot].lent = false;
	md_swap_share_note_back(s, chunk, false);
	md_swap_share_lose_lender(s, chunk->lender);
	return true;
}

static enum md_status hear(struct md_swap_share *s, bool *moved, struct md_error *err)
{
	struct md_carry_message message;
	for (;;) {
		enum md_carry_event event = md_swap_carry_hear(s->carry, &message);
		if (event == MD_CARRY_EVENT_NONE)
			return MD_OK;
		*moved = true;
		if (event == MD_CARRY_EVENT_LOST)
			return md_swap_share_give_up(s, NULL, false, err);
		if (event == MD_CARRY_EVENT_ENDED || event == MD_CARRY_EVENT_LIAR ||
		    (event == MD_CARRY_EVENT_DONE && !take_done(s, &message)) ||
		    (event == MD_CARRY_EVENT_NOT && !take_not(s, &message)))
			return md_swap_share_give_up(s, "the carrier has sent what makes no sense", true, err);
		if (event == MD_CARRY_EVENT_DONE && s->chunks[message.chunk].staged)
			MD_FORWARD(md_swap_stage_came(s, message.chunk, err));
	}
}

static bool is_silent(const struct md_swap_share *s)
{
	return s->lent && md_clock_ns() - s->carry->heard_at > SILENCE_NS;
}

/* ---- all ---- */

static enum md_status begin(struct md_swap_share *s, int device, struct md_error *err)
{
	struct md_error lost = {0};
	CUuuid uuid;
	_Static_assert(MD_CHECKPOINT_UUID_BYTES == MD_CARRY_GPU_BYTES, "texts of UUIDs have one size");
	MD_FORWARD(md_cuda_call_in(s->links->driver, err, cuDeviceGetUuid_v2, &uuid, device));
	md_checkpoint_uuid_text(&uuid, s->gpu);
	s->began = md_clock_ns();
	if (md_swap_carry_begin(s->carry, s->gpu, &lost) != MD_OK)
		return md_swap_share_give_up(s, NULL, false, err);
	return MD_OK;
}

static enum md_status take_turns(struct md_swap_share *s, struct md_error *err)
{
	while (s->left) {
		bool moved = false;
		if (s->carry->ready && !s->times.ready)
			s->times.ready = md_clock_ns();
		MD_FORWARD(reap(s, &moved, err));
		MD_FORWARD(feed_own(s, err));
		if (!s->over)
			MD_FORWARD(hear(s, &moved, err));
		MD_FORWARD(md_swap_share_hear_lenders(s, &moved, err));
		MD_FORWARD(md_swap_share_feed_takes(s, err));
		if (!s->over)
			MD_FORWARD(feed_carrier(s, err));
		MD_FORWARD(md_swap_stage_step(s, &moved, err));
		MD_FORWARD(md_swap_check_step(s, &moved, err));
		if (!s->over && is_silent(s))
			MD_FORWARD(md_swap_share_give_up(s, "the carrier does not go on", false, err));
		else if (!moved)
			md_swap_share_wait(
			    s, own_works(s) || md_swap_check_works(s) || md_swap_stage_works(s) ? 100 : 100000);
	}
	return MD_OK;
}

static void report_links(struct md_swap_share *s)
{
	struct md_swap_report *report = s->report;
	for (size_t i = 0; i < s->count; i++) {
		unsigned by = s->chunks[i].by;
		if (by && by <= MD_CARRY_LINKS && !s->chunks[i].taken)
			report->by_link[by - 1] += s->chunks[i].bytes;
	}
	report->links = s->carry->links;
	memcpy(report->gpus, s->carry->gpus, sizeof(report->gpus));
}

/* Parts on other devices are submitted as a whole before, and go over the links of those. */
static enum md_status copy_others(struct md_swap_share *s, int device, struct md_error *err)
{
	for (size_t i = 0; i < s->contents->part_count; i++) {
		const struct md_swap_part *part = &s->contents->parts[i];
		if (part->count && part->place == MD_SWAP_EMPTY && !is_shared(part, device))
			MD_FORWARD(
			    md_swap_contents_copy_part(s->contents, part, s->links, MD_SWAP_TO_DEVICE, s->report, err));
	}
	return MD_OK;
}

static enum md_status share(struct md_swap_share *s, struct md_error *err)
{
	int device = busiest_device(s->contents);
	MD_FORWARD(make_list(s, device, err));
	MD_FORWARD(copy_others(s, device, err));
	count_all(s);
	MD_FORWARD(begin(s, device, err));
	return take_turns(s, err);
}

enum md_status md_swap_contents_share(const struct md_swap_contents *contents, const struct md_swap_below *below,
				      struct md_swap_links *links, struct md_swap_carry *carry,
				      struct md_swap_report *report, struct md_error *err)
{
	struct md_swap_share s = {
	    .contents = contents, .below = below, .links = links, .carry = carry, .report = report};
	s.most_taken = (unsigned)md_setting_number("MEDUSA_SWAP_PEER_AHEAD", 1, MD_CARRY_TAKES_MOST, MD_SHARE_TAKES);
	s.pushes = md_setting_is_on("MEDUSA_SWAP_PEER_PUSH", true, true, "it is taken for 1");
	md_swap_stage_init(&s.stage, s.most_taken);
	md_map_init(&s.offers.places);
	struct md_error later = {0};
	enum md_status status = share(&s, err);
	md_swap_check_await(&s, &later); /* after a failure */
	md_swap_lenders_end(&carry->lenders);
	md_swap_stage_finish(&s);
	enum md_status waited = md_swap_contents_wait(contents, links, status == MD_OK ? err : &later);
	if (status == MD_OK && waited == MD_OK) {
		report_links(&s);
		md_swap_offers_report(&s);
	}
	md_swap_offers_finish(&s.offers);
	free(s.chunks);
	free(s.lendable);
	free(s.lent_part);
	return status == MD_OK ? waited : status;
}
