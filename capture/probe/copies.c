/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of memory from when a session of poison tests began. They
 * are kept on the device or the host, and put back from there.
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "capture/probe/copies.h"
#include "capture/probe/probe.h"
#include "driver/device_pieces.h"

#define LOCKED_LEAST (1u << 20) /* bytes; page-locking less costs more than it gives */

/* The last session's stream, kernel and staging memory, which halve the time of the next session. */
static struct md_device_session resting MD_CAPTURE_GUARDED;
static uint64_t held MD_CAPTURE_GUARDED; /* bytes of device memory that it has kept */

uint64_t md_capture_session_held(void)
{
	return held;
}

void md_capture_session_drop(CUcontext context)
{
	CUcontext popped;
	if (!resting.open || (context && resting.context != context) || md_cuda.cuCtxPushCurrent_v2(resting.context))
		return;
	md_device_session_close(&resting);
	held = 0;
	md_cuda.cuCtxPopCurrent_v2(&popped);
}

enum md_status md_capture_session_open(struct md_probe_session *session, struct md_error *err)
{
	const uint64_t limit = md_capture.options.probe_device_limit;
	size_t before = 0, after = 0, total;
	CUcontext current = NULL;
	*session = (struct md_probe_session){.host_left = md_capture.options.probe_limit};
	md_cuda.cuCtxGetCurrent(&current);
	if (resting.open && resting.context == current) {
		session->device = resting;
		resting = (struct md_device_session){0};
		md_device_session_wake(&session->device, limit);
		return MD_OK;
	}
	md_capture_session_drop(NULL);
	md_cuda.cuMemGetInfo_v2(&before, &total);
	MD_FORWARD(md_device_session_open(&session->device, limit, err));
	md_cuda.cuMemGetInfo_v2(&after, &total);
	held = before > after ? before - after : 0;
	return MD_OK;
}

static size_t chunk_count(uint64_t size)
{
	return (size_t)((size + MD_PROBE_CHUNK_BYTES - 1) / MD_PROBE_CHUNK_BYTES);
}

static size_t chunk_size(uint64_t size, size_t chunk)
{
	uint64_t left = size - (uint64_t)chunk * MD_PROBE_CHUNK_BYTES;
	return left < MD_PROBE_CHUNK_BYTES ? (size_t)left : MD_PROBE_CHUNK_BYTES;
}

static void destroy_copy(struct md_probe_copy *copy)
{
	size_t count = copy->chunks ? chunk_count(copy->size) : 0;
	for (size_t i = 0; i < count; i++)
		free(copy->chunks[i]);
	free(copy->chunks);
	free(copy->pointers);
	if (copy->locked)
		md_cuda.cuMemFreeHost(copy->host);
	else
		free(copy->host);
	free(copy);
}

void md_capture_session_close(struct md_probe_session *session)
{
	if (!session->device.open)
		return;
	md_debug("poison tests moved %llu bytes between host and device, and kept copies of %zu places",
		 (unsigned long long)session->device.moved_bytes, session->copy_count);
	for (size_t i = 0; i < session->copy_count; i++)
		destroy_copy(session->copies[i]);
	free(session->copies);
	if (session->scratch)
		md_cuda.cuMemFree_v2(session->scratch);
	if (session->expected)
		md_cuda.cuMemFree_v2(session->expected);
	if (!resting.open && md_device_session_rest(&session->device))
		resting = session->device;
	else
		md_device_session_close(&session->device);
	*session = (struct md_probe_session){0};
}

struct md_probe_copy *md_capture_copy_find(const struct md_probe_session *session, uint64_t address, uint64_t size)
{
	for (size_t i = 0; i < session->copy_count; i++) {
		if (session->copies[i]->address == address && session->copies[i]->size == size)
			return session->copies[i];
	}
	return NULL;
}

/* ---- making them ---- */

static enum md_status add_copy(struct md_probe_session *session, uint64_t address, uint64_t size,
			       struct md_probe_copy **out, struct md_error *err)
{
	struct md_probe_copy *copy = calloc(1, sizeof(*copy));
	if (!copy || !MD_ARRAY_EXTEND(session->copies, session->copy_count)) {
		free(copy);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a copy of %llu bytes",
				    (unsigned long long)size);
	}
	copy->address = address;
	copy->size = size;
	session->copies[session->copy_count++] = *out = copy;
	return MD_OK;
}

static enum md_status take_host(struct md_probe_session *session, const struct md_probe_copy *copy,
				struct md_error *err)
{
	if (copy->size > session->host_left)
		return md_error_set(err, MD_ERR_TOO_LARGE, "%llu bytes at 0x%llx exceed MEDUSA_PROBE_LIMIT",
				    (unsigned long long)copy->size, (unsigned long long)copy->address);
	session->host_left -= copy->size;
	return MD_OK;
}

