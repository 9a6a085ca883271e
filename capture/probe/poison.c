/* SPDX-License-Identifier: Apache-2.0 */
/* Private memory in the poison test: cut into units, poisoned on the device, and put in place before each replay. */
#include <stdlib.h>
#include <string.h>

#include "capture/probe/copies.h"
#include "capture/probe/poison.h"
#include "capture/probe/probe.h"
#include "driver/device_pieces.h"

#define MAX_SCRATCH (64ull << 20)
#define MIN_SCRATCH (1ull << 20)
#define FEW 64 /* up to so many pointers of a chunk are written one by one, on the device */

/* Memory that graphs were found to need so far. */
static struct md_interval_index needed MD_CAPTURE_GUARDED;

const struct md_interval_index *md_capture_probe_needed(void)
{
	return &needed;
}

/* ---- poison ---- */

/* What the farthest-reaching pointer of the test needs. */
static uint64_t wanted_scratch(const struct md_capture_probe *probe)
{
	uint64_t size = 0;
	for (uint32_t i = 0; i < probe->region_count; i++) {
		const struct md_probe_region *region = &probe->regions[i];
		for (size_t at = 0; region->kind == MD_PROBE_REGION_PRIVATE && at < region->copy->pointer_count; at++) {
			uint64_t bytes = region->copy->pointers[at].reach;
			size = bytes > size ? (bytes > MAX_SCRATCH ? MAX_SCRATCH : bytes) : size;
		}
	}
	return size;
}

/*
 * Makes the memory that poisoned pointers point to, or takes what an earlier test of the session has made. A device that
 * is nearly full gives less, or none.
 */
static void make_scratch(struct md_capture_probe *probe)
{
	struct md_probe_session *session = probe->session;
	uint64_t size = wanted_scratch(probe);
	if (!size)
		return;
	if (size > session->scratch_size && session->scratch) {
		md_cuda.cuMemFree_v2(session->scratch);
		session->scratch = session->scratch_size = 0;
	}
	while (!session->scratch && size) {
		session->scratch_size = size;
		if (md_cuda.cuMemAlloc_v2(&session->scratch, size))
			session->scratch = session->scratch_size = 0;
		size = size > MIN_SCRATCH ? size / 2 : 0;
	}
	probe->scratch = session->scratch;
	probe->scratch_size = session->scratch_size;
}

enum md_status md_capture_probe_prepare_poison(struct md_capture_probe *probe, uint32_t word, struct md_error *err)
{
	if (!probe->scratch)
		make_scratch(probe);
	probe->word = word;
	if (!probe->scratch)
		return MD_OK;
	return md_cuda_call(err, cuMemsetD8Async, probe->scratch, (unsigned char)word, probe->scratch_size,
			    probe->session->device.stream);
}

/* In a batch, the fills of one part lie between its pointers. */
static enum md_status fill_piece(struct md_capture_probe *probe, uint64_t address, uint64_t size, bool by_word,
				 struct md_error *err)
{
	uint64_t words = by_word ? size / 4 * 4 : 0;
	if (words)
		MD_FORWARD(md_device_batch_fill(&probe->session->device, address, probe->word, words, err));
	if (size > words)
		MD_FORWARD(md_device_batch_fill(&probe->session->device, address + words,
						0x01010101u * (probe->word & 0xff), size - words, err));
	return MD_OK;
}

/* Memory that does not begin at a word is filled with the word's lowest byte. */
static enum md_status fill(struct md_capture_probe *probe, uint64_t address, uint64_t size, struct md_error *err)
{
	uint64_t words = address % 4 ? 0 : size / 4;
	if (words)
		MD_FORWARD(
		    md_cuda_call(err, cuMemsetD32Async, address, probe->word, words, probe->session->device.stream));
	if (size > 4 * words)
		MD_FORWARD(md_cuda_call(err, cuMemsetD8Async, address + 4 * words, (unsigned char)probe->word,
					size - 4 * words, probe->session->device.stream));
	return MD_OK;
}

