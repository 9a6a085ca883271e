/* SPDX-License-Identifier: Apache-2.0 */
/* Bound memory in the poison test: finds what a replay writes, and compares and puts back that alone after each. */
#include <stdlib.h>
#include <string.h>

#include "capture/capture_probe.h"

#define GRAIN 1024u       /* bytes that are changed or not as one */
#define MERGE (32u << 10) /* changes nearer than this are one span: a copy costs more than its bytes */
/* Regions up to here are compared whole: the first replay may have written what was there already. */
#define WHOLE_OUTPUT MD_PROBE_CHUNK_BYTES
#define WHOLE_STATE (64u << 10)
#define WINDOWS_KEPT 128u /* unchanged windows that stay under watch, of all sampled regions together */

/* ---- finding them ---- */

static enum md_status add_span(struct md_capture_probe *probe, uint64_t address, size_t size, const uint8_t *before,
			       const uint8_t *after, struct md_error *err)
{
	uint8_t *copy = malloc(size);

	if (copy && probe->span_count == probe->span_room) {
		size_t room = probe->span_room ? 2 * probe->span_room : 64;
		struct md_probe_span *grown = realloc(probe->spans, room * sizeof(*grown));
		if (grown) {
			probe->spans = grown;
			probe->span_room = room;
		}
	}
	if (!copy || probe->span_count == probe->span_room) {
		free(copy);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory");
	}
	memcpy(copy, after, size);
	probe->spans[probe->span_count++] = (struct md_probe_span){address, (uint32_t)size, before, copy};
	return MD_OK;
}

/* The next changed stretch of a chunk from *at on; false if there is none. */
static bool next_change(const uint8_t *before, const uint8_t *now, size_t size, size_t *at, size_t *end)
{
	size_t grain, start = size;

	for (size_t i = *at; i < size; i += grain) {
		grain = size - i < GRAIN ? size - i : GRAIN;
		if (start < size && i >= *end + MERGE)
			break;
		if (!memcmp(before + i, now + i, grain))
			continue;
		start = start < size ? start : i;
		*end = i + grain;
	}
	*at = start;
	return start < size;
}

static const uint8_t *chunk_before(const struct md_capture_probe *probe, const struct md_probe_region *region, size_t i)
{
	return region->chunks_before[i] ? region->chunks_before[i] : probe->zeros;
}

static void stray(struct md_capture_probe *probe, uint64_t address, uint64_t size)
{
	if (!probe->strayed)
		md_debug("a poisoned replay changed %llu bytes at 0x%llx", (unsigned long long)size,
			 (unsigned long long)address);
	probe->strayed = true;
}

/* Compares a chunk with what it was and puts back what differs; with `add`, that becomes spans. */
static enum md_status check_chunk(struct md_capture_probe *probe, const struct md_probe_region *region, size_t chunk,
				  bool add, struct md_error *err)
{
	uint64_t address = region->address + (uint64_t)chunk * MD_PROBE_CHUNK_BYTES;
	size_t size = md_capture_probe_chunk_size(region, chunk), at = 0, end = 0;
	const uint8_t *before = chunk_before(probe, region, chunk);
	bool whole = add && (probe->thorough || region->size <= (region->state ? WHOLE_STATE : WHOLE_OUTPUT));

	MD_FORWARD(md_cuda_call(err, cuMemcpyDtoH_v2, probe->now, address, size));
	if (whole)
		MD_FORWARD(add_span(probe, address, size, before, probe->now, err));
	for (; next_change(before, probe->now, size, &at, &end); at = end) {
		MD_FORWARD(md_cuda_call(err, cuMemcpyHtoD_v2, address + at, before + at, end - at));
		if (!add)
			stray(probe, address + at, end - at);
		else if (!whole)
			MD_FORWARD(add_span(probe, address + at, end - at, before + at, probe->now + at, err));
	}
	return MD_OK;
}

