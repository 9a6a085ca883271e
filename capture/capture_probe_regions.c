/* SPDX-License-Identifier: Apache-2.0 */
/* What a graph can reach: bound memory, private memory around it, and host memory; copied out before the first replay.
 */
#include <stdlib.h>
#include <string.h>

#include "capture/capture_probe.h"

#define MAX_SCRATCH (64ull << 20)

static enum md_status add_region(struct md_capture_probe *probe, enum md_probe_region_kind kind, uint64_t address,
				 uint64_t size, struct md_error *err)
{
	struct md_probe_region *grown = realloc(probe->regions, (probe->region_count + 1) * sizeof(*grown));

	if (!grown)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory");
	probe->regions = grown;
	grown[probe->region_count++] = (struct md_probe_region){.kind = kind, .address = address, .size = size};
	return MD_OK;
}

static bool has_region(const struct md_capture_probe *probe, uint64_t address)
{
	for (uint32_t i = 0; i < probe->region_count; i++) {
		if (address >= probe->regions[i].address &&
		    address - probe->regions[i].address < probe->regions[i].size)
			return true;
	}
	return false;
}

/* The parts of [start, end) that no binding covers are private. */
static enum md_status add_gaps(struct md_capture_probe *probe, uint64_t start, uint64_t end, struct md_error *err)
{
	uint64_t at = start;

	for (size_t i = 0; i < md_capture.binds.count; i++) {
		const struct md_interval *bind = &md_capture.binds.items[i];
		uint64_t bind_end = bind->start + bind->size;
		if (bind_end <= at || bind->start >= end)
			continue;
		if (bind->start > at)
			MD_FORWARD(add_region(probe, MD_PROBE_REGION_PRIVATE, at, bind->start - at, err));
		at = bind_end;
	}
	return at < end ? add_region(probe, MD_PROBE_REGION_PRIVATE, at, end - at, err) : MD_OK;
}

/* Adds the allocation at an address unless it is there already, is bound there, or is gone. */
static enum md_status add_allocation(struct md_capture_probe *probe, uint64_t address, struct md_error *err)
{
	const struct md_interval *item = md_interval_find(&md_capture.live, address);

	if (!item || has_region(probe, address) || md_interval_find(&md_capture.binds, address))
		return MD_OK;
	if (item->value == MD_ALLOC_HOST)
		return add_region(probe, MD_PROBE_REGION_HOST, item->start, item->size, err);
	return add_gaps(probe, item->start, item->start + item->size, err);
}

/* An allocation whose start is bound may still have private parts: a pool with tensors of both kinds in it. */
static enum md_status add_candidate(struct md_capture_probe *probe, uint64_t start, struct md_error *err)
{
	const struct md_interval *item = md_interval_find(&md_capture.live, start);

	if (!item || item->start != start)
		return MD_OK;
	if (item->value == MD_ALLOC_HOST)
		return has_region(probe, start) ? MD_OK
						: add_region(probe, MD_PROBE_REGION_HOST, start, item->size, err);
	return add_gaps(probe, start, start + item->size, err);
}

static enum md_status add_outputs(struct md_capture_probe *probe, struct md_error *err)
{
	for (size_t i = 0; i < md_capture.binds.count; i++) {
		const struct md_interval *bind = &md_capture.binds.items[i];
		if (md_capture.bind_roles[bind->value] == MD_BIND_CONSTANT)
			continue;
		if (md_interval_find(&md_capture.live, bind->start))
			MD_FORWARD(add_region(probe, MD_PROBE_REGION_OUTPUT, bind->start, bind->size, err));
	}
	return MD_OK;
}

size_t md_capture_probe_chunk_count(const struct md_probe_region *region)
{
	return (size_t)((region->size + MD_PROBE_CHUNK_BYTES - 1) / MD_PROBE_CHUNK_BYTES);
}

size_t md_capture_probe_chunk_size(const struct md_probe_region *region, size_t chunk)
{
	uint64_t left = region->size - (uint64_t)chunk * MD_PROBE_CHUNK_BYTES;

	return left < MD_PROBE_CHUNK_BYTES ? (size_t)left : MD_PROBE_CHUNK_BYTES;
}

static enum md_status load_chunks(struct md_capture_probe *probe, struct md_probe_region *region, struct md_error *err)
{
	size_t count = md_capture_probe_chunk_count(region);

