/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/content_fetch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "worker/cluster/content_source.h"
#include "worker/core/loop_thread.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define TICK_MS 100u
#define MS UINT64_C(1000000)
#define NOBODY_MS 10000u /* without any node that could be asked */
#define MANIFEST NO_BLOCK
#define NO_BLOCK UINT32_MAX

enum step { GET_MANIFEST, READ_MANIFEST, OPEN, JUDGE, BLOCKS, END, OVER };

/* A call for a block, or for the manifest, and then its writing. */
struct slot {
	struct md_content_fetch *fetch;
	struct md_content_call *call; /* NULL: none */
	struct md_loop_thread *writing;
	uint32_t block;
	uint32_t source; /* of the fetch's list */
	struct md_buf bytes;
	struct md_error err;
};

struct md_content_fetch {
	struct md_content_fetch_options options;
	char store[512], signed_by[512], hash[MD_CONTENT_HASH_TEXT];
	enum step step;
	struct md_content_sources sources;
	struct slot *slots;
	struct md_buf text; /* of the manifest */
	bool other;         /* it is not the one that was asked for */
	struct md_content_manifest manifest;
	bool *there, *under_way;       /* by blocks */
	struct md_content_first first; /* with signed_by: which blocks come now, as long as there are any */
	uint32_t missing, next;
	struct md_content_progress progress;
	uint64_t began, lonely_since;
	uint64_t free_at;              /* ns: when what has come would have come at the rate */
	struct md_loop_thread *thread; /* reads the manifest, opens, judges, or ends */
	atomic_bool ends;
	struct md_error err, last, outcome; /* last: why a node was of no use */
	struct event *tick;
};

static struct md_content_part part_of(struct md_content_fetch *fetch)
{
	return (struct md_content_part){.store = fetch->store, .hash = fetch->hash, .manifest = &fetch->manifest};
}

/* ---- the end ---- */

static void free_slot(struct slot *slot)
{
	md_content_call_cancel(slot->call);
	md_loop_thread_destroy(slot->writing);
	md_buf_finish(&slot->bytes);
}

void md_content_fetch_end(struct md_content_fetch *fetch)
{
	if (!fetch)
		return;
	atomic_store(&fetch->ends, true);
	for (uint32_t i = 0; fetch->slots && i < fetch->options.streams; i++)
		free_slot(&fetch->slots[i]);
	md_loop_thread_destroy(fetch->thread);
	if (fetch->tick)
		event_free(fetch->tick);
	md_content_sources_finish(&fetch->sources);
	md_content_manifest_finish(&fetch->manifest);
	md_buf_finish(&fetch->text);
	free(fetch->slots);
	free(fetch->there);
	free(fetch->under_way);
	free(fetch->first.blocks);
	free(fetch->first.judged);
	free(fetch);
}

/* Whoever is told may end the fetch, so that is done in the next tick, from which nothing goes on. */
static void finish(struct md_content_fetch *fetch, const struct md_error *why)
{
	if (fetch->step == OVER)
		return;
	fetch->step = OVER;
	fetch->outcome = why ? *why : (struct md_error){0};
	event_active(fetch->tick, EV_TIMEOUT, 0);
}

/* Threads end by themselves. */
static void tell_over(struct md_content_fetch *fetch)
{
	void (*ended)(void *context, const struct md_error *why) = fetch->options.ended;
	void *context = fetch->options.context;
	struct md_error outcome = fetch->outcome;
	bool failed = outcome.status != MD_OK, writes = false;
	for (uint32_t i = 0; i < fetch->options.streams; i++) {
		md_content_call_cancel(fetch->slots[i].call);
		fetch->slots[i].call = NULL;
		writes = writes || fetch->slots[i].writing;
	}
	if (writes || fetch->thread)
		return;
	if (failed)
		fetch->options.counts->failed++;
	else
		fetch->options.counts->whole++;
	md_content_fetch_end(fetch);
	ended(context, failed ? &outcome : NULL);
}

