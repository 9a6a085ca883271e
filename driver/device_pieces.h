/* SPDX-License-Identifier: Apache-2.0 */
/* A batch of copies, comparisons and fills of device memory, which one launch carries out. */
#ifndef MD_DRIVER_DEVICE_PIECES_H
#define MD_DRIVER_DEVICE_PIECES_H

#include "driver/device_session.h"

/* Loads the kernel for the session and tests it. If it cannot be loaded, or fails, session->pieces stays NULL. */
void md_device_pieces_load(struct md_device_session *session);
void md_device_pieces_unload(struct md_device_session *session);

/* Forgets what was added and, after a failure, not launched. */
void md_device_batch_begin(struct md_device_session *session);
/*
 * Adds to the batch. The order within a batch is undefined, so none may touch memory that another one writes. All memory
 * must be mapped, because a kernel that touches other memory breaks the context. Without the kernel, copies and
 * comparisons are made one by one; comparisons then need md_device_differ_can, and fills are not allowed.
 */
enum md_status md_device_batch_copy(struct md_device_session *session, uint64_t to, uint64_t from, uint64_t size,
				    struct md_error *err);
/* Between md_device_differ_begin and _end; `flag` is for the first grain of the range. */
enum md_status md_device_batch_differ(struct md_device_session *session, uint64_t one, uint64_t two, uint64_t size,
				      size_t flag, struct md_error *err);
/* The word, or the 8 bytes, are written from `to` on, whatever the alignment. */
enum md_status md_device_batch_fill(struct md_device_session *session, uint64_t to, uint32_t word, uint64_t size,
				    struct md_error *err);
enum md_status md_device_batch_set(struct md_device_session *session, uint64_t to, uint64_t value,
				   struct md_error *err);
/* Launches everything that was added since the last launch, on the session's stream. The second function also waits. */
enum md_status md_device_batch_launch(struct md_device_session *session, struct md_error *err);
enum md_status md_device_batch_wait(struct md_device_session *session, struct md_error *err);

/*
 * Brings bytes to session->now, at `at`, many of them by one copy. Call begin before the first, and wait at the end; the
 * bytes are there after the wait. The ranges ascend and do not touch; a range that does not fit is copied by itself.
 */
enum md_status md_device_batch_read(struct md_device_session *session, size_t at, uint64_t from, uint64_t size,
				    struct md_error *err);
enum md_status md_device_batch_read_wait(struct md_device_session *session, struct md_error *err);

#endif
