/* SPDX-License-Identifier: Apache-2.0 */
/* Bound memory in the poison test: finds what a replay writes, and compares and puts back that alone after each. */
#include <stdlib.h>
#include <string.h>

#include "capture/capture_probe.h"

/* Regions up to here are compared whole: the first replay may have written what was there already. */
#define WHOLE_OUTPUT MD_PROBE_CHUNK_BYTES
#define WHOLE_STATE (64u << 10)

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
	for (; md_change_next(before, probe->now, size, &at, &end); at = end) {
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

static enum md_status read_windows(struct md_capture_probe *probe, const struct md_probe_region *region, uint32_t from,
				   uint32_t to, struct md_error *err)
{
	const struct md_sample *sample = &region->sample;

	for (uint32_t i = from; i < to; i++)
		MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, probe->now + (size_t)(i - from) * sample->bytes,
					region->address + md_sample_offset(sample, i), sample->bytes, probe->stream));
	return md_cuda_call(err, cuStreamSynchronize, probe->stream);
}

/* Windows that the replay changed, the first, the last, and some between. */
static enum md_status watch_windows(struct md_capture_probe *probe, const struct md_probe_region *region,
				    struct md_error *err)
{
	const struct md_sample *sample = &region->sample;
	uint32_t batch = MD_PROBE_CHUNK_BYTES / sample->bytes;

	for (uint32_t from = 0; from < sample->windows; from += batch) {
		uint32_t to = sample->windows - from < batch ? sample->windows : from + batch;
		MD_FORWARD(read_windows(probe, region, from, to, err));
		for (uint32_t i = from; i < to; i++) {
			const uint8_t *now = probe->now + (size_t)(i - from) * sample->bytes;
			const uint8_t *before = region->before + (size_t)i * sample->bytes;
			if (md_sample_stays(sample, i, probe->sampled_count) || memcmp(now, before, sample->bytes))
				MD_FORWARD(add_span(probe, region->address + md_sample_offset(sample, i), sample->bytes,
						    NULL, now, err));
		}
	}
	return MD_OK;
}

/* Before bound memory is put back, which they may be part of. */
static enum md_status watch_outputs(struct md_capture_probe *probe, struct md_error *err)
{
	for (size_t i = 0; i < probe->output_count; i++) {
		const struct md_capture_output *output = &probe->outputs[i];
		for (uint64_t at = 0, size; at < output->size; at += size) {
			size = output->size - at < MD_PROBE_CHUNK_BYTES ? output->size - at : MD_PROBE_CHUNK_BYTES;
			MD_FORWARD(md_cuda_call(err, cuMemcpyDtoH_v2, probe->now, output->address + at, size));
			MD_FORWARD(add_span(probe, output->address + at, size, NULL, probe->now, err));
		}
	}
	return MD_OK;
}

enum md_status md_capture_probe_find_spans(struct md_capture_probe *probe, struct md_error *err)
{
	for (size_t i = 0; i < probe->span_count; i++)
		free(probe->spans[i].after);
	probe->span_count = 0;
	MD_FORWARD(watch_outputs(probe, err));
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
