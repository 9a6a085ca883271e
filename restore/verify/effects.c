/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a comparison shows anything: does the live graph write into memory that is compared? */
#include <string.h>

#include "driver/device_session.h"
#include "restore/restore.h"
#include "restore/verify/buffers.h"
#include "restore/verify/effects.h"

/* ---- what the live replay changed ---- */

static bool window_changed(const struct md_verify_memory *m, const struct md_verify_span *span)
{
	const struct md_verify_buffer *b = &m->buffers[span->buffer];
	for (uint32_t i = 0; i < b->sample.windows; i++)
		if (md_sample_offset(&b->sample, i) == span->offset)
			return memcmp(span->live, b->windows + (size_t)i * b->sample.bytes, span->size) != 0;
	return false;
}

static enum md_status copy_changed(struct md_verify_memory *m, const struct md_verify_buffer *b, bool *seen,
				   struct md_error *err)
{
	const uint64_t most = (uint64_t)MD_DEVICE_GRAINS * MD_DEVICE_GRAIN;
	for (uint64_t from = 0, size; from < b->size && !*seen; from += size) {
		size = b->size - from < most ? b->size - from : most;
		size_t grains = (size_t)((size + MD_DEVICE_GRAIN - 1) / MD_DEVICE_GRAIN);
		MD_FORWARD(md_device_differ_begin(&m->device, grains, err));
		MD_FORWARD(md_device_differ_launch(&m->device, b->copy + from, b->live + from, size, 0, err));
		MD_FORWARD(md_device_differ_end(&m->device, grains, err));
		*seen = memchr(m->device.flag_bytes, 1, grains) != NULL;
	}
	return MD_OK;
}

static bool has_own_output(const struct md_restore *r, const struct md_artifact_graph *stored)
{
	for (uint32_t i = 0; i < stored->output_count; i++)
		if (stored->outputs[i].size && r->artifact.allocs[stored->outputs[i].alloc].class == MD_CLASS_PRIVATE)
			return true;
	return false;
}

enum md_status md_verify_effects_seen(struct md_verify_memory *m, const struct md_restore *r,
				      const struct md_artifact_graph *stored, bool *seen, struct md_error *err)
{
	*seen = has_own_output(r, stored);
	for (size_t i = 0; i < m->span_count && !*seen; i++)
		*seen = m->spans[i].before || window_changed(m, &m->spans[i]);
	for (uint32_t i = 0; i < m->count && !*seen; i++)
		if (m->buffers[i].copy)
			MD_FORWARD(copy_changed(m, &m->buffers[i], seen, err));
	return MD_OK;
}

/* ---- what it writes although that was there already ---- */

/* Only outputs are filled, because a graph may read other buffers, and fault. */
static bool is_filled(const struct md_verify_buffer *b)
{
	return b->output && !b->sampled;
}

enum md_status md_verify_effects_fill(struct md_verify_memory *m, uint8_t value, CUstream stream, struct md_error *err)
{
	for (uint32_t i = 0; i < m->count; i++)
		if (is_filled(&m->buffers[i]))
			MD_FORWARD(md_cuda_call(err, cuMemsetD8Async, m->buffers[i].address, value, m->buffers[i].size,
						stream));
	return md_cuda_call(err, cuStreamSynchronize, stream);
}

enum md_status md_verify_effects_found(struct md_verify_memory *m, uint8_t value, bool *seen, struct md_error *err)
{
	for (uint32_t i = 0; i < m->count; i++) {
		const struct md_verify_buffer *b = &m->buffers[i];
		for (uint64_t at = 0; is_filled(b) && at < b->size && !*seen; at += MD_DEVICE_CHUNK) {
			size_t size = b->size - at < MD_DEVICE_CHUNK ? (size_t)(b->size - at) : MD_DEVICE_CHUNK;
			MD_FORWARD(md_device_session_read(&m->device, m->device.now, b->address + at, size, err));
			*seen = m->device.now[0] != value || memcmp(m->device.now, m->device.now + 1, size - 1) != 0;
		}
	}
	return MD_OK;
}