/* ---- the last step ---- */

static void end_part(void *context)
{
	struct md_content_fetch *fetch = context;
	const struct md_content_part part = part_of(fetch);
	md_content_part_end(&part, fetch->signed_by, &fetch->err);
}

static void on_part_ended(void *context)
{
	struct md_content_fetch *fetch = context;
	fetch->thread = NULL;
	finish(fetch, fetch->err.status == MD_OK ? NULL : &fetch->err);
}

static void start_thread(struct md_content_fetch *fetch, void (*work)(void *context), void (*done)(void *context))
{
	fetch->err = (struct md_error){0};
	if (md_loop_thread_start(fetch->options.base, work, done, fetch, &fetch->thread, &fetch->err) != MD_OK)
		finish(fetch, &fetch->err);
}

/* ---- signatures, before anything but artifacts is asked for ---- */

static void pump(struct md_content_fetch *fetch);

static void judge_part(void *context)
{
	struct md_content_fetch *fetch = context;
	const struct md_content_part part = part_of(fetch);
	md_content_part_judge(&part, fetch->signed_by, fetch->there, &fetch->first, &fetch->err);
}

static void on_judged(void *context)
{
	struct md_content_fetch *fetch = context;
	fetch->thread = NULL;
	if (fetch->err.status != MD_OK)
		finish(fetch, &fetch->err);
	if (fetch->step == OVER)
		return;
	fetch->step = BLOCKS;
	fetch->next = 0;
	pump(fetch);
}

/* No block is under way: what is there is the thread's meanwhile. */
static void judge(struct md_content_fetch *fetch)
{
	fetch->step = JUDGE;
	start_thread(fetch, judge_part, on_judged);
}

/* ---- blocks ---- */

static void write_block(void *context)
{
	struct slot *slot = context;
	const struct md_content_part part = part_of(slot->fetch);
	md_content_part_write(&part, slot->block, slot->bytes.data, &slot->err);
}

static void leave_block(struct slot *slot)
{
	struct md_content_fetch *fetch = slot->fetch;
	fetch->under_way[slot->block] = false;
	if (slot->block < fetch->next)
		fetch->next = slot->block;
}

static void take_block(struct slot *slot)
{
	struct md_content_fetch *fetch = slot->fetch;
	uint32_t size = md_content_block_size(&fetch->manifest, slot->block);
	fetch->there[slot->block] = true;
	fetch->missing--;
	fetch->progress.done += size;
	fetch->progress.came += size;
	fetch->options.counts->bytes += size;
	fetch->options.counts->blocks++;
	md_content_sources_good(&fetch->sources, slot->source);
}

static void on_written(void *context)
{
	struct slot *slot = context;
	struct md_content_fetch *fetch = slot->fetch;
	slot->writing = NULL;
	fetch->under_way[slot->block] = false;
	if (slot->err.status == MD_OK) {
		take_block(slot);
	} else if (slot->err.status == MD_ERR_CORRUPT) {
		leave_block(slot);
		fetch->options.counts->wrong++;
		md_content_sources_wrong(&fetch->sources, slot->source, slot->err.message);
		fetch->last = slot->err;
	} else {
		fetch->err = slot->err;
		finish(fetch, &fetch->err);
		return;
	}
	pump(fetch);
}

static void come_manifest(struct slot *slot);

/* All of it has come. */
static void on_whole(void *context)
{
	struct slot *slot = context;
	struct md_content_fetch *fetch = slot->fetch;
	slot->call = NULL;
	if (slot->block == MANIFEST) {
		come_manifest(slot);
		return;
	}
	slot->err = (struct md_error){0};
	if (md_loop_thread_start(fetch->options.base, write_block, on_written, slot, &slot->writing, &slot->err) ==
	    MD_OK)
		return;
	fetch->err = slot->err;
	finish(fetch, &fetch->err);
}

