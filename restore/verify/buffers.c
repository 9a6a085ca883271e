/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's buffers in verify mode: saved on the device, or on the
 * host, where only the parts that a live replay writes are compared.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/descriptor.h"
#include "base/environment.h"
#include "base/setting.h"
#include "base/sample.h"
#include "driver/maker.h"
#include "restore/restore.h"
#include "restore/verify/buffers.h"
#include "restore/verify/device_buffers.h"

#define DEFAULT_LIMIT (4ull << 30)

/* ---- which buffers ---- */

uint64_t md_verify_memory_room(void)
{
	MD_AUTO_FILE FILE *info = md_descriptor_read_stream("/proc/meminfo");
	char line[256];
	unsigned long long kilobytes = 0;
	uint64_t limit = md_setting_number("MEDUSA_PROBE_LIMIT", 0, UINT64_MAX, DEFAULT_LIMIT);
	while (info && fgets(line, sizeof(line), info))
		if (sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1)
			return kilobytes * 1024u / 2 < limit ? kilobytes * 1024u / 2 : limit;
	return limit;
}

static enum md_status list_buffers(struct md_verify_memory *m, struct md_restore *r, struct md_error *err)
    MD_REQUIRES(md_restore_work)
{
	m->buffers = calloc(r->artifact.binding_count + 1u, sizeof(*m->buffers));
	m->constants = calloc(r->artifact.binding_count + 1u, sizeof(*m->constants));
	if (!m->buffers || !m->constants)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a list of %u buffers",
				    r->artifact.binding_count);
	pthread_mutex_lock(&md_restore_lock);
	for (uint32_t i = 0; i < r->artifact.binding_count; i++) {
		if (r->binding_of[i] == MD_NONE || md_maker_is_name(r->artifact.bindings[i].name))
			continue; /* other ranks write what communication libraries have made */
		const struct md_bound *bound = &r->bound[r->binding_of[i]];
		struct md_verify_buffer buffer = {
		    .name = r->artifact.bindings[i].name,
		    .address = bound->address,
		    .size = bound->size,
		    .state = bound->role == MD_BIND_STATE,
		    .output = bound->role == MD_BIND_OUTPUT,
		    .mapped =
			m->session.device.pieces && md_verify_is_mapped(r, bound->address, bound->size, bound->freed)};
		if (bound->role == MD_BIND_CONSTANT)
			m->constants[m->constant_count++] = buffer;
		else
			m->buffers[m->count++] = buffer;
	}
	pthread_mutex_unlock(&md_restore_lock);
	return MD_OK;
}

/*
 * Of the buffers that did not fit on the device, inputs and outputs are always saved, and state if it fits. If all of a
 * buffer is written, there are two copies of it.
 */
static enum md_status choose_sampled(struct md_verify_memory *m, struct md_error *err)
{
	MD_AUTO_FREE uint64_t *sizes = calloc(m->count + 1u, sizeof(*sizes));
	MD_AUTO_FREE bool *sampled = calloc(m->count + 1u, sizeof(*sampled));
	uint64_t left, fixed = 0;
	bool all = true;
	if (!sizes || !sampled)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a list of %u buffers", m->count);
	for (uint32_t i = 0; i < m->count; i++) {
		if (m->buffers[i].copy)
			continue;
		all = false;
		sizes[i] = m->buffers[i].state ? m->buffers[i].size : 0;
		fixed += m->buffers[i].state ? 0 : m->buffers[i].size;
	}
	if (all)
		return MD_OK;
	left = md_verify_memory_room() / 2;
	if (fixed > left)
		return md_error_set(err, MD_ERR_NO_MEMORY,
				    "no room for two copies of %llu bytes of inputs and outputs (MEDUSA_PROBE_LIMIT)",
				    (unsigned long long)fixed);
	m->sampled_count = md_sample_choose(sizes, m->count, left - fixed, sampled);
	for (uint32_t i = 0; i < m->count; i++) {
		m->buffers[i].sampled = sampled[i];
		if (sampled[i])
			m->buffers[i].sample = md_sample_plan(m->buffers[i].size, m->sampled_count);
	}
	return MD_OK;
}

/*
 * Takes copies on the device of inputs, outputs and small state first. Buffers of one size are layers of the same thing,
 * and are all copied or none: copying one layer of a cache that fills the device would cost each comparison many times as
 * much as everything else, and show no more than the samples of the other layers.
 */
