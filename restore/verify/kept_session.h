/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps kernels of ours, staging memory, and the list of memory known to be mapped from one comparison to the next. */
#ifndef MD_RESTORE_VERIFY_KEPT_SESSION_H
#define MD_RESTORE_VERIFY_KEPT_SESSION_H

#include "driver/device_hash.h"
#include "driver/device_session.h"
#include "restore/restore.h"

struct md_verify_session {
	struct md_device_session device; /* works on the restore's stream */
	struct md_device_hasher hasher;
	CUstream own_stream; /* the session's */
};

/* Opens the session that the last comparison has kept, if it belongs to the current context. Call close in any case. */
enum md_status md_verify_session_open(struct md_verify_session *session, const struct md_restore *r,
				      uint64_t device_limit, struct md_error *err) MD_REQUIRES(md_restore_work);
/* Frees all device memory except for some hundred KiB. */
void md_verify_session_close(struct md_verify_session *session) MD_REQUIRES(md_restore_work);
/* Frees everything. The context must be current, or have been destroyed. */
void md_verify_session_drop(void);

/*
 * Whether a kernel may touch memory that the engine has bound. The driver is asked once, and again after the engine has
 * freed or unmapped memory.
 */
bool md_verify_is_mapped(const struct md_restore *r, uint64_t address, uint64_t size, bool freed)
    MD_REQUIRES(md_restore_work);

#endif