/* A pointer to more memory than the scratch buffer has keeps its value: poisoning it could only cause a fault. */
static uint64_t poisoned_pointer(const struct md_capture_probe *probe, const struct md_probe_pointer *pointer)
{
	return pointer->reach <= probe->scratch_size && !pointer->whole ? probe->scratch : pointer->value;
}

/* Few kernels reach host memory, so a word that looks like a host pointer may be no pointer at all. */
static bool is_plain_word(const struct md_capture_probe *probe, const struct md_probe_pointer *pointer)
{
	return pointer->host && !pointer->whole && pointer->reach > probe->scratch_size;
}

static void set_pointers(const struct md_capture_probe *probe, const struct md_probe_copy *copy, size_t first,
			 uint64_t offset, uint64_t size, uint8_t *to)
{
	for (size_t i = first; i < copy->pointer_count && copy->pointers[i].offset < offset + size; i++) {
		const struct md_probe_pointer *pointer = &copy->pointers[i];
		uint64_t value = poisoned_pointer(probe, pointer);
		for (unsigned b = 0; b < 8 && !is_plain_word(probe, pointer); b++) {
			uint64_t at = pointer->offset + b;
			if (at >= offset && at < offset + size)
				to[at - offset] = (uint8_t)(value >> 8 * b);
		}
	}
}

