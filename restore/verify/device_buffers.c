/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bound memory in verify mode, if the device has room for copies: it is saved, compared and put back on the device. A
 * kernel of ours handles all of it in one launch, so that there is no wait for a single buffer or window.
 */
#include <string.h>

#include "base/array.h"
#include "driver/device_pieces.h"
#include "restore/restore.h"
#include "restore/verify/buffers.h"
#include "restore/verify/device_buffers.h"

#define SLICE ((uint64_t)MD_DEVICE_GRAINS * MD_DEVICE_GRAIN) /* bytes that are compared at a time */

/* ---- room ---- */

/* Takes two copies: the bytes of now, and room for those that the live graph will leave. */
bool md_verify_device_take(struct md_verify_memory *m, struct md_verify_buffer *b)
{
	struct md_device_session *device = &m->session.device;
	if (!device->pieces || !b->mapped || 2 * b->size > device->device_left)
		return false;
	b->copy = md_device_session_take(device, b->size);
	b->live = b->copy ? md_device_session_take(device, b->size) : 0;
	if (!b->live)
		b->copy = 0;
	return b->copy != 0;
}

/* Each window begins at a grain, so that each grain's flag is about one window. */
static uint64_t slot_of(const struct md_verify_buffer *b)
{
	return ((uint64_t)b->sample.bytes + MD_DEVICE_GRAIN - 1) / MD_DEVICE_GRAIN * MD_DEVICE_GRAIN;
}

static CUdeviceptr window_at(const struct md_verify_memory *m, const struct md_verify_buffer *b, uint32_t window)
{
	return m->room + b->windows_at + window * slot_of(b);
}

void md_verify_device_take_room(struct md_verify_memory *m)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; m->session.device.pieces && i < m->count; i++) {
		struct md_verify_buffer *b = &m->buffers[i];
		uint64_t more = b->sampled ? b->sample.windows * slot_of(b) : 0;
		b->gathered = b->sampled && b->mapped && bytes + more <= SLICE;
		b->windows_at = bytes;
		bytes += b->gathered ? more : 0;
	}
	m->room = bytes ? md_device_session_take(&m->session.device, 2 * bytes) : 0;
	m->room_bytes = bytes;
	for (uint32_t i = 0; !m->room && i < m->count; i++)
		m->buffers[i].gathered = false;
}

/* ---- copies ---- */

static enum md_status gather(struct md_verify_memory *m, const struct md_verify_buffer *b, uint64_t to,
			     struct md_error *err)
{
	for (uint32_t i = 0; i < b->sample.windows; i++)
		MD_FORWARD(md_device_batch_copy(&m->session.device, window_at(m, b, i) + to,
						b->address + md_sample_offset(&b->sample, i), b->sample.bytes, err));
	return MD_OK;
}

/* live: what the live graph has left. */
static enum md_status keep(struct md_verify_memory *m, bool live, struct md_error *err)
{
	struct md_device_session *device = &m->session.device;
	md_device_batch_begin(device);
	for (uint32_t i = 0; i < m->count; i++) {
		const struct md_verify_buffer *b = &m->buffers[i];
		if (b->copy)
			MD_FORWARD(md_device_batch_copy(device, live ? b->live : b->copy, b->address, b->size, err));
		if (b->gathered)
			MD_FORWARD(gather(m, b, live ? m->room_bytes : 0, err));
	}
	return md_device_batch_launch(device, err);
}

enum md_status md_verify_device_save(struct md_verify_memory *m, struct md_error *err)
{
	return keep(m, false, err);
}

enum md_status md_verify_device_put_back(struct md_verify_memory *m, struct md_error *err)
{
	struct md_device_session *device = &m->session.device;
	md_device_batch_begin(device);
	for (uint32_t i = 0; i < m->count; i++)
		if (m->buffers[i].copy)
			MD_FORWARD(md_device_batch_copy(device, m->buffers[i].address, m->buffers[i].copy,
							m->buffers[i].size, err));
	return md_device_batch_launch(device, err);
}

