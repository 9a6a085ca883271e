/* SPDX-License-Identifier: Apache-2.0 */
/* What comparisons keep from one to the next: kernels of ours, staging memory, and which memory is known to be mapped. */
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

/* Takes over what the last comparison has left, if that is of the current context. Call close in any case. */
enum md_status md_verify_session_open(struct md_verify_session *session, const struct md_restore *r,
				      uint64_t device_limit, struct md_error *err) MD_REQUIRES(md_restore_work);
/* All device memory goes back but for some hundred KiB. */
void md_verify_session_close(struct md_verify_session *session) MD_REQUIRES(md_restore_work);
/* Nothing is kept any longer; the context is current, or has died. */
void md_verify_session_drop(void);

/*
 * Whether a kernel may go to memory that the engine has bound. It is asked of the driver once, and anew after the engine
 * has freed or unmapped memory.
 */
bool md_verify_is_mapped(const struct md_restore *r, uint64_t address, uint64_t size, bool freed)
    MD_REQUIRES(md_restore_work);

#endif
