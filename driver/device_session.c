/* SPDX-License-Identifier: Apache-2.0 */
/* A session of comparisons: its stream, its staging memory, and the device memory that copies take. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#include "driver/device_pieces.h"
#include "driver/device_search.h"
#include "driver/device_session.h"

#define SLAB_BYTES (32ull << 20)
#define ALIGNMENT 512u
/* Of device memory this much stays free, but at most a sixteenth: others may allocate while tests run. */
#define RESERVE (256ull << 20)

/* ---- device memory ---- */

static uint64_t spare_device_memory(uint64_t limit)
{
	size_t free_bytes = 0, total = 0;
	uint64_t reserve, spare;
	if (md_cuda.cuMemGetInfo_v2(&free_bytes, &total))
		return 0;
	reserve = total / 16 < RESERVE ? total / 16 : RESERVE;
	spare = free_bytes > reserve ? free_bytes - reserve : 0;
	return spare < limit ? spare : limit;
}

static bool add_slab(struct md_device_session *session, uint64_t size, uint64_t least)
{
	struct md_device_slab slab = {.size = size < least ? least : size};
	if (slab.size > session->device_left)
		slab.size = size;
	if (slab.size > session->device_left || !MD_ARRAY_EXTEND(session->slabs, session->slab_count) ||
	    md_cuda.cuMemAlloc_v2(&slab.base, slab.size))
		return false;
	session->device_left -= slab.size;
	session->slabs[session->slab_count++] = slab;
	return true;
}

CUdeviceptr md_device_session_take(struct md_device_session *session, uint64_t size)
{
	struct md_device_slab *slab;
	CUdeviceptr address;
	if (!size || size > session->device_left + SLAB_BYTES)
		return 0;
	size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	slab = session->slab_count ? &session->slabs[session->slab_count - 1] : NULL;
	if (!slab || slab->size - slab->used < size) {
		if (!add_slab(session, size, SLAB_BYTES))
			return 0;
		slab = &session->slabs[session->slab_count - 1];
	}
	address = slab->base + slab->used;
	slab->used += size;
	return address;
}

bool md_device_session_reserve(struct md_device_session *session, uint64_t size)
{
	bool reserved = add_slab(session, size, 0);
	session->own_slabs += reserved;
	return reserved;
}

void md_device_session_cut_back(struct md_device_session *session, size_t slab_count, uint64_t used)
{
	while (session->slab_count > slab_count) {
		struct md_device_slab *slab = &session->slabs[--session->slab_count];
		md_cuda.cuMemFree_v2(slab->base);
		session->device_left += slab->size;
	}
	if (slab_count)
		session->slabs[slab_count - 1].used = used;
}

/* ---- copies ---- */

enum md_status md_device_session_read(struct md_device_session *session, void *to, uint64_t from, uint64_t size,
				      struct md_error *err)
{
	session->moved_bytes += size;
	MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, to, from, size, session->stream));
	return md_device_session_wait(session, err);
}

/* Nothing reads the table of a batch any more, unless some of it was not launched yet. */
enum md_status md_device_session_wait(struct md_device_session *session, struct md_error *err)
{
	MD_FORWARD(md_cuda_call(err, cuStreamSynchronize, session->stream));
	if (session->piece_count == session->pieces_launched)
		session->piece_count = session->pieces_launched = 0;
	return MD_OK;
}

enum md_status md_device_session_write(struct md_device_session *session, uint64_t to, const void *from, uint64_t size,
				       struct md_error *err)
{
	session->moved_bytes += size;
	return md_cuda_call(err, cuMemcpyHtoDAsync_v2, to, from, size, session->stream);
}

/* ---- life ---- */

static enum md_status allocate_chunk(struct md_device_session *session, struct md_error *err)
{
	void *locked = NULL;
	session->zeros = calloc(1, MD_DEVICE_CHUNK);
	session->now_locked = md_cuda.cuMemHostAlloc(&locked, MD_DEVICE_CHUNK, 0) == CUDA_SUCCESS;
	session->now = session->now_locked ? locked : malloc(MD_DEVICE_CHUNK);
	return session->now && session->zeros
		   ? MD_OK
		   : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the chunks that are copied");
}

enum md_status md_device_session_open(struct md_device_session *session, uint64_t device_limit, struct md_error *err)
{
	enum md_status status;
	*session = (struct md_device_session){.open = true, .device_left = spare_device_memory(device_limit)};
	md_cuda.cuCtxGetCurrent(&session->context);
	status = allocate_chunk(session, err);
	if (status == MD_OK)
		status = md_cuda_call(err, cuStreamCreate, &session->stream, CU_STREAM_NON_BLOCKING);
	if (status != MD_OK) {
		md_device_session_close(session);
		return status;
	}
	/* Each tries its kernel out; where that ended half-way, the device may still read what the next one writes anew. */
	md_device_differ_load(session);
	md_cuda.cuStreamSynchronize(session->stream);
	md_device_pieces_load(session);
	md_cuda.cuStreamSynchronize(session->stream);
	md_device_search_load(session);
	md_cuda.cuStreamSynchronize(session->stream);
	return MD_OK;
}

bool md_device_session_rest(struct md_device_session *session)
{
	if (md_cuda.cuStreamSynchronize(session->stream) != CUDA_SUCCESS)
		return false;
	session->moved_bytes = 0;
	md_device_session_cut_back(session, session->own_slabs,
				   session->own_slabs ? session->slabs[session->own_slabs - 1].used : 0);
	return true;
}

void md_device_session_wake(struct md_device_session *session, uint64_t device_limit)
{
	session->device_left = spare_device_memory(device_limit);
}

void md_device_session_close(struct md_device_session *session)
{
	if (!session->open)
		return;
	md_device_differ_unload(session);
	md_device_pieces_unload(session);
	md_device_search_unload(session);
	md_device_session_cut_back(session, 0, 0);
	free(session->slabs);
	free(session->zeros);
	if (session->now_locked)
		md_cuda.cuMemFreeHost(session->now);
	else
		free(session->now);
	if (session->stream)
		md_cuda.cuStreamDestroy_v2(session->stream);
	*session = (struct md_device_session){0};
}