/* ---- comparisons ---- */

/* Called for each range that differs; the flags are from range->flag on. */
typedef enum md_status taker(struct md_verify_memory *m, const struct md_verify_range *range, struct md_error *differs,
			     struct md_error *err);

static size_t grains_of(uint64_t size)
{
	return (size_t)((size + MD_DEVICE_GRAIN - 1) / MD_DEVICE_GRAIN);
}

static enum md_status compare_ranges(struct md_verify_memory *m, taker *take, struct md_error *differs,
				     struct md_error *err)
{
	struct md_device_session *device = &m->session.device;
	const size_t count = m->range_count, flags = m->flags;
	m->range_count = m->flags = 0;
	if (!count)
		return MD_OK;
	md_device_batch_begin(device);
	MD_FORWARD(md_device_differ_begin(device, flags, err));
	for (size_t i = 0; i < count; i++) {
		const struct md_verify_range *range = &m->ranges[i];
		MD_FORWARD(md_device_batch_differ(device, range->now, range->live, range->size, range->flag, err));
	}
	MD_FORWARD(md_device_batch_launch(device, err));
	MD_FORWARD(md_device_differ_end(device, flags, err));
	for (size_t i = 0; i < count; i++)
		if (memchr(device->flag_bytes + m->ranges[i].flag, 1, grains_of(m->ranges[i].size)))
			MD_FORWARD(take(m, &m->ranges[i], differs, err));
	return MD_OK;
}

static enum md_status add_range(struct md_verify_memory *m, struct md_verify_range range, taker *take,
				struct md_error *differs, struct md_error *err)
{
	if (m->flags + grains_of(range.size) > MD_DEVICE_GRAINS)
		MD_FORWARD(compare_ranges(m, take, differs, err));
	if (!MD_ARRAY_GROW(m->ranges, m->range_count, m->range_room))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for what is compared on the device");
	range.flag = m->flags;
	m->flags += grains_of(range.size);
	m->ranges[m->range_count++] = range;
	return MD_OK;
}

/* Adds all buffers that have copies: compares their present bytes with those that the live graph has left. */
static enum md_status add_buffers(struct md_verify_memory *m, bool before, taker *take, struct md_error *differs,
				  struct md_error *err)
{
	m->range_count = m->flags = 0;
	for (uint32_t i = 0; i < m->count; i++) {
		const struct md_verify_buffer *b = &m->buffers[i];
		struct md_verify_range range = {.buffer = i};
		for (; b->copy && range.offset < b->size; range.offset += range.size) {
			range.size = b->size - range.offset < SLICE ? b->size - range.offset : SLICE;
			range.now = (before ? b->copy : b->address) + range.offset;
			range.live = b->live + range.offset;
			MD_FORWARD(add_range(m, range, take, differs, err));
		}
	}
	return MD_OK;
}

/* ---- after the live replay ---- */

static enum md_status add_window(struct md_verify_memory *m, const struct md_verify_range *range, struct md_error *err)
{
	if (!MD_ARRAY_GROW(m->spans, m->span_count, m->span_room))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for what the live graph wrote");
	m->spans[m->span_count++] = (struct md_verify_span){.buffer = range->buffer,
							    .size = (uint32_t)range->size,
							    .offset = range->offset,
							    .device_live = range->live};
	return MD_OK;
}

/* Takes a range that the live graph has changed. Windows that are always compared have become spans before. */
static enum md_status take_changed(struct md_verify_memory *m, const struct md_verify_range *range,
				   struct md_error *differs, struct md_error *err)
{
	const struct md_verify_buffer *b = &m->buffers[range->buffer];
	(void)differs;
	m->changed = true;
	if (!b->gathered)
		return MD_OK;
	uint32_t window = (uint32_t)((range->now - window_at(m, b, 0)) / slot_of(b));
	return md_sample_stays(&b->sample, window, m->sampled_count) ? MD_OK : add_window(m, range, err);
}