	region->chunks_before = calloc(count, sizeof(uint8_t *));
	region->chunks_after = calloc(count, sizeof(uint8_t *));
	if (!region->chunks_before || !region->chunks_after)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory");
	for (size_t i = 0; i < count; i++) {
		size_t size = md_capture_probe_chunk_size(region, i);
		MD_FORWARD(
		    md_cuda_call(err, cuMemcpyDtoH_v2, probe->now, region->address + i * MD_PROBE_CHUNK_BYTES, size));
		if (!memcmp(probe->now, probe->zeros, size))
			continue;
		region->chunks_before[i] = malloc(size);
		if (!region->chunks_before[i])
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory");
		memcpy(region->chunks_before[i], probe->now, size);
	}
	return MD_OK;
}

static enum md_status load(struct md_capture_probe *probe, struct md_probe_region *region, uint64_t *left,
			   struct md_error *err)
{
	if (region->size > *left)
		return md_error_set(err, MD_ERR_TOO_LARGE, "%llu bytes at 0x%llx go beyond MEDUSA_PROBE_LIMIT",
				    (unsigned long long)region->size, (unsigned long long)region->address);
	*left -= region->size;
	if (region->kind == MD_PROBE_REGION_OUTPUT)
		return load_chunks(probe, region, err);
	region->before = malloc(region->size);
	region->poison = region->kind == MD_PROBE_REGION_PRIVATE ? malloc(region->size) : NULL;
	if (!region->before || (region->kind == MD_PROBE_REGION_PRIVATE && !region->poison))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %llu bytes",
				    (unsigned long long)region->size);
	if (region->kind == MD_PROBE_REGION_HOST) {
		memcpy(region->before, (const void *)(uintptr_t)region->address, region->size);
		return MD_OK;
	}
	return md_cuda_call(err, cuMemcpyDtoH_v2, region->before, region->address, region->size);
}

/* Private memory may hold pointers to more private memory; what they reach must be put back too. */
static enum md_status follow_pointers(struct md_capture_probe *probe, uint32_t index, struct md_error *err)
{
	const uint8_t *data = probe->regions[index].before;
	uint64_t first = (8 - probe->regions[index].address % 8) % 8, size = probe->regions[index].size;

	for (uint64_t at = first; at + 8 <= size; at += 8) {
		uint64_t word;
		memcpy(&word, data + at, 8);
		if (word)
			MD_FORWARD(add_allocation(probe, word, err));
	}
	return MD_OK;
}

bool md_capture_probe_has_output(const struct md_capture_probe *probe)
{
	for (uint32_t i = 0; i < probe->region_count; i++) {
		if (probe->regions[i].kind == MD_PROBE_REGION_OUTPUT)
			return true;
	}
	return false;
}

static enum md_status allocate_chunk(struct md_capture_probe *probe, struct md_error *err)
{
	void *locked = NULL;

	probe->zeros = calloc(1, MD_PROBE_CHUNK_BYTES);
	probe->now_locked = md_cuda.cuMemHostAlloc(&locked, MD_PROBE_CHUNK_BYTES, 0) == CUDA_SUCCESS;
	probe->now = probe->now_locked ? locked : malloc(MD_PROBE_CHUNK_BYTES);
	return probe->now && probe->zeros ? MD_OK : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory");
}

enum md_status md_capture_probe_collect(struct md_capture_probe *probe, const uint64_t *candidates, size_t count,
					uint64_t limit, struct md_error *err)
{
	MD_FORWARD(allocate_chunk(probe, err));
	MD_FORWARD(add_outputs(probe, err));
	for (size_t i = 0; i < count; i++)
		MD_FORWARD(add_candidate(probe, candidates[i], err));
	for (uint32_t i = 0; i < probe->region_count; i++) { /* grows while it runs */
		MD_FORWARD(load(probe, &probe->regions[i], &limit, err));
		if (probe->regions[i].kind == MD_PROBE_REGION_PRIVATE)
			MD_FORWARD(follow_pointers(probe, i, err));
	}
	return MD_OK;
}

static void release_chunks(const struct md_probe_region *region)
{
	size_t count = md_capture_probe_chunk_count(region);

	for (size_t i = 0; i < count; i++) {
		if (region->chunks_before)
			free(region->chunks_before[i]);
		if (region->chunks_after)
			free(region->chunks_after[i]);
	}
	free(region->chunks_before);
	free(region->chunks_after);
}

void md_capture_probe_release(struct md_capture_probe *probe)
{
	for (uint32_t i = 0; i < probe->region_count; i++) {
		free(probe->regions[i].before);
		free(probe->regions[i].poison);
		release_chunks(&probe->regions[i]);
	}
	free(probe->regions);
	free(probe->units);
	free(probe->zeros);
	if (probe->now_locked)
		md_cuda.cuMemFreeHost(probe->now);
	else
		free(probe->now);
	if (probe->scratch)
		md_cuda.cuMemFree_v2(probe->scratch);
	if (probe->stream)
		md_cuda.cuStreamDestroy_v2(probe->stream);
}