static enum md_status check_outputs(struct md_capture_probe *probe, bool add, struct md_error *err)
{
	for (uint32_t i = 0; i < probe->region_count; i++) {
		const struct md_probe_region *region = &probe->regions[i];
		size_t count = region->chunks_before ? md_capture_probe_chunk_count(region) : 0;
		for (size_t chunk = 0; chunk < count; chunk++)
			MD_FORWARD(check_chunk(probe, region, chunk, add, err));
	}
	return MD_OK;
}

/* Windows that the replay changed, the first, the last, and some between. */
static enum md_status watch_windows(struct md_capture_probe *probe, const struct md_probe_region *region,
				    struct md_error *err)
{
	uint32_t each = WINDOWS_KEPT / probe->sampled_count, step = each < 2 ? region->windows : region->windows / each;
	uint32_t batch = MD_PROBE_CHUNK_BYTES / region->window_bytes;

	for (uint32_t first = 0; first < region->windows; first += batch) {
		uint32_t end = region->windows - first < batch ? region->windows : first + batch;
		for (uint32_t i = first; i < end; i++)
			MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2,
						probe->now + (size_t)(i - first) * region->window_bytes,
						region->address + md_capture_probe_window_at(region, i),
						region->window_bytes, probe->stream));
		MD_FORWARD(md_cuda_call(err, cuStreamSynchronize, probe->stream));
		for (uint32_t i = first; i < end; i++) {
			const uint8_t *now = probe->now + (size_t)(i - first) * region->window_bytes;
			const uint8_t *before = region->before + (size_t)i * region->window_bytes;
			if (!step || i % step == 0 || i + 1 == region->windows ||
			    memcmp(now, before, region->window_bytes))
				MD_FORWARD(add_span(probe, region->address + md_capture_probe_window_at(region, i),
						    region->window_bytes, NULL, now, err));
		}
	}
	return MD_OK;
}

enum md_status md_capture_probe_find_spans(struct md_capture_probe *probe, struct md_error *err)
{
	for (size_t i = 0; i < probe->span_count; i++)
		free(probe->spans[i].after);
	probe->span_count = 0;
	MD_FORWARD(check_outputs(probe, true, err));
	for (uint32_t i = 0; i < probe->region_count; i++) {
		if (probe->regions[i].kind == MD_PROBE_REGION_SAMPLED)
			MD_FORWARD(watch_windows(probe, &probe->regions[i], err));
	}
	return MD_OK;
}

enum md_status md_capture_probe_check_outputs(struct md_capture_probe *probe, struct md_error *err)
{
	return check_outputs(probe, false, err);
}

/* ---- comparing them ---- */

static enum md_status compare_some(struct md_capture_probe *probe, size_t from, size_t to, bool *equal,
				   struct md_error *err)
{
	size_t at = 0;

	MD_FORWARD(md_cuda_call(err, cuStreamSynchronize, probe->stream));
	for (size_t i = from; i < to; at += probe->spans[i++].size) {
		const struct md_probe_span *span = &probe->spans[i];
		*equal = *equal && !memcmp(probe->now + at, span->after, span->size);
		if (span->before && memcmp(probe->now + at, span->before, span->size))
			MD_FORWARD(md_cuda_call(err, cuMemcpyHtoDAsync_v2, span->address, span->before, span->size,
						probe->stream));
	}
	return MD_OK;
}

/* As many at a time as one chunk holds. */
enum md_status md_capture_probe_compare_spans(struct md_capture_probe *probe, bool *equal, struct md_error *err)
{
	size_t first = 0, at = 0;

	*equal = true;
	for (size_t i = 0; i < probe->span_count; i++) {
		const struct md_probe_span *span = &probe->spans[i];
		if (at + span->size > MD_PROBE_CHUNK_BYTES) {
			MD_FORWARD(compare_some(probe, first, i, equal, err));
			first = i;
			at = 0;
		}
		MD_FORWARD(
		    md_cuda_call(err, cuMemcpyDtoHAsync_v2, probe->now + at, span->address, span->size, probe->stream));
		at += span->size;
	}
	MD_FORWARD(compare_some(probe, first, probe->span_count, equal, err));
	return md_cuda_call(err, cuStreamSynchronize, probe->stream);
}
