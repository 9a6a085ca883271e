/* SPDX-License-Identifier: Apache-2.0 */
/* What a graph can reach: bound memory, private memory around it, and host memory; copied out before the first replay.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "capture/capture_probe.h"

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
		const struct md_capture_bind *bound = &md_capture.bound[bind->value];
		if (bound->role == MD_BIND_CONSTANT || !md_interval_find(&md_capture.live, bind->start))
			continue;
		MD_FORWARD(add_region(probe, MD_PROBE_REGION_OUTPUT, bind->start, bind->size, err));
		probe->regions[probe->region_count - 1].state = bound->role == MD_BIND_STATE;
		probe->regions[probe->region_count - 1].read = bound->role != MD_BIND_INPUT;
		probe->regions[probe->region_count - 1].name = bound->name;
	}
	return MD_OK;
}

/* An output that is gone can't be compared, and what a replay writes there may be somebody else's by now. */
static enum md_status check_outputs_live(const struct md_capture_probe *probe, struct md_error *err)
{
	for (size_t i = 0; i < probe->output_count; i++) {
		const struct md_capture_output *output = &probe->outputs[i];
		for (uint64_t at = output->address, end = at + output->size; at < end;) {
			const struct md_interval *item = md_interval_find(&md_capture.live, at);
			if (!item || item->value == MD_ALLOC_HOST)
				return md_error_set(err, MD_ERR_UNPROVABLE,
						    "output %u lies in no device memory that is live at its test",
						    output->index);
			at = item->start + item->size;
		}
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
	if (!region->chunks_before)
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
	if (!region->before)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %llu bytes",
				    (unsigned long long)region->size);
	if (region->kind == MD_PROBE_REGION_HOST) {
		memcpy(region->before, (const void *)(uintptr_t)region->address, region->size);
		return MD_OK;
	}
	return md_cuda_call(err, cuMemcpyDtoH_v2, region->before, region->address, region->size);
}

static bool add_pointer(struct md_probe_region *region, size_t *room, struct md_probe_pointer pointer)
{
	if (region->pointer_count == *room) {
		size_t more = *room ? 2 * *room : 16;
		struct md_probe_pointer *grown = realloc(region->pointers, more * sizeof(*grown));
		if (!grown)
			return false;
		region->pointers = grown;
		*room = more;
	}
	region->pointers[region->pointer_count++] = pointer;
	return true;
}

/* Private memory may hold pointers to more private memory; what they reach must be put back too. */
static enum md_status follow_pointers(struct md_capture_probe *probe, uint32_t index, struct md_error *err)
{
	const uint8_t *data = probe->regions[index].before;
	uint64_t first = (8 - probe->regions[index].address % 8) % 8, size = probe->regions[index].size;
	size_t room = 0;

	for (uint64_t at = first; at + 8 <= size; at += 8) {
		const struct md_interval *item;
		uint64_t word;
		memcpy(&word, data + at, 8);
		item = word ? md_interval_find(&md_capture.live, word) : NULL;
		if (!item)
			continue;
		if (item->value != MD_ALLOC_HOST &&
		    !add_pointer(&probe->regions[index], &room,
				 (struct md_probe_pointer){at, word, item->size - (word - item->start)}))
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory");
		MD_FORWARD(add_allocation(probe, word, err));
	}
	return MD_OK;
}

/* ---- state ---- */

static enum md_status load_windows(struct md_capture_probe *probe, struct md_probe_region *region, struct md_error *err)
{
	const struct md_sample *sample = &region->sample;

	region->sample = md_sample_plan(region->size, probe->sampled_count);
	region->before = malloc((size_t)sample->windows * sample->bytes);
	if (!region->before)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory");
	for (uint32_t i = 0; i < sample->windows; i++)
		MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, region->before + (size_t)i * sample->bytes,
					region->address + md_sample_offset(sample, i), sample->bytes, probe->stream));
	return md_cuda_call(err, cuStreamSynchronize, probe->stream);
}

static enum md_status choose_sampled(struct md_capture_probe *probe, uint64_t left, struct md_error *err)
{
	MD_AUTO_FREE uint64_t *sizes = calloc(probe->region_count + 1, sizeof(*sizes));
	MD_AUTO_FREE bool *sampled = calloc(probe->region_count + 1, sizeof(*sampled));

	if (!sizes || !sampled)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory");
	for (uint32_t i = 0; i < probe->region_count; i++)
		sizes[i] = probe->regions[i].state ? probe->regions[i].size : 0;
	probe->sampled_count = md_sample_choose(sizes, probe->region_count, left, sampled);
	for (uint32_t i = 0; i < probe->region_count; i++) {
		if (sampled[i])
			probe->regions[i].kind = MD_PROBE_REGION_SAMPLED;
	}
	return MD_OK;
}

static enum md_status load_state(struct md_capture_probe *probe, uint64_t left, struct md_error *err)
{
	MD_FORWARD(choose_sampled(probe, left, err));
	for (uint32_t i = 0; i < probe->region_count; i++) {
		struct md_probe_region *region = &probe->regions[i];
		if (region->kind == MD_PROBE_REGION_SAMPLED)
			MD_FORWARD(load_windows(probe, region, err));
		else if (region->state)
			MD_FORWARD(load(probe, region, &left, err));
	}
	return MD_OK;
}

bool md_capture_probe_has_output(const struct md_capture_probe *probe)
{
	if (probe->output_count)
		return true;
	for (uint32_t i = 0; i < probe->region_count; i++) {
		if (probe->regions[i].read)
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

/* What matters is most often small: semaphores, tables. */
static int compare_sizes(const void *left, const void *right)
{
	const struct md_probe_region *a = left, *b = right;

	if (a->size != b->size)
		return a->size < b->size ? -1 : 1;
	return (a->address > b->address) - (a->address < b->address);
}

enum md_status md_capture_probe_collect(struct md_capture_probe *probe, const uint64_t *candidates, size_t count,
					uint64_t limit, struct md_error *err)
{
	MD_FORWARD(check_outputs_live(probe, err));
	MD_FORWARD(allocate_chunk(probe, err));
	MD_FORWARD(md_cuda_call(err, cuStreamCreate, &probe->stream, CU_STREAM_NON_BLOCKING));
	MD_FORWARD(add_outputs(probe, err));
	for (size_t i = 0; i < count; i++)
		MD_FORWARD(add_candidate(probe, candidates[i], err));
	for (uint32_t i = 0; i < probe->region_count; i++) { /* grows while it runs */
		if (probe->regions[i].state)
			continue;
		MD_FORWARD(load(probe, &probe->regions[i], &limit, err));
		if (probe->regions[i].kind == MD_PROBE_REGION_PRIVATE)
			MD_FORWARD(follow_pointers(probe, i, err));
	}
	MD_FORWARD(load_state(probe, limit, err));
	if (probe->region_count)
		qsort(probe->regions, probe->region_count, sizeof(*probe->regions), compare_sizes);
	return MD_OK;
}

static void release_chunks(const struct md_probe_region *region)
{
	size_t count = region->chunks_before ? md_capture_probe_chunk_count(region) : 0;

	for (size_t i = 0; i < count; i++)
		free(region->chunks_before[i]);
	free(region->chunks_before);
}

void md_capture_probe_release(struct md_capture_probe *probe)
{
	for (uint32_t i = 0; i < probe->region_count; i++) {
		free(probe->regions[i].before);
		free(probe->regions[i].pointers);
		release_chunks(&probe->regions[i]);
	}
	for (size_t i = 0; i < probe->span_count; i++)
		free(probe->spans[i].after);
	free(probe->spans);
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
