/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a comparison shows anything: does the live graph write into memory that is compared? */
#include <string.h>

#include "driver/device_session.h"
#include "restore/restore.h"
#include "restore/verify/buffers.h"
#include "restore/verify/effects.h"

/* ---- what the live replay changed ---- */

static bool has_own_output(const struct md_restore *r, const struct md_artifact_graph *stored)
{
	for (uint32_t i = 0; i < stored->output_count; i++)
		if (stored->outputs[i].size && r->artifact.allocs[stored->outputs[i].alloc].class == MD_CLASS_PRIVATE)
			return true;
	return false;
}

bool md_verify_effects_seen(const struct md_verify_memory *m, const struct md_restore *r,
			    const struct md_artifact_graph *stored)
{
	return m->changed || has_own_output(r, stored);
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
			MD_FORWARD(md_device_session_read(&m->session.device, m->session.device.now, b->address + at,
							  size, err));
			*seen = m->session.device.now[0] != value ||
				memcmp(m->session.device.now, m->session.device.now + 1, size - 1) != 0;
		}
	}
	return MD_OK;
}
