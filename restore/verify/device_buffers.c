/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers in verify mode whose copies fit on the device: saved, compared and put back there, whole. */
#include <string.h>

#include "driver/device_session.h"
#include "restore/restore.h"
#include "restore/verify/buffers.h"
#include "restore/verify/device_buffers.h"

#define LEAST_BYTES 512u /* for fewer bytes a comparison on the host costs no more */

/* Takes two copies: the bytes of now, and room for those that the live graph will leave. */
bool md_verify_device_take(struct md_verify_memory *m, struct md_verify_buffer *b)
{
	if (b->size < LEAST_BYTES || !md_device_differ_can(&m->device, b->address, b->size))
		return false;
	if (2 * b->size > m->device.device_left)
		return false;
	b->copy = md_device_session_take(&m->device, b->size);
	b->live = b->copy ? md_device_session_take(&m->device, b->size) : 0;
	if (!b->live)
		b->copy = 0;
	return b->copy != 0;
}

static enum md_status copy_all(struct md_verify_buffer *b, CUdeviceptr to, CUdeviceptr from, CUstream stream,
			       struct md_error *err)
{
	return md_cuda_call(err, cuMemcpyDtoDAsync_v2, to, from, b->size, stream);
}

enum md_status md_verify_device_save(struct md_verify_buffer *b, CUstream stream, struct md_error *err)
{
	return copy_all(b, b->copy, b->address, stream, err);
}

enum md_status md_verify_device_take_live(struct md_verify_buffer *b, CUstream stream, struct md_error *err)
{
	MD_FORWARD(copy_all(b, b->live, b->address, stream, err));
	return md_verify_device_put_back(b, stream, err);
}

enum md_status md_verify_device_put_back(struct md_verify_buffer *b, CUstream stream, struct md_error *err)
{
	return copy_all(b, b->address, b->copy, stream, err);
}

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

static enum md_status explain(struct md_verify_memory *m, uint32_t buffer, uint64_t offset, size_t size,
			      struct md_error *differs, struct md_error *err)
{
	const struct md_verify_buffer *b = &m->buffers[buffer];
	uint8_t *now = m->device.now, *live = m->device.now + MD_DEVICE_CHUNK / 2;
	size_t at = 0, end = 0;
	MD_FORWARD(md_device_session_read(&m->device, now, b->address + offset, size, err));
	MD_FORWARD(md_device_session_read(&m->device, live, b->live + offset, size, err));
	for (; md_change_next(live, now, size, &at, &end); at = end)
		md_verify_note_difference(m, buffer, offset + at, live + at, now + at, end - at, differs);
	return MD_OK;
}

enum md_status md_verify_device_compare(struct md_verify_memory *m, uint32_t buffer, struct md_error *differs,
					struct md_error *err)
{
	const struct md_verify_buffer *b = &m->buffers[buffer];
	for (uint64_t from = 0, size; from < b->size; from += size) {
		const uint64_t most = (uint64_t)MD_DEVICE_GRAINS * MD_DEVICE_GRAIN;
		size = b->size - from < most ? b->size - from : most;
		size_t grains = (size_t)((size + MD_DEVICE_GRAIN - 1) / MD_DEVICE_GRAIN), at = 0, end = 0;
		MD_FORWARD(md_device_differ_begin(&m->device, grains, err));
		MD_FORWARD(md_device_differ_launch(&m->device, b->address + from, b->live + from, size, 0, err));
		MD_FORWARD(md_device_differ_end(&m->device, grains, err));
		for (; next_stretch(m->device.flag_bytes, grains, &at, &end); at = end) {
			uint64_t offset = (uint64_t)at * MD_DEVICE_GRAIN, last = (uint64_t)end * MD_DEVICE_GRAIN;
			last = last < size ? last : size;
			MD_FORWARD(explain(m, buffer, from + offset, (size_t)(last - offset), differs, err));
		}
	}
	return MD_OK;
}
