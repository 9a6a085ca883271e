/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bound memory in the poison test: finds the parts that a replay writes, then compares and puts back these parts alone.
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "capture/probe/copies.h"
#include "capture/probe/probe.h"
#include "capture/probe/spans.h"
#include "capture/probe/spread.h"
#include "capture/probe/windows.h"
#include "capture/record/graphs.h"
#include "driver/device_pieces.h"

/* Regions up to here are compared whole: the first replay may have written what was there already. */
#define WHOLE_OUTPUT MD_PROBE_CHUNK_BYTES
#define WHOLE_STATE (64u << 10)
#define MERGED_GRAINS 8 /* changes nearer than this are one span */
#define CHUNK_GRAINS (MD_PROBE_CHUNK_BYTES / MD_DEVICE_GRAIN)

/* ---- finding them ---- */

static struct md_probe_span *next_span(struct md_capture_probe *probe)
{
	if (!MD_ARRAY_GROW(probe->spans, probe->span_count, probe->span_room))
		return NULL;
	return &probe->spans[probe->span_count];
}

/* Keeps the span's bytes as the first replay left them. `after`: these bytes; NULL: they are fetched. */
static enum md_status keep_after(struct md_capture_probe *probe, struct md_probe_span *span, const uint8_t *after,
				 struct md_error *err)
{
	struct md_probe_session *session = probe->session;
	if (span->device_after) /* a window, which is in the session's room */
		return MD_OK;
	if (!probe->spread && span->size >= MD_DEVICE_COMPARED &&
	    md_device_differ_can(&session->device, span->address, span->size))
		span->device_after = md_device_session_take(&session->device, span->size);
	if (span->device_after)
		return md_cuda_call(err, cuMemcpyDtoDAsync_v2, span->device_after, span->address, span->size,
				    session->device.stream);
	span->after = malloc(span->size);
	if (!span->after)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %llu bytes that a graph writes",
				    (unsigned long long)span->size);
	if (!after)
		return md_device_session_read(&session->device, span->after, span->address, span->size, err);
	memcpy(span->after, after, span->size);
	return MD_OK;
}

enum md_status md_capture_probe_add_span(struct md_capture_probe *probe, struct md_probe_span new, const uint8_t *after,
					 struct md_error *err)
{
	struct md_probe_span *span = next_span(probe);
	if (!span)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for what a graph writes");
	*span = new;
	probe->span_count++;
	return keep_after(probe, span, after, err);
}

void md_capture_probe_drop_spans(struct md_capture_probe *probe)
{
	for (size_t i = 0; i < probe->span_count; i++) {
		free(probe->spans[i].after);
		free(probe->spans[i].low);
		free(probe->spans[i].high);
	}
	if (probe->slabs_marked)
		md_device_session_cut_back(&probe->session->device, probe->slabs_before, probe->slab_used_before);
	probe->span_count = 0;
}

static void mark_slabs(struct md_capture_probe *probe)
{
	const struct md_probe_session *session = probe->session;
	if (probe->slabs_marked)
		return;
	probe->slabs_before = session->device.slab_count;
	probe->slab_used_before =
	    session->device.slab_count ? session->device.slabs[session->device.slab_count - 1].used : 0;
	probe->slabs_marked = true;
}

static const uint8_t *chunk_before(const struct md_capture_probe *probe, const struct md_probe_region *region, size_t i)
{
	return region->copy->chunks[i] ? region->copy->chunks[i] : probe->session->device.zeros;
}

static void stray(struct md_capture_probe *probe, uint64_t address, uint64_t size)
{
	if (!probe->strayed)
		md_debug("a poisoned replay changed %llu bytes at 0x%llx", (unsigned long long)size,
			 (unsigned long long)address);
	probe->strayed = true;
}

/* Small regions are compared whole: the first replay may have written what was there already. */
static bool is_whole(const struct md_capture_probe *probe, const struct md_probe_region *region)
{
	return probe->thorough || region->size <= (region->state ? WHOLE_STATE : WHOLE_OUTPUT);
}

/* A part of a region that is compared with its copy; many of them wait for the device together. */
struct part {
	const struct md_probe_region *region;
	uint64_t offset, size;
	size_t staged; /* where its bytes are in the session's staging memory; on the device: its first flag */
};

#define MOST_PARTS 128

struct parts {
	size_t count, staged;
	struct part items[MOST_PARTS];
};

