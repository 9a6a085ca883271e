/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the addresses that private memory holds, in the copies of it: on the device where it can, else on the host. */
#include <string.h>

#include "base/array.h"
#include "capture/probe/held_addresses.h"
#include "capture/probe/copies.h"
#include "capture/record/tensor_maps.h"
#include "driver/device_pieces.h"
#include "driver/device_search.h"

#define MAP_ALIGNMENT 64          /* of tensor maps, by the driver */
#define SEARCHED (64u << 10)      /* bytes; the host looks through smaller copies in less time than a launch takes */
#define AHEAD MD_TENSOR_MAP_BYTES /* bytes that are read behind a part, because a tensor map may begin at its end */

/* A copy that is being looked through, from its beginning to its end. */
struct reader {
	struct md_probe_copy *copy;
	size_t room;
	uint64_t next; /* offset of the first word that was not judged yet */
};

static enum md_status add_pointer(struct reader *reader, struct md_probe_pointer pointer, struct md_error *err)
{
	struct md_probe_copy *copy = reader->copy;
	if (!MD_ARRAY_GROW(copy->pointers, copy->pointer_count, reader->room))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for an address in the memory of a graph");
	copy->pointers[copy->pointer_count++] = pointer;
	return MD_OK;
}

/* The words behind the address of a tensor map that lies at `data`: *bytes of them, 0 if there is none. */
static enum md_status add_tensor_map(struct reader *reader, uint64_t offset, const uint8_t *data, size_t size,
				     size_t *bytes, struct md_error *err) MD_CAPTURE_HELD
{
	struct md_probe_pointer word = {.whole = true};
	*bytes = 0;
	if ((reader->copy->address + offset) % MAP_ALIGNMENT || size < MD_TENSOR_MAP_BYTES ||
	    !md_capture_is_tensor_map(data))
		return MD_OK;
	for (size_t at = 8; at < MD_TENSOR_MAP_BYTES; at += 8) {
		word.offset = offset + at;
		memcpy(&word.value, data + at, 8);
		MD_FORWARD(add_pointer(reader, word, err));
	}
	*bytes = MD_TENSOR_MAP_BYTES - 8;
	return MD_OK;
}

static uint64_t lowest_address(void) MD_CAPTURE_HELD
{
	return md_capture.live.count ? md_capture.live.items[0].start : 1;
}

/* Behind the last one. */
static uint64_t highest_address(void) MD_CAPTURE_HELD
{
	const struct md_interval *last = md_capture.live.items + md_capture.live.count - 1;
	return md_capture.live.count ? last->start + last->size : 0;
}

/* Judges the words of [offset, offset + size) of the copy, as far as none of a tensor map; `data` has `ahead` bytes more. */
static enum md_status read_words(struct reader *reader, uint64_t offset, const uint8_t *data, size_t size, size_t ahead,
				 struct md_error *err) MD_CAPTURE_HELD
{
	const uint64_t lowest = lowest_address(), highest = highest_address();
	size_t at = reader->next > offset ? (size_t)(reader->next - offset) : 0;
	for (size_t more; at + 8 <= size; at += 8 + more) {
		const struct md_interval *item;
		struct md_probe_pointer pointer = {.offset = offset + at};
		more = 0;
		memcpy(&pointer.value, data + at, 8);
		if (pointer.value < lowest || pointer.value >= highest ||
		    !(item = md_interval_find(&md_capture.live, pointer.value)))
			continue;
		pointer.reach = item->size - (pointer.value - item->start);
		pointer.host = item->value == MD_ALLOC_HOST;
		MD_FORWARD(add_pointer(reader, pointer, err));
		MD_FORWARD(add_tensor_map(reader, offset + at, data + at, size + ahead - at, &more, err));
	}
	reader->next = offset + at;
	return MD_OK;
}

/* Words lie at multiples of 8 bytes of the memory itself. */
static uint64_t first_word(const struct md_probe_copy *copy)
{
	return (8 - copy->address % 8) % 8;
}

/* ---- where the device flags the grains that may have addresses ---- */

#define MOST_PARTS 256

struct part { /* flagged grains in a row */
	struct md_probe_copy *copy;
	uint64_t offset;
	size_t size, ahead, staged; /* bytes; staged: where they are in the session's staging memory */
};