static size_t first_pointer(const struct md_probe_copy *copy, uint64_t offset)
{
	size_t low = 0, high = copy->pointer_count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (copy->pointers[middle].offset + 8 <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The number of pointers in a part; FEW + 1 if there are more, or if one lies across the border of the part. */
static size_t count_pointers(const struct md_probe_copy *copy, size_t first, uint64_t offset, uint64_t size)
{
	size_t count = 0;
	for (size_t i = first; i < copy->pointer_count && copy->pointers[i].offset < offset + size; i++) {
		uint64_t at = copy->pointers[i].offset;
		if (++count > FEW || at < offset || at + 8 > offset + size)
			return FEW + 1;
	}
	return count;
}

static enum md_status poison_in_batch(struct md_capture_probe *probe, const struct md_probe_region *region,
				      size_t first, size_t pointers, uint64_t offset, uint64_t size, uint64_t to,
				      struct md_error *err)
{
	uint64_t at = 0;
	for (size_t i = first; i < first + pointers; i++) {
		const struct md_probe_pointer *pointer = &region->copy->pointers[i];
		uint64_t next = pointer->offset - offset;
		if (is_plain_word(probe, pointer))
			continue;
		MD_FORWARD(fill_piece(probe, to + at, next - at, to % 4 == 0, err));
		MD_FORWARD(
		    md_device_batch_set(&probe->session->device, to + next, poisoned_pointer(probe, pointer), err));
		at = next + 8;
	}
	return fill_piece(probe, to + at, size - at, to % 4 == 0, err);
}

/* Poisons a part on the device, together with its few pointers; `to` is where the part goes. */
static enum md_status poison_on_device(struct md_capture_probe *probe, const struct md_probe_region *region,
				       size_t first, size_t pointers, uint64_t offset, uint64_t size, uint64_t to,
				       struct md_error *err)
{
	if (probe->session->device.pieces)
		return poison_in_batch(probe, region, first, pointers, offset, size, to, err);
	MD_FORWARD(fill(probe, to, size, err));
	for (size_t i = first; i < first + pointers; i++) {
		const struct md_probe_pointer *pointer = &region->copy->pointers[i];
		uint64_t value = poisoned_pointer(probe, pointer), address = to + (pointer->offset - offset);
		if (is_plain_word(probe, pointer))
			continue;
		MD_FORWARD(
		    md_cuda_call(err, cuMemsetD32Async, address, (uint32_t)value, 1, probe->session->device.stream));
		MD_FORWARD(md_cuda_call(err, cuMemsetD32Async, address + 4, (uint32_t)(value >> 32), 1,
					probe->session->device.stream));
	}
	return MD_OK;
}

/* Poisons on the device if there are few pointers; otherwise makes the bytes here and copies them. */
static enum md_status poison(struct md_capture_probe *probe, const struct md_probe_region *region, uint64_t offset,
			     uint64_t size, struct md_error *err)
{
	struct md_probe_session *session = probe->session;
	for (uint64_t end = offset + size; offset < end; offset += size) {
		size_t first = first_pointer(region->copy, offset), pointers;
		size = end - offset < MD_PROBE_CHUNK_BYTES ? end - offset : MD_PROBE_CHUNK_BYTES;
		pointers = count_pointers(region->copy, first, offset, size);
		if (pointers <= FEW) {
			MD_FORWARD(poison_on_device(probe, region, first, pointers, offset, size,
						    region->address + offset, err));
			continue;
		}
		for (uint64_t at = 0; at < size; at++)
			session->device.now[at] = (uint8_t)(probe->word >> 8 * (at % 4));
		set_pointers(probe, region->copy, first, offset, size, session->device.now);
		MD_FORWARD(md_device_session_write(&session->device, region->address + offset, session->device.now,
						   size, err));
		MD_FORWARD(md_cuda_call(err, cuStreamSynchronize, session->device.stream));
	}
	return MD_OK;
}

struct md_probe_run md_capture_probe_next_run(const struct md_capture_probe *probe, size_t *at, size_t from, size_t to)
{
	const struct md_probe_unit *units = probe->units;
	size_t i = *at;
	struct md_probe_run run = {.region = units[i].region,
				   .poisoned = i >= from && i < to && !units[i].keep,
				   .inverse = units[i].inverse,
				   .offset = units[i].offset};
	for (; i < probe->unit_count && units[i].region == run.region; i++) {
		if ((i >= from && i < to && !units[i].keep) != run.poisoned || units[i].inverse != run.inverse)
			break;
		run.size += units[i].size;
	}
	*at = i;
	return run;
}

static enum md_status place_run(struct md_capture_probe *probe, const struct md_probe_run *run, struct md_error *err)
{
	const struct md_probe_region *region = &probe->regions[run->region];
	uint32_t word = probe->word;
	enum md_status status;
	if (!run->poisoned)
		return md_capture_copy_put_back(probe->session, region->copy, run->offset, run->size, err);
	probe->word = run->inverse ? ~word : word;
	status = poison(probe, region, run->offset, run->size, err);
	probe->word = word;
	return status;
}

enum md_status md_capture_probe_place_private(struct md_capture_probe *probe, size_t from, size_t to,
					      struct md_error *err)
{
	md_device_batch_begin(&probe->session->device);
	for (size_t i = 0; i < probe->unit_count;) {
		struct md_probe_run run = md_capture_probe_next_run(probe, &i, from, to);
		MD_FORWARD(place_run(probe, &run, err));
	}
	return md_device_batch_launch(&probe->session->device, err);
}

void md_capture_probe_expect(const struct md_capture_probe *probe, const struct md_probe_region *region,
			     uint64_t offset, uint64_t size, uint8_t *to)
{
	memset(to, (int)(probe->word & 0xff), (size_t)size);
	set_pointers(probe, region->copy, first_pointer(region->copy, offset), offset, size, to);
}

enum md_status md_capture_probe_expect_on_device(struct md_capture_probe *probe, const struct md_probe_region *region,
						 uint64_t offset, uint64_t size, uint64_t to, bool *done,
						 struct md_error *err)
{
	size_t first = first_pointer(region->copy, offset);
	size_t pointers = count_pointers(region->copy, first, offset, size);
	*done = false;
	if (pointers <= FEW)
		MD_FORWARD(poison_on_device(probe, region, first, pointers, offset, size, to, err));
	*done = pointers <= FEW;
	return MD_OK;
}

/* ---- units ---- */

/* Whether an earlier graph needed the bytes from at on. *size is for how many bytes of [at, end) the answer holds. */
static bool is_needed(uint64_t at, uint64_t end, uint64_t *size) MD_CAPTURE_HELD
{
	const struct md_interval *item = md_interval_floor(&needed, at);
	if (item && at - item->start < item->size) {
		*size = item->start + item->size < end ? item->start + item->size - at : end - at;
		return true;
	}
	item = md_interval_after(&needed, at);
	*size = item && item->start < end ? item->start - at : end - at;
	return false;
}

static size_t cut(struct md_probe_unit *to, const struct md_probe_unit *part, uint32_t bytes)
{
	size_t count = 0;
	for (uint64_t at = 0; at < part->size; at += bytes)
		to[count++] = (struct md_probe_unit){
		    .region = part->region,
		    .offset = part->offset + at,
		    .size = part->size - at < bytes ? part->size - at : bytes,
		};
	return count;
}

static size_t cut_region(const struct md_capture_probe *probe, uint32_t region, uint32_t bytes,
			 struct md_probe_unit *to) MD_CAPTURE_HELD
{
	uint64_t address = probe->regions[region].address, end = address + probe->regions[region].size, size;
	size_t count = 0;
	for (uint64_t at = address; at < end; at += size) {
		bool known = is_needed(at, end, &size);
		struct md_probe_unit part = {
		    .region = region, .keep = known, .known = known, .offset = at - address, .size = size};
		if (known)
			to[count++] = part;
		else
			count += cut(to + count, &part, bytes);
	}
	return count;
}

static size_t most_units(const struct md_capture_probe *probe, uint32_t bytes) MD_CAPTURE_HELD
{
	size_t count = 2 * (probe->region_count + needed.count) + 1;
	for (uint32_t i = 0; i < probe->region_count && !probe->units; i++) {
		if (probe->regions[i].kind == MD_PROBE_REGION_PRIVATE)
			count += (size_t)(probe->regions[i].size / bytes) + 2 * needed.count;
	}
	for (size_t i = 0; i < probe->unit_count; i++)
		count += probe->units[i].keep ? (size_t)(probe->units[i].size / bytes) + 2 : 1;
	return count;
}

enum md_status md_capture_probe_cut(struct md_capture_probe *probe, uint32_t bytes, struct md_error *err)
{
	struct md_probe_unit *units = calloc(most_units(probe, bytes), sizeof(*units));
	size_t count = 0;
	if (!units)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the units of a poison test");
	for (uint32_t i = 0; i < probe->region_count && !probe->units; i++) {
		if (probe->regions[i].kind == MD_PROBE_REGION_PRIVATE)
			count += cut_region(probe, i, bytes, units + count);
	}
	for (size_t i = 0; i < probe->unit_count; i++) {
		if (probe->units[i].keep && !probe->units[i].known && probe->units[i].size > bytes)
			count += cut(units + count, &probe->units[i], bytes);
		else
			units[count++] = probe->units[i];
	}
	free(probe->units);
	probe->units = units;
	probe->unit_count = count;
	return MD_OK;
}

/* Out of memory only costs time: the next graph is searched again. */
enum md_status md_capture_probe_need(uint64_t address, uint64_t size, struct md_error *err)
{
	const struct md_interval *whole = md_interval_find(&needed, address);
	if ((whole && size <= whole->start + whole->size - address) || md_interval_add(&needed, address, size, 0))
		return MD_OK;
	return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for an address in the memory of a graph");
}

void md_capture_probe_learn(const struct md_capture_probe *probe)
{
	for (size_t i = 0; i < probe->unit_count; i++) {
		const struct md_probe_unit *unit = &probe->units[i];
		uint64_t start = probe->regions[unit->region].address + unit->offset;
		const struct md_interval *whole = md_interval_find(&needed, start);
		if (unit->keep && !(whole && unit->size <= whole->start + whole->size - start))
			md_interval_add(&needed, start, unit->size, 0);
	}
}
