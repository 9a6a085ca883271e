/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of the contents that memory had when the session began. */
#ifndef MD_CAPTURE_PROBE_COPIES_H
#define MD_CAPTURE_PROBE_COPIES_H

#include "capture/probe/probe.h"

/* In the current context. */
enum md_status md_capture_session_open(struct md_probe_session *session, struct md_error *err) MD_CAPTURE_HELD;
void md_capture_session_close(struct md_probe_session *session) MD_CAPTURE_HELD;
/* Gives up what rests between sessions of the context; NULL: whatever context. */
void md_capture_session_drop(CUcontext context) MD_CAPTURE_HELD;
uint64_t md_capture_session_held(void) MD_CAPTURE_HELD; /* bytes of device memory that rest meanwhile */

struct md_probe_copy *md_capture_copy_find(const struct md_probe_session *session, uint64_t address, uint64_t size);
/* Makes a copy of the memory as it is. MD_ERR_TOO_LARGE when neither device nor host has room. */
enum md_status md_capture_copy_make(struct md_probe_session *session, enum md_probe_region_kind kind, uint64_t address,
				    uint64_t size, struct md_probe_copy **out, struct md_error *err);
/* Notes that the memory cannot be copied. */
enum md_status md_capture_copy_sampled(struct md_probe_session *session, uint64_t address, uint64_t size,
				       struct md_probe_copy **out, struct md_error *err);
/* Puts a part of a whole copy back, on the session's stream; or reads it. */
enum md_status md_capture_copy_put_back(struct md_probe_session *session, const struct md_probe_copy *copy,
					uint64_t offset, uint64_t size, struct md_error *err);
enum md_status md_capture_copy_read(struct md_probe_session *session, const struct md_probe_copy *copy, uint64_t offset,
				    uint64_t size, void *to, struct md_error *err);

#endif