/* Copies of device memory are page-locked if possible, because they are put back after each replay. */
static enum md_status allocate_host(struct md_probe_copy *copy, bool device, struct md_error *err)
{
	void *locked = NULL;
	copy->locked = device && copy->size >= LOCKED_LEAST && md_cuda.cuMemHostAlloc(&locked, copy->size, 0) == 0;
	copy->host = copy->locked ? locked : malloc(copy->size);
	return copy->host ? MD_OK
			  : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %llu bytes",
					 (unsigned long long)copy->size);
}

static enum md_status keep_chunks(struct md_probe_session *session, struct md_probe_copy *copy, struct md_error *err)
{
	size_t count = chunk_count(copy->size);
	copy->chunks = calloc(count, sizeof(*copy->chunks));
	if (!copy->chunks)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %zu chunks of a copy", count);
	for (size_t i = 0; i < count; i++) {
		size_t size = chunk_size(copy->size, i);
		MD_FORWARD(md_device_session_read(&session->device, session->device.now,
						  copy->address + (uint64_t)i * MD_PROBE_CHUNK_BYTES, size, err));
		if (!memcmp(session->device.now, session->device.zeros, size))
			continue;
		copy->chunks[i] = malloc(size);
		if (!copy->chunks[i])
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a chunk of %zu bytes", size);
		memcpy(copy->chunks[i], session->device.now, size);
	}
	return MD_OK;
}

static enum md_status keep(struct md_probe_session *session, enum md_probe_region_kind kind, struct md_probe_copy *copy,
			   struct md_error *err)
{
	bool private = kind == MD_PROBE_REGION_PRIVATE || kind == MD_PROBE_REGION_VARIABLE;
	copy->by_driver = kind == MD_PROBE_REGION_VARIABLE;
	bool on_device = private || (kind == MD_PROBE_REGION_OUTPUT && copy->size > MD_DEVICE_COMPARED &&
				     md_device_differ_can(&session->device, copy->address, copy->size));
	if (on_device)
		copy->device = md_device_session_take(&session->device, copy->size);
	if (copy->device)
		return md_cuda_call(err, cuMemcpyDtoDAsync_v2, copy->device, copy->address, copy->size,
				    session->device.stream);
	MD_FORWARD(take_host(session, copy, err));
	if (kind == MD_PROBE_REGION_OUTPUT)
		return keep_chunks(session, copy, err);
	MD_FORWARD(allocate_host(copy, private, err));
	if (private)
		return md_device_session_read(&session->device, copy->host, copy->address, copy->size, err);
	memcpy(copy->host, (const void *)(uintptr_t)copy->address, copy->size);
	return MD_OK;
}

enum md_status md_capture_copy_make(struct md_probe_session *session, enum md_probe_region_kind kind, uint64_t address,
				    uint64_t size, struct md_probe_copy **out, struct md_error *err)
{
	enum md_status status;
	MD_FORWARD(add_copy(session, address, size, out, err));
	status = keep(session, kind, *out, err);
	if (status != MD_OK) {
		/* half a copy must not serve another graph */
		destroy_copy(session->copies[--session->copy_count]);
		*out = NULL;
	}
	return status;
}

enum md_status md_capture_copy_sampled(struct md_probe_session *session, uint64_t address, uint64_t size,
				       struct md_probe_copy **out, struct md_error *err)
{
	MD_FORWARD(add_copy(session, address, size, out, err));
	(*out)->sampled = true;
	return MD_OK;
}

/* ---- using them ---- */

enum md_status md_capture_copy_put_back(struct md_probe_session *session, const struct md_probe_copy *copy,
					uint64_t offset, uint64_t size, struct md_error *err)
{
	if (copy->device && copy->by_driver)
		return md_cuda_call(err, cuMemcpyDtoDAsync_v2, copy->address + offset, copy->device + offset, size,
				    session->device.stream);
	if (copy->device)
		return md_device_batch_copy(&session->device, copy->address + offset, copy->device + offset, size, err);
	return md_device_session_write(&session->device, copy->address + offset, copy->host + offset, size, err);
}

enum md_status md_capture_copy_read(struct md_probe_session *session, const struct md_probe_copy *copy, uint64_t offset,
				    uint64_t size, void *to, struct md_error *err)
{
	if (copy->device)
		return md_device_session_read(&session->device, to, copy->device + offset, size, err);
	memcpy(to, copy->host + offset, size);
	return MD_OK;
}