static void on_failed(void *context, const char *why)
{
	struct slot *slot = context;
	struct md_content_fetch *fetch = slot->fetch;
	slot->call = NULL;
	fetch->options.counts->failed_calls++;
	md_error_set(&fetch->last, MD_ERR_IO, "node %.60s: %.300s",
		     md_content_sources_name(&fetch->sources, slot->source), why);
	md_content_sources_failed(&fetch->sources, slot->source, why);
	if (slot->block != MANIFEST)
		leave_block(slot);
	pump(fetch);
}

/* At the rate, all calls together: who is ahead of it waits. */
static void on_came(void *context, size_t size)
{
	struct slot *slot = context;
	struct md_content_fetch *fetch = slot->fetch;
	uint64_t now = md_clock_ns(), rate = fetch->options.rate;
	if (!rate)
		return;
	fetch->free_at = fetch->free_at > now ? fetch->free_at : now;
	fetch->free_at += (uint64_t)((double)size / (double)rate * 1e9);
	if (fetch->free_at > now + 2 * TICK_MS * MS)
		for (uint32_t i = 0; i < fetch->options.streams; i++)
			md_content_call_pause(fetch->slots[i].call, true);
}

static const struct md_content_call_events calling = {.whole = on_whole, .failed = on_failed, .came = on_came};

static uint32_t next_block(struct md_content_fetch *fetch)
{
	uint32_t at = fetch->next;
	while (at < fetch->manifest.block_count &&
	       (fetch->there[at] || fetch->under_way[at] || (fetch->first.any && !fetch->first.blocks[at])))
		at++;
	fetch->next = at;
	return at < fetch->manifest.block_count ? at : NO_BLOCK;
}

/* False: no node can be asked now. */
static bool ask(struct md_content_fetch *fetch, struct slot *slot, uint32_t block)
{
	struct md_content_wish wish = {.hash = fetch->hash, .bytes = &slot->bytes, .manifest = block == MANIFEST};
	if (!wish.manifest) {
		wish.offset = md_content_block_offset(block);
		wish.size = md_content_block_size(&fetch->manifest, block);
	}
	/* calls that wait for their turn at the rate are not late */
	wish.patience_s = fetch->options.rate
			      ? (unsigned)((uint64_t)fetch->options.streams * MD_CONTENT_BLOCK / fetch->options.rate)
			      : 0;
	slot->block = block;
	slot->call = md_content_sources_ask(&fetch->sources, &wish, &calling, slot, &slot->source);
	return slot->call;
}

static bool is_idle(const struct slot *slot)
{
	return !slot->call && !slot->writing;
}

static bool all_idle(const struct md_content_fetch *fetch)
{
	for (uint32_t i = 0; i < fetch->options.streams; i++)
		if (!is_idle(&fetch->slots[i]))
			return false;
	return true;
}

static void refresh(struct md_content_fetch *fetch)
{
	struct md_view_node *nodes[MD_CONTENT_SOURCES_MAX];
	uint32_t count = fetch->options.sources(fetch->options.context, fetch->hash, nodes, MD_CONTENT_SOURCES_MAX);
	md_content_sources_refresh(&fetch->sources, nodes, count);
}

/* True: nobody could be asked for too long, and the fetch has ended. */
static bool is_lonely(struct md_content_fetch *fetch)
{
	uint64_t now = md_clock_ns();
	refresh(fetch);
	if (md_content_sources_usable(&fetch->sources)) {
		fetch->lonely_since = 0;
		return false;
	}
	fetch->lonely_since = fetch->lonely_since ? fetch->lonely_since : now;
	if (!all_idle(fetch) || now - fetch->lonely_since < NOBODY_MS * MS)
		return false;
	struct md_error why;
	md_error_set(&why, MD_ERR_NOT_FOUND, "content %s: no node that has it could be asked for %u s%s%.300s",
		     fetch->hash, NOBODY_MS / 1000, *fetch->last.message ? "; the last reason: " : "",
		     fetch->last.message);
	finish(fetch, &why);
	return true;
}

