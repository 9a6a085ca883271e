/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations of all families as they come and go, and what moves them in a shifted run. Lock not held unless said. */
#ifndef MD_CAPTURE_RECORD_ALLOCS_H
#define MD_CAPTURE_RECORD_ALLOCS_H

#include "capture/capture.h"

void md_capture_alloc_note(enum md_alloc_family family, uint64_t address, uint64_t bytes);
/* Called before the real free, so that nobody can be given the address in between. */
void md_capture_free_note(uint64_t address);
void md_capture_free_note_locked(uint64_t address) MD_CAPTURE_HELD;
void md_capture_unmap_note(uint64_t address, uint64_t bytes);
/* Moves what is allocated next, in a run with MEDUSA_SHIFT; bytes is the size asked for. */
void md_capture_shift_before_alloc(uint64_t bytes);
void md_capture_shift_before_reserve(void);
void md_capture_shift_start(void);
/* Called in a child: makes the lock anew. */
void md_capture_shift_renew(void);
void md_capture_shift_release(void);

/* Memory that is allocated on a stream under capture belongs to the captured graph. */
void md_capture_alloc_note_on(CUstream stream, uint64_t address, uint64_t bytes);
/* A range of reserved addresses is given back: nothing is bound there any more. */
void md_capture_unreserve_note(uint64_t address, uint64_t bytes);
void md_capture_reserve_note(uint64_t address, uint64_t bytes);

#endif