static enum md_status take_on_device(struct md_verify_memory *m, struct md_error *err)
{
	MD_AUTO_FREE uint64_t *sizes = calloc(m->count + 1u, sizeof(*sizes));
	MD_AUTO_FREE bool *left = calloc(m->count + 1u, sizeof(*left));
	uint64_t fixed = 0, room = m->session.device.device_left;
	if (!sizes || !left)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a list of %u buffers", m->count);
	for (uint32_t i = 0; i < m->count; i++) {
		sizes[i] = m->buffers[i].state ? 2 * m->buffers[i].size : 0; /* before, and after the live replay */
		fixed += m->buffers[i].state ? 0 : 2 * m->buffers[i].size;
	}
	md_sample_choose(sizes, m->count, fixed < room ? room - fixed : 0, left);
	for (uint32_t i = 0; i < m->count; i++)
		if (!left[i])
			md_verify_device_take(m, &m->buffers[i]);
	return MD_OK;
}

enum md_status md_verify_memory_init(struct md_verify_memory *m, struct md_restore *r, struct md_error *err)
{
	*m = (struct md_verify_memory){0};
	uint64_t most = md_setting_number("MEDUSA_PROBE_DEVICE_LIMIT", 0, UINT64_MAX, UINT64_MAX);
	MD_FORWARD(md_verify_session_open(&m->session, r, most, err));
	MD_FORWARD(list_buffers(m, r, err));
	MD_FORWARD(take_on_device(m, err));
	MD_FORWARD(choose_sampled(m, err));
	md_verify_device_take_room(m);
	return MD_OK;
}

static size_t chunk_count(const struct md_verify_buffer *b)
{
	return (size_t)((b->size + MD_VERIFY_CHUNK - 1) / MD_VERIFY_CHUNK);
}

static size_t chunk_size(const struct md_verify_buffer *b, size_t chunk)
{
	uint64_t left = b->size - (uint64_t)chunk * MD_VERIFY_CHUNK;
	return left < MD_VERIFY_CHUNK ? (size_t)left : MD_VERIFY_CHUNK;
}

void md_verify_memory_finish(struct md_verify_memory *m)
{
	for (uint32_t i = 0; i < m->count; i++) {
		for (size_t c = 0; m->buffers[i].chunks && c < chunk_count(&m->buffers[i]); c++)
			free(m->buffers[i].chunks[c]);
		free(m->buffers[i].chunks);
		free(m->buffers[i].windows);
	}
	for (size_t i = 0; i < m->span_count; i++)
		free(m->spans[i].live);
	free(m->spans);
	free(m->buffers);
	free(m->constants);
	free(m->constant_hashes);
	free(m->ranges);
	md_verify_session_close(&m->session);
	*m = (struct md_verify_memory){0};
}

void md_verify_memory_name_sampled(const struct md_verify_memory *m, char *text, size_t size)
{
	const char *name = NULL;
	uint64_t bytes = 0;
	*text = '\0';
	for (uint32_t i = 0; i < m->count; i++) {
		if (!m->buffers[i].sampled)
			continue;
		name = name ? name : m->buffers[i].name;
		bytes += m->buffers[i].size;
	}
	if (m->sampled_count == 1)
		snprintf(text, size, "%.128s: %llu bytes, sampled", name, (unsigned long long)bytes);
	else if (name)
		snprintf(text, size, "%.128s and %u more: %llu bytes, sampled", name, m->sampled_count - 1,
			 (unsigned long long)bytes);
}

/* ---- before the live replay ---- */

/* Copies into staging, synchronously. */
static enum md_status fetch(struct md_verify_memory *m, CUdeviceptr from, size_t size, CUstream stream,
			    struct md_error *err)
{
	m->session.device.moved_bytes += size;
	MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, m->session.device.now, from, size, stream));
	return md_cuda_call(err, cuStreamSynchronize, stream);
}

static enum md_status save_chunks(struct md_verify_memory *m, struct md_verify_buffer *b, CUstream stream,
				  struct md_error *err)
{
	b->chunks = calloc(chunk_count(b), sizeof(*b->chunks));
	if (!b->chunks)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a copy of buffer \"%s\"", b->name);
	for (size_t c = 0; c < chunk_count(b); c++) {
		size_t size = chunk_size(b, c);
		MD_FORWARD(fetch(m, b->address + (uint64_t)c * MD_VERIFY_CHUNK, size, stream, err));
		if (!memcmp(m->session.device.now, m->session.device.zeros, size))
			continue;
		b->chunks[c] = malloc(size);
		if (!b->chunks[c])
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a copy of buffer \"%s\"",
					    b->name);
		memcpy(b->chunks[c], m->session.device.now, size);
	}
	return MD_OK;
}