static void add_part(struct parts *parts, const struct md_probe_region *region, uint64_t offset, uint64_t size,
		     size_t takes)
{
	parts->items[parts->count++] = (struct part){region, offset, size, parts->staged};
	parts->staged += takes;
}

/* Compares a chunk with its copy and puts back what differs; with `add`, the differences become spans. */
static enum md_status take_chunk(struct md_capture_probe *probe, const struct part *part, bool add,
				 struct md_error *err)
{
	struct md_probe_session *session = probe->session;
	const struct md_probe_region *region = part->region;
	uint64_t address = region->address + part->offset;
	size_t size = part->size, at = 0, end = 0;
	const uint8_t *before = chunk_before(probe, region, (size_t)(part->offset / MD_PROBE_CHUNK_BYTES));
	const uint8_t *now = session->device.now + part->staged;
	bool whole = add && is_whole(probe, region);
	if (whole)
		MD_FORWARD(md_capture_probe_add_span(
		    probe, (struct md_probe_span){.address = address, .size = (uint32_t)size, .before = before}, now,
		    err));
	for (; md_change_next(before, now, size, &at, &end); at = end) {
		probe->changed |= add;
		if (!add)
			stray(probe, address + at, end - at);
		else if (!whole)
			MD_FORWARD(md_capture_probe_add_span(probe,
							     (struct md_probe_span){.address = address + at,
										    .size = (uint32_t)(end - at),
										    .before = before + at},
							     now + at, err));
		MD_FORWARD(md_device_session_write(&session->device, address + at, before + at, end - at, err));
	}
	return MD_OK;
}

static enum md_status take_chunks(struct md_capture_probe *probe, struct parts *parts, bool add, struct md_error *err)
{
	struct md_device_session *device = &probe->session->device;
	md_device_batch_begin(device);
	for (size_t i = 0; i < parts->count; i++) {
		const struct part *part = &parts->items[i];
		MD_FORWARD(
		    md_device_batch_read(device, part->staged, part->region->address + part->offset, part->size, err));
	}
	MD_FORWARD(md_device_batch_read_wait(device, err));
	for (size_t i = 0; i < parts->count; i++)
		MD_FORWARD(take_chunk(probe, &parts->items[i], add, err));
	parts->count = parts->staged = 0;
	return MD_OK;
}

/*
 * Takes a changed stretch of a region whose copy is on the device: it becomes a span, or, at the end, counts as
 * strayed. The stretch is put back.
 */
static enum md_status take_stretch(struct md_capture_probe *probe, const struct md_probe_region *region,
				   uint64_t offset, uint64_t size, bool add, struct md_error *err)
{
	uint64_t address = region->address + offset;
	if (add)
		MD_FORWARD(md_capture_probe_add_span(
		    probe,
		    (struct md_probe_span){
			.address = address, .size = (uint32_t)size, .device_before = region->copy->device + offset},
		    NULL, err));
	else
		stray(probe, address, size);
	return md_capture_copy_put_back(probe->session, region->copy, offset, size, err);
}

/* The next stretch of differing grains, no longer than a chunk; the first is at *at, *end is behind the last. */
static bool next_stretch(const uint8_t *flags, size_t count, size_t *at, size_t *end)
{
	size_t start = *at;
	while (start < count && !flags[start])
		start++;
	if (start == count)
		return false;
	*at = *end = start;
	for (size_t i = start; i < count && i < *end + MERGED_GRAINS && i - start < CHUNK_GRAINS; i++)
		*end = flags[i] ? i + 1 : *end;
	return true;
}

static size_t grains_of(uint64_t size)
{
	return (size_t)((size + MD_DEVICE_GRAIN - 1) / MD_DEVICE_GRAIN);
}

static enum md_status take_slice(struct md_capture_probe *probe, const struct part *part, bool add,
				 struct md_error *err)
{
	uint8_t *flags = probe->session->device.flag_bytes + part->staged;
	size_t grains = grains_of(part->size), at = 0, end;
	probe->changed |= add && memchr(flags, 1, grains);
	if (add && is_whole(probe, part->region))
		memset(flags, 1, grains);
	for (; next_stretch(flags, grains, &at, &end); at = end) {
		uint64_t start = (uint64_t)at * MD_DEVICE_GRAIN, stop = (uint64_t)end * MD_DEVICE_GRAIN;
		MD_FORWARD(take_stretch(probe, part->region, part->offset + start,
					(stop < part->size ? stop : part->size) - start, add, err));
	}
	return MD_OK;
}

