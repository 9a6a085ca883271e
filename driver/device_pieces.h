/* SPDX-License-Identifier: Apache-2.0 */
/* A batch of copies, comparisons and fills of device memory, which one launch carries out. */
#ifndef MD_DRIVER_DEVICE_PIECES_H
#define MD_DRIVER_DEVICE_PIECES_H

#include "driver/device_session.h"

/* For the session: loads the kernel and tests it. If there is none, or it fails, session->pieces stays NULL. */
void md_device_pieces_load(struct md_device_session *session);
void md_device_pieces_unload(struct md_device_session *session);

/* Forgets what was added and, after a failure, not launched. */
void md_device_batch_begin(struct md_device_session *session);
/*
 * Adds to the batch. The order within a batch is open: none may touch what another one writes. All memory must be
 * mapped, because a kernel that goes elsewhere breaks the context. Without the kernel, copies and comparisons are made
 * one by one, comparisons only where md_device_differ_can; fills must not be asked for.
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
/* Launches what was added since the last launch, on the session's stream; waits for it, too. */
enum md_status md_device_batch_launch(struct md_device_session *session, struct md_error *err);
enum md_status md_device_batch_wait(struct md_device_session *session, struct md_error *err);

/*
 * Brings bytes to session->now, at `at`, many of them by one copy. Call begin before the first, and wait, after which
 * the bytes are there, in the end. Ascending and apart from each other; what does not fit is copied by itself.
 */
enum md_status md_device_batch_read(struct md_device_session *session, size_t at, uint64_t from, uint64_t size,
				    struct md_error *err);
enum md_status md_device_batch_read_wait(struct md_device_session *session, struct md_error *err);

#endif
