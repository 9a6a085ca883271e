/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory that the engine has filled, from the start of the process. */
#ifndef MD_CAPTURE_RECORD_FILLED_H
#define MD_CAPTURE_RECORD_FILLED_H

#include "capture/capture.h"

/* Called by hooks, outside of stream captures. from NULL: a set. Lock not held. */
void md_capture_filled(const void *from, uint64_t to, uint64_t size);
void md_capture_filled_forget(uint64_t start, uint64_t size) MD_CAPTURE_HELD;
/* The range at address that one call filled, or NULL. */
const struct md_interval *md_capture_filled_at(uint64_t address);
/*
 * A range is recognized by some of its bytes: the offset of a
 * window, and its *bytes, which are 0 behind the last window.
 */
uint64_t md_capture_filled_window(uint64_t size, unsigned window, uint64_t *bytes);
uint64_t md_capture_filled_hash(uint64_t hash, const void *bytes, uint64_t size); /* of the next window; begins at 0 */
/* True if the range may still hold the bytes that were put there; a set range repeats 4 bytes. */
bool md_capture_filled_holds(const struct md_interval *range, uint64_t hash);
bool md_capture_filled_was_set(const struct md_interval *range);

#endif