static enum md_status take_slices(struct md_capture_probe *probe, struct parts *parts, bool add, struct md_error *err)
{
	struct md_device_session *device = &probe->session->device;
	md_device_batch_begin(device);
	MD_FORWARD(md_device_differ_begin(device, parts->staged, err));
	for (size_t i = 0; i < parts->count; i++) {
		const struct part *part = &parts->items[i];
		MD_FORWARD(md_device_batch_differ(device, part->region->address + part->offset,
						  part->region->copy->device + part->offset, part->size, part->staged,
						  err));
	}
	MD_FORWARD(md_device_batch_launch(device, err));
	MD_FORWARD(md_device_differ_end(device, parts->staged, err));
	for (size_t i = 0; i < parts->count; i++)
		MD_FORWARD(take_slice(probe, &parts->items[i], add, err));
	parts->count = parts->staged = 0;
	return md_device_batch_launch(device, err);
}

/* The regions whose copies are on the host. */
static enum md_status check_on_host(struct md_capture_probe *probe, bool add, struct md_error *err)
{
	struct parts parts = {0};
	for (uint32_t i = 0; i < probe->region_count; i++) {
		const struct md_probe_region *region = &probe->regions[i];
		bool chunks = region->kind == MD_PROBE_REGION_OUTPUT && region->copy->chunks;
		for (uint64_t at = 0, size; chunks && at < region->size; at += size) {
			size = region->size - at < MD_PROBE_CHUNK_BYTES ? region->size - at : MD_PROBE_CHUNK_BYTES;
			if (parts.count == MOST_PARTS || parts.staged + size > MD_PROBE_CHUNK_BYTES)
				MD_FORWARD(take_chunks(probe, &parts, add, err));
			add_part(&parts, region, at, size, (size_t)size);
		}
	}
	return parts.count ? take_chunks(probe, &parts, add, err) : MD_OK;
}

static enum md_status check_on_device(struct md_capture_probe *probe, bool add, struct md_error *err)
{
	const uint64_t slice = (uint64_t)MD_DEVICE_GRAINS * MD_DEVICE_GRAIN;
	struct parts parts = {0};
	for (uint32_t i = 0; i < probe->region_count; i++) {
		const struct md_probe_region *region = &probe->regions[i];
		bool copied = region->kind == MD_PROBE_REGION_OUTPUT && region->copy->device;
		for (uint64_t at = 0, size; copied && at < region->size; at += size) {
			size = region->size - at < slice ? region->size - at : slice;
			if (parts.count == MOST_PARTS || parts.staged + grains_of(size) > MD_DEVICE_GRAINS)
				MD_FORWARD(take_slices(probe, &parts, add, err));
			add_part(&parts, region, at, size, grains_of(size));
		}
	}
	return parts.count ? take_slices(probe, &parts, add, err) : MD_OK;
}

static enum md_status check_outputs(struct md_capture_probe *probe, bool add, struct md_error *err)
{
	MD_FORWARD(check_on_host(probe, add, err));
	return check_on_device(probe, add, err);
}

/* Makes the spans of the graph's outputs, before bound memory, which they may be part of, is put back. */
static enum md_status watch_outputs(struct md_capture_probe *probe, struct md_error *err)
{
	for (size_t i = 0; i < probe->output_count; i++) {
		const struct md_capture_output *output = &probe->outputs[i];
		for (uint64_t at = 0, size; at < output->size; at += size) {
			size = output->size - at < MD_PROBE_CHUNK_BYTES ? output->size - at : MD_PROBE_CHUNK_BYTES;
			MD_FORWARD(md_capture_probe_add_span(
			    probe, (struct md_probe_span){.address = output->address + at, .size = (uint32_t)size},
			    NULL, err));
		}
	}
	return MD_OK;
}

enum md_status md_capture_probe_find_spans(struct md_capture_probe *probe, struct md_error *err)
{
	mark_slabs(probe);
	md_capture_probe_drop_spans(probe);
	MD_FORWARD(watch_outputs(probe, err));
	MD_FORWARD(check_outputs(probe, true, err));
	return md_capture_windows_watch(probe, err);
}

enum md_status md_capture_probe_check_outputs(struct md_capture_probe *probe, struct md_error *err)
{
	return check_outputs(probe, false, err);
}