struct parts {
	struct reader reader;
	size_t count, staged;
	struct part items[MOST_PARTS];
};

static bool is_searched(const struct md_probe_session *session, const struct md_probe_copy *copy)
{
	return copy->device && copy->size >= SEARCHED && copy->address % 8 == 0 &&
	       md_device_search_can(&session->device, copy->device);
}

static enum md_status read_parts(struct md_probe_session *session, struct parts *parts,
				 struct md_error *err) MD_CAPTURE_HELD
{
	struct md_device_session *device = &session->device;
	md_device_batch_begin(device);
	for (size_t i = 0; i < parts->count; i++) {
		const struct part *part = &parts->items[i];
		MD_FORWARD(md_device_batch_read(device, part->staged, part->copy->device + part->offset,
						part->size + part->ahead, err));
	}
	MD_FORWARD(md_device_batch_read_wait(device, err));
	for (size_t i = 0; i < parts->count; i++) {
		const struct part *part = &parts->items[i];
		if (parts->reader.copy != part->copy)
			parts->reader = (struct reader){.copy = part->copy};
		MD_FORWARD(
		    read_words(&parts->reader, part->offset, device->now + part->staged, part->size, part->ahead, err));
	}
	parts->count = parts->staged = 0;
	return MD_OK;
}

/* Adds the bytes from *at on, up to `end`, as far as they fit beside what is there already. */
static enum md_status add_part(struct md_probe_session *session, struct parts *parts, struct md_probe_copy *copy,
			       uint64_t *at, uint64_t end, struct md_error *err) MD_CAPTURE_HELD
{
	struct part part = {.copy = copy, .offset = *at};
	if (parts->count == MOST_PARTS || MD_PROBE_CHUNK_BYTES - parts->staged < MD_DEVICE_GRAIN + AHEAD)
		MD_FORWARD(read_parts(session, parts, err));
	part.size = MD_PROBE_CHUNK_BYTES - parts->staged - AHEAD;
	part.size -= part.size % MD_DEVICE_GRAIN;
	part.size = end - *at < part.size ? (size_t)(end - *at) : part.size;
	*at += part.size;
	part.ahead = copy->size - *at < AHEAD ? (size_t)(copy->size - *at) : AHEAD;
	part.staged = parts->staged;
	parts->staged += part.size + part.ahead + (8 - (part.size + part.ahead) % 8) % 8;
	parts->items[parts->count++] = part;
	return MD_OK;
}

static size_t grains_of(const struct md_probe_copy *copy)
{
	return (size_t)((copy->size + MD_DEVICE_GRAIN - 1) / MD_DEVICE_GRAIN);
}

static enum md_status read_flagged(struct md_probe_session *session, struct parts *parts, struct md_probe_copy *copy,
				   const uint8_t *flags, struct md_error *err) MD_CAPTURE_HELD
{
	const size_t grains = grains_of(copy);
	const uint8_t *flag = memchr(flags, 1, grains);
	while (flag) {
		const uint8_t *none = memchr(flag, 0, grains - (size_t)(flag - flags));
		uint64_t at = (uint64_t)(flag - flags) * MD_DEVICE_GRAIN;
		uint64_t end = none ? (uint64_t)(none - flags) * MD_DEVICE_GRAIN : copy->size;
		while (at < end)
			MD_FORWARD(add_part(session, parts, copy, &at, end, err));
		flag = none ? memchr(none, 1, grains - (size_t)(none - flags)) : NULL;
	}
	return MD_OK;
}

/* Copies whose flags fit together. */
static enum md_status search_together(struct md_probe_session *session, struct md_probe_copy *const *copies,
				      size_t count, size_t flags, struct md_error *err) MD_CAPTURE_HELD
{
	struct parts parts = {.count = 0};
	size_t flag = 0;
	MD_FORWARD(md_device_differ_begin(&session->device, flags, err));
	for (size_t i = 0; i < count; flag += grains_of(copies[i++]))
		MD_FORWARD(md_device_search_launch(&session->device, copies[i]->device, copies[i]->size,
						   lowest_address(), highest_address(), flag, err));
	MD_FORWARD(md_device_differ_end(&session->device, flags, err));
	flag = 0;
	for (size_t i = 0; i < count; flag += grains_of(copies[i++]))
		MD_FORWARD(read_flagged(session, &parts, copies[i], session->device.flag_bytes + flag, err));
	return read_parts(session, &parts, err);
}

