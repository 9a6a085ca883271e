/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps kernels of ours, staging memory, and the list of memory known to be mapped from one comparison to the next. */
#include "restore/verify/kept_session.h"

#include <stdatomic.h>

#include "base/map.h"

static struct md_verify_session resting MD_GUARDED_BY(md_restore_work);
static struct md_map mapped MD_GUARDED_BY(md_restore_work); /* address -> size */
static unsigned unmaps_seen MD_GUARDED_BY(md_restore_work);

static void close_all(struct md_verify_session *session)
{
	md_device_hasher_close(&session->hasher);
	md_device_session_close(&session->device);
	*session = (struct md_verify_session){0};
}

static void drop(void) MD_REQUIRES(md_restore_work)
{
	if (resting.device.open)
		close_all(&resting);
	md_map_finish(&mapped);
	md_map_init(&mapped);
}

void md_verify_session_drop(void) MD_LOCKS_UNCHECKED /* work is held, or no other thread is left */
{
	drop();
}

/* Without the kernel, memory is hashed on the host, chunk by chunk. */
static void open_hasher(struct md_verify_session *session)
{
	if (!session->device.pieces)
		return;
	md_device_hasher_open(&session->hasher, session->device.stream);
	if (session->hasher.function && !md_hash_room_take(&session->hasher, true, &session->hasher.room))
		md_hash_room_give(&session->hasher, &session->hasher.room);
}

static enum md_status open_new(struct md_verify_session *session, uint64_t device_limit, struct md_error *err)
{
	*session = (struct md_verify_session){0};
	MD_FORWARD(md_device_session_open(&session->device, device_limit, err));
	open_hasher(session);
	return MD_OK;
}

enum md_status md_verify_session_open(struct md_verify_session *session, const struct md_restore *r,
				      uint64_t device_limit, struct md_error *err)
{
	CUcontext current = NULL;
	md_cuda.cuCtxGetCurrent(&current);
	if (resting.device.open && resting.device.context == current) {
		*session = resting;
		resting = (struct md_verify_session){0};
		md_device_session_wake(&session->device, device_limit);
	} else {
		drop();
		MD_FORWARD(open_new(session, device_limit, err));
	}
	session->own_stream = session->device.stream;
	session->device.stream = r->stream;
	return MD_OK;
}

void md_verify_session_close(struct md_verify_session *session)
{
	if (!session->device.open)
		return;
	session->device.stream = session->own_stream;
	if (!resting.device.open && session->device.pieces && md_device_session_rest(&session->device)) {
		resting = *session;
		*session = (struct md_verify_session){0};
	} else {
		close_all(session);
	}
}

bool md_verify_is_mapped(const struct md_restore *r, uint64_t address, uint64_t size, bool freed)
{
	unsigned unmaps = atomic_load(&r->unmaps);
	uint64_t known;
	if (unmaps != unmaps_seen) {
		md_map_finish(&mapped);
		md_map_init(&mapped);
	}
	unmaps_seen = unmaps;
	if (freed)
		md_map_remove(&mapped, address, NULL);
	else if (md_map_get(&mapped, address, &known) && known == size)
		return true;
	else if (md_device_is_mapped(address, size))
		return md_map_put(&mapped, address, size) || true;
	return false;
}
