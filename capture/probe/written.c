/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes of private memory a graph writes: those that a replay on poisoned memory leaves other than poison. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "capture/probe/copies.h"
#include "capture/probe/poison.h"
#include "capture/probe/probe.h"
#include "capture/probe/written.h"
#include "capture/record/graphs.h"
#include "driver/device_pieces.h"

#define MOST_RANGES 65536 /* of one graph; more scattered ranges are joined with the bytes between them */

/*
 * No byte equals both patterns, so every byte that a graph writes differs from at least one of them. Kept memory is
 * compared with itself: a byte there that is written with its old value does not show.
 */
#define SEEN_ZERO 1u
#define SEEN_ONES 2u
#define SEEN_BOTH 3u

void md_capture_written_drop(struct md_capture_probe *probe)
{
	for (uint32_t i = 0; i < probe->region_count; i++) {
		free(probe->regions[i].written);
		probe->regions[i].written = NULL;
	}
	probe->written_seen = 0;
	probe->written_lost = false;
}

void md_capture_written_release(struct md_capture_probe *probe)
{
	md_capture_written_drop(probe);
	free(probe->expected);
}

/* ---- one piece of memory ---- */

struct piece { /* no longer than a chunk; all of it poisoned, or all kept */
	struct md_probe_region *region;
	uint64_t offset, size;
	bool poisoned;
};

/* A bit for each of 8 bytes that differs. */
static uint8_t differing(const uint8_t *now, const uint8_t *expected)
{
	const uint64_t low = 0x7f7f7f7f7f7f7f7full;
	uint64_t one, two, x;
	memcpy(&one, now, 8);
	memcpy(&two, expected, 8);
	x = one ^ two;
	x = (((x & low) + low) | x) & ~low;
	return (uint8_t)((x >> 7) * 0x0102040810204080ull >> 56);
}

static void mark(uint8_t *written, uint64_t offset, const uint8_t *now, const uint8_t *expected, uint64_t size)
{
	uint64_t at = 0;
	while (at < size) {
		if ((offset + at) % 8 == 0 && at + 8 <= size) {
			written[(offset + at) / 8] |= differing(now + at, expected + at);
			at += 8;
		} else {
			written[(offset + at) / 8] |= (uint8_t)((now[at] != expected[at]) << (offset + at) % 8);
			at++;
		}
	}
}

/* Rounded up to whole words. */
static bool has_map(struct md_probe_region *region)
{
	if (!region->written)
		region->written = calloc((size_t)(region->size / 64 + 1), 8);
	return region->written != NULL;
}

/* False: there is no memory for it, and what the graph writes stays unknown. */
static bool has_room_for(struct md_capture_probe *probe, struct md_probe_region *region)
{
	if (!probe->expected)
		probe->expected = malloc(MD_PROBE_CHUNK_BYTES);
	probe->written_lost |= !probe->expected || !has_map(region);
	return !probe->written_lost;
}

static enum md_status look_on_host(struct md_capture_probe *probe, const struct piece *piece, struct md_error *err)
{
	struct md_device_session *device = &probe->session->device;
	struct md_probe_region *region = piece->region;
	if (!has_room_for(probe, region))
		return MD_OK;
	if (piece->poisoned)
		md_capture_probe_expect(probe, region, piece->offset, piece->size, probe->expected);
	else
		MD_FORWARD(md_capture_copy_read(probe->session, region->copy, piece->offset, piece->size,
						probe->expected, err));
	MD_FORWARD(md_device_session_read(device, device->now, region->address + piece->offset, piece->size, err));
	mark(region->written, piece->offset, device->now, probe->expected, piece->size);
	return MD_OK;
}

/* Pieces that the device compares, or that are read, together, so that there is one wait for all of them. */
#define MOST_PIECES 512

struct look { /* a piece that is read; where its bytes lie in the session's staging memory */
	struct piece piece;
	size_t now, expected; /* expected: of a kept piece, whose copy is on the device */
};