static enum md_status add_windows(struct md_verify_memory *m, struct md_error *err)
{
	for (uint32_t i = 0; i < m->count; i++) {
		const struct md_verify_buffer *b = &m->buffers[i];
		for (uint32_t window = 0; b->gathered && window < b->sample.windows; window++) {
			struct md_verify_range range = {.buffer = i,
							.offset = md_sample_offset(&b->sample, window),
							.size = b->sample.bytes,
							.now = window_at(m, b, window),
							.live = window_at(m, b, window) + m->room_bytes};
			MD_FORWARD(add_range(m, range, take_changed, NULL, err));
			if (md_sample_stays(&b->sample, window, m->sampled_count))
				MD_FORWARD(add_window(m, &range, err));
		}
	}
	return MD_OK;
}

enum md_status md_verify_device_take_live(struct md_verify_memory *m, struct md_error *err)
{
	MD_FORWARD(keep(m, true, err));
	MD_FORWARD(md_verify_device_put_back(m, err));
	MD_FORWARD(add_buffers(m, true, take_changed, NULL, err));
	MD_FORWARD(add_windows(m, err));
	return compare_ranges(m, take_changed, NULL, err);
}

/* ---- after the others ---- */

/* The next run of differing grains, no longer than half of staging: the other half is for the old bytes. */
static bool next_stretch(const uint8_t *flags, size_t count, size_t *at, size_t *end)
{
	const size_t most = MD_DEVICE_CHUNK / 2 / MD_DEVICE_GRAIN;
	const uint8_t *first = *at < count ? memchr(flags + *at, 1, count - *at) : NULL;
	if (!first)
		return false;
	*at = (size_t)(first - flags);
	for (*end = *at + 1; *end < count && *end - *at < most && flags[*end]; ++*end)
		;
	return true;
}

static enum md_status explain(struct md_verify_memory *m, const struct md_verify_range *range, uint64_t offset,
			      size_t size, struct md_error *differs, struct md_error *err)
{
	struct md_device_session *device = &m->session.device;
	uint8_t *now = device->now, *live = device->now + MD_DEVICE_CHUNK / 2;
	size_t at = 0, end = 0;
	MD_FORWARD(md_device_session_read(device, now, range->now + offset, size, err));
	MD_FORWARD(md_device_session_read(device, live, range->live + offset, size, err));
	for (; md_change_next(live, now, size, &at, &end); at = end)
		md_verify_note_difference(m, range->buffer, range->offset + offset + at, live + at, now + at, end - at,
					  differs);
	return MD_OK;
}

static enum md_status take_differences(struct md_verify_memory *m, const struct md_verify_range *range,
				       struct md_error *differs, struct md_error *err)
{
	const uint8_t *flags = m->session.device.flag_bytes + range->flag;
	size_t grains = grains_of(range->size), at = 0, end = 0;
	for (; next_stretch(flags, grains, &at, &end); at = end) {
		uint64_t offset = (uint64_t)at * MD_DEVICE_GRAIN, last = (uint64_t)end * MD_DEVICE_GRAIN;
		last = last < range->size ? last : range->size;
		MD_FORWARD(explain(m, range, offset, (size_t)(last - offset), differs, err));
	}
	return MD_OK;
}

enum md_status md_verify_device_compare(struct md_verify_memory *m, struct md_error *differs, struct md_error *err)
{
	MD_FORWARD(add_buffers(m, false, take_differences, differs, err));
	for (size_t i = 0; i < m->span_count; i++) {
		const struct md_verify_span *span = &m->spans[i];
		struct md_verify_range range = {.buffer = span->buffer,
						.offset = span->offset,
						.size = span->size,
						.now = m->buffers[span->buffer].address + span->offset,
						.live = span->device_live};
		if (span->device_live)
			MD_FORWARD(add_range(m, range, take_differences, differs, err));
	}
	MD_FORWARD(compare_ranges(m, take_differences, differs, err));
	return md_verify_device_put_back(m, err);
}