static void pump(struct md_content_fetch *fetch)
{
	bool fast = md_clock_ns() + TICK_MS * MS >= fetch->free_at;
	if (fetch->thread)
		return;
	refresh(fetch); /* nodes of earlier turns of the loop may be there no more */
	if (fetch->step == GET_MANIFEST && is_idle(&fetch->slots[0]))
		ask(fetch, &fetch->slots[0], MANIFEST);
	if (fetch->step != BLOCKS)
		return;
	if (!fetch->missing && all_idle(fetch)) {
		fetch->step = END;
		start_thread(fetch, end_part, on_part_ended);
		return;
	}
	if (fetch->first.any && all_idle(fetch) && next_block(fetch) == NO_BLOCK) {
		judge(fetch);
		return;
	}
	for (uint32_t i = 0; fast && i < fetch->options.streams; i++) {
		uint32_t block = is_idle(&fetch->slots[i]) ? next_block(fetch) : NO_BLOCK;
		if (block == NO_BLOCK)
			continue;
		if (!ask(fetch, &fetch->slots[i], block))
			return;
		fetch->under_way[block] = true;
	}
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
	struct md_content_fetch *fetch = context;
	(void)fd, (void)what;
	if (fetch->step == OVER) {
		tell_over(fetch);
		return;
	}
	if (fetch->thread)
		return;
	if (fetch->began)
		fetch->progress.ns = md_clock_ns() - fetch->began;
	if (md_clock_ns() + TICK_MS * MS >= fetch->free_at) /* until the next tick there is enough to do */
		for (uint32_t i = 0; i < fetch->options.streams; i++)
			md_content_call_pause(fetch->slots[i].call, false);
	for (uint32_t i = 0; i < fetch->options.streams; i++)
		md_content_call_look(fetch->slots[i].call);
	if (!is_lonely(fetch))
		pump(fetch);
}

/* ---- the manifest ---- */

static void open_part(void *context)
{
	struct md_content_fetch *fetch = context;
	const struct md_content_part part = part_of(fetch);
	md_content_part_open(&part, &fetch->options.room, (const char *)fetch->text.data, fetch->text.size,
			     &fetch->ends, fetch->there, &fetch->err);
}

static void on_opened(void *context)
{
	struct md_content_fetch *fetch = context;
	fetch->thread = NULL;
	if (fetch->err.status != MD_OK)
		finish(fetch, &fetch->err);
	if (fetch->step == OVER)
		return;
	for (uint32_t i = 0; i < fetch->manifest.block_count; i++)
		if (fetch->there[i])
			fetch->progress.done += md_content_block_size(&fetch->manifest, i);
		else
			fetch->missing++;
	md_info("content %s: %" PRIu64 " bytes in %u files; %" PRIu64 " bytes are there from an earlier time",
		fetch->hash, fetch->manifest.bytes, fetch->manifest.file_count, fetch->progress.done);
	fetch->step = BLOCKS;
	fetch->began = md_clock_ns();
	if (*fetch->signed_by && fetch->missing)
		judge(fetch);
	else
		pump(fetch);
}

/* The source is to blame, and another one may have the right one. */
static void refuse_manifest(struct md_content_fetch *fetch)
{
	static const char why[] = "the manifest that it sends has another hash";
	uint32_t source = fetch->slots[0].source;
	fetch->options.counts->wrong++;
	md_error_set(&fetch->last, MD_ERR_CORRUPT, "node %.60s: %s", md_content_sources_name(&fetch->sources, source),
		     why);
	md_content_sources_wrong(&fetch->sources, source, why);
	fetch->step = GET_MANIFEST;
	pump(fetch);
}