/* ---- poison ---- */

/* Bytes that can be reached from a word taken as a pointer; 0 when it points nowhere. */
static uint64_t reach(uint64_t word)
{
	const struct md_interval *item = word ? md_interval_find(&md_capture.live, word) : NULL;

	return item && item->value != MD_ALLOC_HOST ? item->size - (word - item->start) : 0;
}

static enum md_status make_scratch(struct md_capture_probe *probe, struct md_error *err)
{
	uint64_t size = 0;

	for (uint32_t i = 0; i < probe->region_count; i++) {
		const struct md_probe_region *region = &probe->regions[i];
		if (region->kind != MD_PROBE_REGION_PRIVATE)
			continue;
		for (uint64_t at = (8 - region->address % 8) % 8; at + 8 <= region->size; at += 8) {
			uint64_t word, bytes;
			memcpy(&word, region->before + at, 8);
			bytes = reach(word);
			if (bytes > size)
				size = bytes > MAX_SCRATCH ? MAX_SCRATCH : bytes;
		}
	}
	if (!size)
		return MD_OK;
	probe->scratch_size = size;
	return md_cuda_call(err, cuMemAlloc_v2, &probe->scratch, size);
}

/* A pointer with more behind it than scratch has stays as it is: poisoning it could only end in a fault. */
static void poison_region(const struct md_capture_probe *probe, struct md_probe_region *region, uint32_t word)
{
	uint64_t at;

	for (at = 0; at + 4 <= region->size; at += 4)
		memcpy(region->poison + at, &word, 4);
	memcpy(region->poison + at, &word, region->size - at);
	for (at = (8 - region->address % 8) % 8; probe->scratch && at + 8 <= region->size; at += 8) {
		uint64_t pointer, bytes;
		memcpy(&pointer, region->before + at, 8);
		bytes = reach(pointer);
		if (bytes && bytes <= probe->scratch_size)
			pointer = probe->scratch;
		if (bytes)
			memcpy(region->poison + at, &pointer, 8);
	}
}

enum md_status md_capture_probe_prepare_poison(struct md_capture_probe *probe, uint32_t word, struct md_error *err)
{
	if (!probe->scratch)
		MD_FORWARD(make_scratch(probe, err));
	if (probe->scratch)
		MD_FORWARD(md_cuda_call(err, cuMemsetD8_v2, probe->scratch, (unsigned char)word, probe->scratch_size));
	for (uint32_t i = 0; i < probe->region_count; i++) {
		if (probe->regions[i].kind == MD_PROBE_REGION_PRIVATE)
			poison_region(probe, &probe->regions[i], word);
	}
	return MD_OK;
}

/* ---- units ---- */

static size_t pieces(uint64_t size, uint32_t bytes)
{
	return (size_t)((size + bytes - 1) / bytes);
}

static size_t cut(struct md_probe_unit *to, uint32_t region, uint64_t offset, uint64_t size, uint32_t bytes, bool keep)
{
	size_t count = 0;

	for (uint64_t at = 0; at < size; at += bytes) {
		uint32_t part = size - at < bytes ? (uint32_t)(size - at) : bytes;
		to[count++] = (struct md_probe_unit){region, part, offset + at, keep};
	}
	return count;
}

enum md_status md_capture_probe_cut(struct md_capture_probe *probe, uint32_t bytes, struct md_error *err)
{
	size_t count = 0, at = 0;
	struct md_probe_unit *units;

	for (uint32_t i = 0; i < probe->region_count && !probe->units; i++) {
		if (probe->regions[i].kind == MD_PROBE_REGION_PRIVATE)
			count += pieces(probe->regions[i].size, bytes);
	}
	for (size_t i = 0; i < probe->unit_count; i++)
		count += probe->units[i].keep ? pieces(probe->units[i].size, bytes) : 1;
	units = calloc(count + 1, sizeof(*units));
	if (!units)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory");
	for (uint32_t i = 0; i < probe->region_count && !probe->units; i++) {
		if (probe->regions[i].kind == MD_PROBE_REGION_PRIVATE)
			at += cut(units + at, i, 0, probe->regions[i].size, bytes, false);
	}
	for (size_t i = 0; i < probe->unit_count; i++) {
		const struct md_probe_unit *unit = &probe->units[i];
		at += cut(units + at, unit->region, unit->offset, unit->size, unit->keep ? bytes : unit->size,
			  unit->keep);
	}
	free(probe->units);
	probe->units = units;
	probe->unit_count = at;
	return MD_OK;
}