struct batch {
	size_t count, flags;
	uint64_t expected; /* bytes in use of the device's expected chunk */
	size_t first_flag[MOST_PIECES];
	uint64_t expected_at[MOST_PIECES]; /* on the device */
	struct piece pieces[MOST_PIECES];
	size_t look_count, staged;
	struct look looks[MOST_PIECES];
};

/* ---- pieces that are read ---- */

static void look_at(struct md_capture_probe *probe, const struct look *look)
{
	const struct piece *piece = &look->piece;
	const uint8_t *now = probe->session->device.now, *expected = now + look->expected;
	if (!has_room_for(probe, piece->region))
		return;
	if (piece->poisoned) {
		md_capture_probe_expect(probe, piece->region, piece->offset, piece->size, probe->expected);
		expected = probe->expected;
	}
	mark(piece->region->written, piece->offset, now + look->now, expected, piece->size);
}

static enum md_status look_at_all(struct md_capture_probe *probe, struct batch *batch, struct md_error *err)
{
	struct md_device_session *device = &probe->session->device;
	if (!batch->look_count)
		return MD_OK;
	md_device_batch_begin(device);
	for (size_t i = 0; i < batch->look_count; i++) {
		const struct look *look = &batch->looks[i];
		const struct piece *piece = &look->piece;
		MD_FORWARD(
		    md_device_batch_read(device, look->now, piece->region->address + piece->offset, piece->size, err));
		if (!piece->poisoned)
			MD_FORWARD(md_device_batch_read(device, look->expected,
							piece->region->copy->device + piece->offset, piece->size, err));
	}
	MD_FORWARD(md_device_batch_read_wait(device, err));
	for (size_t i = 0; i < batch->look_count; i++)
		look_at(probe, &batch->looks[i]);
	batch->look_count = batch->staged = 0;
	return MD_OK;
}

static enum md_status add_look(struct md_capture_probe *probe, struct batch *batch, const struct piece *piece,
			       struct md_error *err)
{
	uint64_t size = piece->poisoned ? piece->size : 2 * piece->size;
	if (size > MD_PROBE_CHUNK_BYTES)
		return look_on_host(probe, piece, err);
	if (batch->look_count == MOST_PIECES || batch->staged + size > MD_PROBE_CHUNK_BYTES)
		MD_FORWARD(look_at_all(probe, batch, err));
	batch->looks[batch->look_count++] =
	    (struct look){*piece, batch->staged, batch->staged + (size_t)(size - piece->size)};
	batch->staged += (size_t)size;
	return MD_OK;
}

/* ---- pieces that the device compares ---- */

static size_t grains_of(const struct piece *piece)
{
	return (size_t)((piece->size + MD_DEVICE_GRAIN - 1) / MD_DEVICE_GRAIN);
}

/* Looks at the bytes of grains that differ. */
static enum md_status look_at_grains(struct md_capture_probe *probe, struct batch *batch, const struct piece *piece,
				     const uint8_t *flags, struct md_error *err)
{
	size_t grains = grains_of(piece);
	for (size_t at = 0, end; at < grains && !probe->written_lost; at = end) {
		struct piece part = *piece;
		for (; at < grains && !flags[at]; at++)
			;
		for (end = at; end < grains && flags[end]; end++)
			;
		part.offset += (uint64_t)at * MD_DEVICE_GRAIN;
		part.size = (uint64_t)(end - at) * MD_DEVICE_GRAIN;
		if (part.offset + part.size > piece->offset + piece->size)
			part.size = piece->offset + piece->size - part.offset;
		if (end > at)
			MD_FORWARD(add_look(probe, batch, &part, err));
	}
	return MD_OK;
}