/* On a thread: one of 80 MB takes seconds. */
static void read_manifest(void *context)
{
	struct md_content_fetch *fetch = context;
	struct md_digest digest = md_digest_bytes(fetch->text.data, fetch->text.size);
	char found[MD_CONTENT_HASH_TEXT];
	struct md_error err = {0};
	md_content_hash_print(&digest, found);
	fetch->other = strcmp(found, fetch->hash) != 0;
	if (fetch->other)
		return;
	/* the right one, so that no other node has a better one */
	if (md_content_manifest_read((const char *)fetch->text.data, fetch->text.size, &fetch->manifest, &err) !=
	    MD_OK) {
		md_error_set(&fetch->err, err.status == MD_ERR_NO_MEMORY ? MD_ERR_NO_MEMORY : MD_ERR_CORRUPT,
			     "content %s: %.300s", fetch->hash, err.message);
		return;
	}
	fetch->there = calloc(fetch->manifest.block_count + 1u, sizeof(*fetch->there));
	fetch->under_way = calloc(fetch->manifest.block_count + 1u, sizeof(*fetch->under_way));
	fetch->first.blocks = calloc(fetch->manifest.block_count + 1u, sizeof(*fetch->first.blocks));
	fetch->first.judged = calloc(fetch->manifest.file_count + 1u, sizeof(*fetch->first.judged));
	if (!fetch->there || !fetch->under_way || !fetch->first.blocks || !fetch->first.judged)
		md_error_set(&fetch->err, MD_ERR_NO_MEMORY, "out of memory for %u blocks", fetch->manifest.block_count);
}

static void on_manifest(void *context)
{
	struct md_content_fetch *fetch = context;
	fetch->thread = NULL;
	if (fetch->err.status != MD_OK)
		finish(fetch, &fetch->err);
	if (fetch->step == OVER)
		return;
	if (fetch->other) {
		refuse_manifest(fetch);
		return;
	}
	fetch->progress.of = fetch->manifest.bytes;
	fetch->step = OPEN;
	start_thread(fetch, open_part, on_opened);
}

static void come_manifest(struct slot *slot)
{
	struct md_content_fetch *fetch = slot->fetch;
	if (fetch->step != GET_MANIFEST)
		return;
	md_buf_finish(&fetch->text);
	fetch->text = slot->bytes;
	slot->bytes = (struct md_buf){0};
	fetch->step = READ_MANIFEST;
	start_thread(fetch, read_manifest, on_manifest);
}

/* ---- all of it ---- */

struct md_content_fetch *md_content_fetch_begin(const struct md_content_fetch_options *options)
{
	struct md_content_fetch *fetch = calloc(1, sizeof(*fetch));
	if (!fetch)
		return NULL;
	fetch->options = *options;
	snprintf(fetch->store, sizeof(fetch->store), "%s", options->store);
	snprintf(fetch->signed_by, sizeof(fetch->signed_by), "%s", options->signed_by);
	snprintf(fetch->hash, sizeof(fetch->hash), "%s", options->hash);
	atomic_init(&fetch->ends, false);
	md_content_sources_init(&fetch->sources, options->base, fetch->hash);
	fetch->slots = calloc(options->streams, sizeof(*fetch->slots));
	fetch->tick = event_new(options->base, -1, EV_PERSIST, on_tick, fetch);
	for (uint32_t i = 0; fetch->slots && i < options->streams; i++)
		fetch->slots[i].fetch = fetch;
	if (fetch->slots && fetch->tick && !event_add(fetch->tick, &(struct timeval){.tv_usec = TICK_MS * 1000})) {
		event_active(fetch->tick, EV_TIMEOUT, 0);
		return fetch;
	}
	md_content_fetch_end(fetch);
	return NULL;
}

void md_content_fetch_give_up(struct md_content_fetch *fetch)
{
	struct md_error why;
	md_error_set(&why, MD_ERR_NOT_FOUND, "content %s: no model needs it any more", fetch->hash);
	atomic_store(&fetch->ends, true);
	finish(fetch, &why);
}

struct md_content_progress md_content_fetch_progress(const struct md_content_fetch *fetch)
{
	return fetch->progress;
}