/* ---- comparing them ---- */

/* Copies on the device are put back without a comparison, which costs less. */
static enum md_status compare_some(struct md_capture_probe *probe, size_t from, size_t to, bool *equal,
				   struct md_error *err)
{
	struct md_probe_session *session = probe->session;
	size_t at = 0;
	MD_FORWARD(md_device_batch_read_wait(&session->device, err));
	md_device_batch_begin(&session->device);
	for (size_t i = from; i < to; i++) {
		struct md_probe_span *span = &probe->spans[i];
		if (!span->after)
			continue;
		*equal &= md_capture_spread_judge(probe, span, session->device.now + at, err);
		MD_FORWARD(err->status);
		if (span->before && memcmp(session->device.now + at, span->before, span->size))
			MD_FORWARD(
			    md_device_session_write(&session->device, span->address, span->before, span->size, err));
		if (span->device_before)
			MD_FORWARD(md_device_batch_copy(&session->device, span->address, span->device_before,
							span->size, err));
		at += span->size;
	}
	return md_device_batch_launch(&session->device, err);
}

/* Takes as many spans at a time as one chunk holds. */
static enum md_status compare_on_host(struct md_capture_probe *probe, bool *equal, struct md_error *err)
{
	struct md_probe_session *session = probe->session;
	size_t first = 0, at = 0;
	md_device_batch_begin(&session->device);
	for (size_t i = 0; i < probe->span_count; i++) {
		const struct md_probe_span *span = &probe->spans[i];
		if (!span->after)
			continue;
		if (at + span->size > MD_PROBE_CHUNK_BYTES) {
			MD_FORWARD(compare_some(probe, first, i, equal, err));
			first = i;
			at = 0;
		}
		MD_FORWARD(md_device_batch_read(&session->device, at, span->address, span->size, err));
		at += span->size;
	}
	return compare_some(probe, first, probe->span_count, equal, err);
}

static enum md_status end_batch(struct md_capture_probe *probe, size_t flags, bool *equal, struct md_error *err)
{
	MD_FORWARD(md_device_batch_launch(&probe->session->device, err));
	MD_FORWARD(md_device_differ_end(&probe->session->device, flags, err));
	*equal = *equal && !memchr(probe->session->device.flag_bytes, 1, flags);
	return MD_OK;
}

static enum md_status compare_on_device(struct md_capture_probe *probe, bool *equal, struct md_error *err)
{
	struct md_probe_session *session = probe->session;
	size_t flags = 0;
	md_device_batch_begin(&session->device);
	for (size_t i = 0; i < probe->span_count; i++) {
		const struct md_probe_span *span = &probe->spans[i];
		size_t grains = (span->size + MD_DEVICE_GRAIN - 1) / MD_DEVICE_GRAIN;
		if (!span->device_after)
			continue;
		if (flags + grains > MD_DEVICE_GRAINS) {
			MD_FORWARD(end_batch(probe, flags, equal, err));
			flags = 0;
		}
		if (!flags)
			MD_FORWARD(md_device_differ_begin(&session->device, MD_DEVICE_GRAINS, err));
		MD_FORWARD(md_device_batch_differ(&session->device, span->address, span->device_after, span->size,
						  flags, err));
		flags += grains;
	}
	return flags ? end_batch(probe, flags, equal, err) : MD_OK;
}

static enum md_status put_back_spans(struct md_capture_probe *probe, struct md_error *err)
{
	md_device_batch_begin(&probe->session->device);
	for (size_t i = 0; i < probe->span_count; i++) {
		const struct md_probe_span *span = &probe->spans[i];
		if (span->device_after && span->device_before)
			MD_FORWARD(md_device_batch_copy(&probe->session->device, span->address, span->device_before,
							span->size, err));
		else if (span->device_after && span->before)
			MD_FORWARD(md_device_session_write(&probe->session->device, span->address, span->before,
							   span->size, err));
	}
	return md_device_batch_wait(&probe->session->device, err);
}

/* The device looks first: outputs may be part of what the host then puts back. */
enum md_status md_capture_probe_compare_spans(struct md_capture_probe *probe, bool *equal, struct md_error *err)
{
	*equal = true;
	MD_FORWARD(compare_on_device(probe, equal, err));
	MD_FORWARD(compare_on_host(probe, equal, err));
	return put_back_spans(probe, err);
}