/* The expected bytes are made by an earlier launch. */
static enum md_status compare_batch(struct md_capture_probe *probe, const struct batch *batch, struct md_error *err)
{
	struct md_device_session *device = &probe->session->device;
	MD_FORWARD(md_device_batch_launch(device, err));
	MD_FORWARD(md_device_differ_begin(device, batch->flags, err));
	for (size_t i = 0; i < batch->count; i++) {
		const struct piece *piece = &batch->pieces[i];
		MD_FORWARD(md_device_batch_differ(device, piece->region->address + piece->offset, batch->expected_at[i],
						  piece->size, batch->first_flag[i], err));
	}
	return md_device_batch_launch(device, err);
}

static enum md_status look_at_batch(struct md_capture_probe *probe, struct batch *batch, struct md_error *err)
{
	struct md_device_session *device = &probe->session->device;
	if (!batch->count)
		return MD_OK;
	MD_FORWARD(compare_batch(probe, batch, err));
	MD_FORWARD(md_device_differ_end(device, batch->flags, err));
	for (size_t i = 0; i < batch->count; i++)
		MD_FORWARD(
		    look_at_grains(probe, batch, &batch->pieces[i], device->flag_bytes + batch->first_flag[i], err));
	MD_FORWARD(look_at_all(probe, batch, err));
	batch->count = batch->flags = batch->expected = 0;
	return MD_OK;
}

static bool has_room(const struct batch *batch, const struct piece *piece)
{
	return batch->count < MOST_PIECES && batch->flags + grains_of(piece) <= MD_DEVICE_GRAINS &&
	       (!piece->poisoned || batch->expected + piece->size <= MD_PROBE_CHUNK_BYTES);
}

/* Device memory with the piece's bytes from before the replay; 0: there is no such memory. */
static enum md_status expect_on_device(struct md_capture_probe *probe, struct batch *batch, const struct piece *piece,
				       uint64_t *out, struct md_error *err)
{
	struct md_probe_session *session = probe->session;
	bool done = false;
	*out = 0;
	if (!piece->poisoned) {
		*out = piece->region->copy->device ? piece->region->copy->device + piece->offset : 0;
		return MD_OK;
	}
	if (!session->expected && md_cuda.cuMemAlloc_v2(&session->expected, MD_PROBE_CHUNK_BYTES))
		session->expected = 0;
	if (session->expected)
		MD_FORWARD(md_capture_probe_expect_on_device(probe, piece->region, piece->offset, piece->size,
							     session->expected + batch->expected, &done, err));
	*out = done ? session->expected + batch->expected : 0;
	batch->expected += done ? piece->size : 0;
	return MD_OK;
}

/* The device finds the grains that differ, if it can. */
static enum md_status look_at_piece(struct md_capture_probe *probe, struct batch *batch, const struct piece *piece,
				    struct md_error *err)
{
	struct md_device_session *device = &probe->session->device;
	uint64_t address = piece->region->address + piece->offset, expected = 0;
	if (!md_device_differ_can(device, address, piece->size))
		return look_on_host(probe, piece, err);
	if (!has_room(batch, piece))
		MD_FORWARD(look_at_batch(probe, batch, err));
	MD_FORWARD(expect_on_device(probe, batch, piece, &expected, err));
	if (!expected || !md_device_differ_can(device, expected, piece->size))
		return look_on_host(probe, piece, err);
	batch->pieces[batch->count] = *piece;
	batch->expected_at[batch->count] = expected;
	batch->first_flag[batch->count++] = batch->flags;
	batch->flags += grains_of(piece);
	return MD_OK;
}

/* ---- all of private memory ---- */

static enum md_status look_at_run(struct md_capture_probe *probe, struct batch *batch, const struct md_probe_run *run,
				  struct md_error *err)
{
	for (uint64_t at = 0, size; at < run->size && !probe->written_lost; at += size) {
		struct piece piece = {&probe->regions[run->region], run->offset + at, 0, run->poisoned};
		piece.size = size = run->size - at < MD_PROBE_CHUNK_BYTES ? run->size - at : MD_PROBE_CHUNK_BYTES;
		MD_FORWARD(look_at_piece(probe, batch, &piece, err));
	}
	return MD_OK;
}