static enum md_status save_windows(struct md_verify_memory *m, struct md_verify_buffer *b, CUstream stream,
				   struct md_error *err)
{
	m->session.device.moved_bytes += (uint64_t)b->sample.windows * b->sample.bytes;
	b->windows = malloc((size_t)b->sample.windows * b->sample.bytes);
	if (!b->windows)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a sample of buffer \"%s\"", b->name);
	for (uint32_t i = 0; i < b->sample.windows; i++)
		MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, b->windows + (size_t)i * b->sample.bytes,
					b->address + md_sample_offset(&b->sample, i), b->sample.bytes, stream));
	return md_cuda_call(err, cuStreamSynchronize, stream);
}

enum md_status md_verify_memory_save(struct md_verify_memory *m, CUstream stream, struct md_error *err)
{
	for (uint32_t i = 0; i < m->count; i++) {
		struct md_verify_buffer *b = &m->buffers[i];
		if (b->copy || b->gathered)
			continue;
		MD_FORWARD(b->sampled ? save_windows(m, b, stream, err) : save_chunks(m, b, stream, err));
	}
	return md_verify_device_save(m, err);
}

/* ---- after the live replay ---- */

static enum md_status add_span(struct md_verify_memory *m, uint32_t buffer, uint64_t offset, size_t size,
			       const uint8_t *before, const uint8_t *live, struct md_error *err)
{
	if (!MD_ARRAY_GROW(m->spans, m->span_count, m->span_room))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for what the live graph wrote");
	uint8_t *copy = malloc(size);
	if (!copy)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for what the live graph wrote");
	memcpy(copy, live, size);
	m->spans[m->span_count++] = (struct md_verify_span){buffer, (uint32_t)size, offset, before, copy, 0};
	return MD_OK;
}

static enum md_status mismatch(const struct md_verify_buffer *b, uint64_t base, const uint8_t *live, const uint8_t *now,
			       size_t size, struct md_error *err)
{
	size_t at = 0;
	char text[2][17] = {"", ""};
	while (live[at] == now[at])
		at++;
	at &= ~(size_t)3;
	for (size_t i = 0; i < 4 && at + i < size; i++) {
		snprintf(text[0] + 2 * i, 3, "%02x", live[at + i]);
		snprintf(text[1] + 2 * i, 3, "%02x", now[at + i]);
	}
	return md_error_set(err, MD_ERR_MISMATCH, "buffer \"%s\" differs at offset %llu: live %s, restored %s", b->name,
			    (unsigned long long)(base + at), text[0], text[1]);
}

/* Live replays on sampled state start from different bytes, so they cannot explain a difference. */
void md_verify_note_difference(struct md_verify_memory *m, uint32_t buffer, uint64_t offset, const uint8_t *live,
			       const uint8_t *now, size_t size, struct md_error *differs)
{
	const struct md_verify_buffer *b = &m->buffers[buffer];
	if (!differs->status)
		mismatch(b, offset, live, now, size, differs);
	if (m->doubt && b->sampled)
		m->doubt->beyond = true;
	else if (m->doubt)
		md_verify_doubt_add(m->doubt, buffer, b->type, offset, live, now, size);
}

/*
 * Puts back the parts of a chunk that changed. In a live replay they become spans; in a restored one they are
 * differences, because the live graph left them alone.
 */
static enum md_status check_chunk(struct md_verify_memory *m, uint32_t buffer, size_t chunk, bool live, CUstream stream,
				  struct md_error *differs, struct md_error *err)
{
	const struct md_verify_buffer *b = &m->buffers[buffer];
	const uint8_t *before = b->chunks[chunk] ? b->chunks[chunk] : m->session.device.zeros;
	uint64_t offset = (uint64_t)chunk * MD_VERIFY_CHUNK;
	size_t size = chunk_size(b, chunk), at = 0, end = 0;
	MD_FORWARD(fetch(m, b->address + offset, size, stream, err));
	for (; md_change_next(before, m->session.device.now, size, &at, &end); at = end) {
		MD_FORWARD(
		    md_cuda_call(err, cuMemcpyHtoDAsync_v2, b->address + offset + at, before + at, end - at, stream));
		if (live)
			MD_FORWARD(
			    add_span(m, buffer, offset + at, end - at, before + at, m->session.device.now + at, err));
		else
			md_verify_note_difference(m, buffer, offset + at, before + at, m->session.device.now + at,
						  end - at, differs);
	}
	return MD_OK;
}

