/* SPDX-License-Identifier: Apache-2.0 */
/* Words in struct parameters that nobody sets: an address in one of them is what lay on the stack, and no kernel reads it. */
#ifndef MD_CAPTURE_RECORD_UNSET_WORDS_H
#define MD_CAPTURE_RECORD_UNSET_WORDS_H

#include "capture/record/launched.h"

/* A communication library has memory: from now on launches are looked at. */
void md_capture_unset_words_watch(void);
/* Hot: one atomic load until then, and a table's after a kernel's first launches. Lock not held. */
void md_capture_unset_words_note(struct md_capture_layout layout, void **params, void **extra);
/* The parameter block of a graph's node. */
void md_capture_unset_words_note_block(uint32_t kernel, const struct md_kernel *known, const uint8_t *block,
				       size_t size) MD_CAPTURE_HELD;
/*
 * Whether the word at that offset of the kernel's parameter block lies in a struct, and was seen to hold what is no
 * address of live memory, nor null. A kernel would have failed then, if it took the word for an address.
 */
bool md_capture_unset_words_has(uint32_t kernel, size_t offset) MD_CAPTURE_HELD;

#endif