enum md_status md_capture_written_look(struct md_capture_probe *probe, struct md_error *err)
{
	unsigned seen = probe->word == 0 ? SEEN_ZERO : probe->word == UINT32_MAX ? SEEN_ONES : 0;
	MD_AUTO_FREE struct batch *batch = calloc(1, sizeof(*batch));
	if (!batch) {
		probe->written_lost = true;
		return MD_OK;
	}
	md_device_batch_begin(&probe->session->device);
	for (size_t at = 0; seen && at < probe->unit_count;) {
		struct md_probe_run run = md_capture_probe_next_run(probe, &at, 0, probe->unit_count);
		MD_FORWARD(look_at_run(probe, batch, &run, err));
	}
	MD_FORWARD(look_at_batch(probe, batch, err));
	probe->written_seen |= seen;
	return MD_OK;
}

/* ---- what was found ---- */

struct ranges {
	struct md_trace_range *items;
	uint32_t count, room;
	bool failed;
};

/* The first byte from `at` on that is written, or is not; size: there is none. */
static uint64_t next_byte(const struct md_probe_region *region, uint64_t at, bool written)
{
	while (at < region->size) {
		uint64_t word;
		memcpy(&word, region->written + at / 64 * 8, 8);
		word = (written ? word : ~word) >> at % 64;
		if (word) {
			at += (uint64_t)__builtin_ctzll(word);
			break;
		}
		at += 64 - at % 64;
	}
	return at < region->size ? at : region->size;
}

static void add_range(struct ranges *ranges, uint64_t address, uint64_t size)
{
	if (!MD_ARRAY_GROW(ranges->items, ranges->count, ranges->room)) {
		ranges->failed = true;
		return;
	}
	ranges->items[ranges->count++] = (struct md_trace_range){address, size};
}

/* Ranges with less than `gap` bytes between them are one. False: there are too many. */
static bool list_region(const struct md_probe_region *region, uint64_t gap, struct ranges *ranges)
{
	uint64_t start = next_byte(region, 0, true);
	while (start < region->size && !ranges->failed) {
		uint64_t end = next_byte(region, start, false), next = next_byte(region, end, true);
		while (next < region->size && next - end < gap) {
			end = next_byte(region, next, false);
			next = next_byte(region, end, true);
		}
		add_range(ranges, region->address + start, end - start);
		if (ranges->count > MOST_RANGES)
			return false;
		start = next;
	}
	return true;
}

static bool list_regions(const struct md_capture_probe *probe, uint64_t gap, struct ranges *ranges)
{
	ranges->count = 0;
	for (uint32_t i = 0; i < probe->region_count; i++)
		if (probe->regions[i].written && !list_region(&probe->regions[i], gap, ranges))
			return false;
	return true;
}

static int compare_ranges(const void *left, const void *right)
{
	const struct md_trace_range *a = left, *b = right;
	return (a->address > b->address) - (a->address < b->address);
}

void md_capture_written_put(const struct md_capture_probe *probe, struct md_capture_graph *graph)
{
	struct ranges ranges = {0};
	if (probe->written_lost || probe->written_seen != SEEN_BOTH) {
		md_debug("graph %llu: the memory that the graph writes is not known", (unsigned long long)graph->id);
		return;
	}
	for (uint64_t gap = 1; !list_regions(probe, gap, &ranges); gap *= 4)
		;
	if (ranges.count)
		qsort(ranges.items, ranges.count, sizeof(*ranges.items), compare_ranges);
	if (ranges.failed) {
		free(ranges.items);
		return;
	}
	md_trace_put_written(md_capture.writer, md_capture_next(), graph->id, ranges.items, ranges.count);
	free(graph->written);
	graph->written = ranges.items;
	graph->written_count = ranges.count;
	graph->written_known = true;
}