/* Moves the copies that the device searches to the front; returns how many there are. */
static size_t put_searched_first(const struct md_probe_session *session, struct md_probe_copy **copies, size_t count)
{
	size_t searched = 0;
	for (size_t i = 0; i < count; i++) {
		struct md_probe_copy *copy = copies[i];
		if (!is_searched(session, copy) || grains_of(copy) > MD_DEVICE_GRAINS)
			continue;
		copies[i] = copies[searched];
		copies[searched++] = copy;
	}
	return searched;
}

static enum md_status search(struct md_probe_session *session, struct md_probe_copy *const *copies, size_t count,
			     struct md_error *err) MD_CAPTURE_HELD
{
	for (size_t at = 0, end; at < count; at = end) {
		size_t flags = 0;
		for (end = at; end < count && flags + grains_of(copies[end]) <= MD_DEVICE_GRAINS; end++)
			flags += grains_of(copies[end]);
		MD_FORWARD(search_together(session, copies + at, end - at, flags, err));
	}
	return MD_OK;
}

/* ---- where the host looks at all of it ---- */

/* Handles a copy that does not fit in the staging memory, or is the only one. */
static enum md_status read_long(struct md_probe_session *session, struct md_probe_copy *copy,
				struct md_error *err) MD_CAPTURE_HELD
{
	struct reader reader = {.copy = copy};
	for (uint64_t at = first_word(copy), size, ahead; at + 8 <= copy->size; at += size) {
		const uint64_t most = MD_PROBE_CHUNK_BYTES - AHEAD;
		size = copy->size - at < most ? copy->size - at : most;
		ahead = copy->size - at - size < AHEAD ? copy->size - at - size : AHEAD;
		MD_FORWARD(md_capture_copy_read(session, copy, at, size + ahead, session->device.now, err));
		MD_FORWARD(read_words(&reader, at, session->device.now, size, ahead, err));
	}
	return MD_OK;
}

/* Counts the first copies that fit in the staging memory together. */
static size_t count_fitting(struct md_probe_copy *const *copies, size_t count)
{
	uint64_t size = 0;
	size_t fitting = 0;
	while (fitting < count && (size += copies[fitting]->size) <= MD_PROBE_CHUNK_BYTES)
		fitting++;
	return fitting;
}

static enum md_status read_together(struct md_probe_session *session, struct md_probe_copy *const *copies, size_t count,
				    struct md_error *err) MD_CAPTURE_HELD
{
	struct md_device_session *device = &session->device;
	const uint8_t *to = device->now;
	size_t staged = 0;
	md_device_batch_begin(device);
	for (size_t i = 0; i < count; staged += copies[i++]->size)
		if (copies[i]->device)
			MD_FORWARD(md_device_batch_read(device, staged, copies[i]->device, copies[i]->size, err));
	MD_FORWARD(md_device_batch_read_wait(device, err));
	staged = 0;
	for (size_t i = 0; i < count; staged += copies[i++]->size)
		if (!copies[i]->device)
			memcpy(device->now + staged, copies[i]->host, copies[i]->size);
	for (size_t i = 0; i < count; to += copies[i++]->size) {
		struct reader reader = {.copy = copies[i]};
		uint64_t first = first_word(copies[i]);
		if (first < copies[i]->size)
			MD_FORWARD(read_words(&reader, first, to + first, copies[i]->size - first, 0, err));
	}
	return MD_OK;
}

enum md_status md_capture_addresses_find(struct md_probe_session *session, struct md_probe_copy **copies, size_t count,
					 struct md_error *err)
{
	size_t at = put_searched_first(session, copies, count);
	MD_FORWARD(search(session, copies, at, err));
	for (size_t fitting; at < count; at += fitting) {
		fitting = count_fitting(copies + at, count - at);
		if (fitting)
			MD_FORWARD(read_together(session, copies + at, fitting, err));
		else
			MD_FORWARD(read_long(session, copies[at], err));
		fitting += !fitting;
	}
	for (size_t i = 0; i < count; i++)
		copies[i]->followed = true;
	return MD_OK;
}