static enum md_status check_buffers(struct md_verify_memory *m, bool live, CUstream stream, struct md_error *differs,
				    struct md_error *err)
{
	if (!live)
		MD_FORWARD(md_verify_device_put_back(m, err));
	for (uint32_t i = 0; i < m->count; i++) {
		struct md_verify_buffer *b = &m->buffers[i];
		for (size_t c = 0; b->chunks && c < chunk_count(b); c++)
			MD_FORWARD(check_chunk(m, i, c, live, stream, differs, err));
	}
	return md_device_session_wait(&m->session.device, err);
}

/* Windows that the live graph changed, the first, the last, and some between. */
static enum md_status watch_windows(struct md_verify_memory *m, uint32_t buffer, CUstream stream, struct md_error *err)
{
	const struct md_verify_buffer *b = &m->buffers[buffer];
	const struct md_sample *sample = &b->sample;
	for (uint32_t i = 0; i < sample->windows; i++) {
		uint64_t offset = md_sample_offset(sample, i);
		MD_FORWARD(fetch(m, b->address + offset, sample->bytes, stream, err));
		bool changed =
		    memcmp(m->session.device.now, b->windows + (size_t)i * sample->bytes, sample->bytes) != 0;
		m->changed |= changed;
		if (changed || md_sample_stays(sample, i, m->sampled_count))
			MD_FORWARD(add_span(m, buffer, offset, sample->bytes, NULL, m->session.device.now, err));
	}
	return MD_OK;
}

enum md_status md_verify_memory_take_live(struct md_verify_memory *m, CUstream stream, struct md_error *err)
{
	MD_FORWARD(md_verify_device_take_live(m, err));
	MD_FORWARD(check_buffers(m, true, stream, NULL, err));
	m->changed |= m->span_count > 0 && m->spans[m->span_count - 1].before;
	for (uint32_t i = 0; i < m->count; i++)
		if (m->buffers[i].windows)
			MD_FORWARD(watch_windows(m, i, stream, err));
	return MD_OK;
}

/* ---- after the others ---- */

static enum md_status compare_some(struct md_verify_memory *m, size_t from, size_t to, CUstream stream,
				   struct md_error *differs, struct md_error *err)
{
	size_t at = 0;
	MD_FORWARD(md_cuda_call(err, cuStreamSynchronize, stream));
	for (size_t i = from; i < to; i++) {
		const struct md_verify_span *span = &m->spans[i];
		const struct md_verify_buffer *b = &m->buffers[span->buffer];
		if (!span->live)
			continue;
		if (memcmp(m->session.device.now + at, span->live, span->size))
			md_verify_note_difference(m, span->buffer, span->offset, span->live, m->session.device.now + at,
						  span->size, differs);
		if (span->before)
			MD_FORWARD(md_cuda_call(err, cuMemcpyHtoDAsync_v2, b->address + span->offset, span->before,
						span->size, stream));
		at += span->size;
	}
	return md_cuda_call(err, cuStreamSynchronize, stream);
}

/* Compares as many spans at a time as staging holds. */
static enum md_status compare_spans(struct md_verify_memory *m, CUstream stream, struct md_error *differs,
				    struct md_error *err)
{
	size_t first = 0, at = 0;
	for (size_t i = 0; i < m->span_count; i++) {
		const struct md_verify_span *span = &m->spans[i];
		if (!span->live)
			continue;
		m->session.device.moved_bytes += span->size;
		if (at + span->size > MD_VERIFY_CHUNK) {
			MD_FORWARD(compare_some(m, first, i, stream, differs, err));
			first = i;
			at = 0;
		}
		MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, m->session.device.now + at,
					m->buffers[span->buffer].address + span->offset, span->size, stream));
		at += span->size;
	}
	return at ? compare_some(m, first, m->span_count, stream, differs, err) : MD_OK;
}

enum md_status md_verify_memory_compare(struct md_verify_memory *m, CUstream stream, uint64_t *compared,
					struct md_error *err)
{
	struct md_error differs = {0};
	MD_FORWARD(compare_spans(m, stream, &differs, err));
	MD_FORWARD(md_verify_device_compare(m, &differs, err));
	for (uint32_t i = 0; i < m->count; i++)
		*compared += m->buffers[i].sampled ? 0 : m->buffers[i].size;
	for (size_t i = 0; i < m->span_count; i++)
		*compared += m->spans[i].before ? 0 : m->spans[i].size;
	return differs.status ? md_error_set(err, differs.status, "%s", differs.message) : MD_OK;
}

enum md_status md_verify_memory_check_rest(struct md_verify_memory *m, CUstream stream, struct md_error *err)
{
	struct md_error differs = {0};
	MD_FORWARD(check_buffers(m, false, stream, &differs, err));
	return differs.status ? md_error_set(err, differs.status, "%s", differs.message) : MD_OK;
}
