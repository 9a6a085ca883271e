/* SPDX-License-Identifier: Apache-2.0 */
/* Private memory of graphs that launches outside of graphs are given addresses of. */
#ifndef MD_CAPTURE_RECORD_GIVEN_H
#define MD_CAPTURE_RECORD_GIVEN_H

#include "capture/capture.h"
#include "capture/record/launched.h"

/* Hot: one atomic load while no graph has private memory; no lock unless a word may be an address. Lock not held. */
void md_capture_given(struct md_capture_layout layout, void **params, void **extra);
void md_capture_given_watch(uint64_t start) MD_CAPTURE_HELD; /* an allocation in which a graph has an unbound address */
void md_capture_given_watch_words(const uint8_t *bytes,
				  size_t size) MD_CAPTURE_HELD; /* contents, with addresses in them */
/* Words that are addresses in this range are looked at: a variable of a module, of which the engine has the address. */
void md_capture_given_watch_range(uint64_t start, uint64_t size) MD_CAPTURE_HELD;
void md_capture_given_freed(uint64_t start) MD_CAPTURE_HELD; /* an allocation is gone, or another one is there */
void md_capture_given_put(void) MD_CAPTURE_HELD;             /* to the trace */
/* A cold start does not do what the engine did before that. */
uint64_t md_capture_warm_until(void) MD_CAPTURE_HELD;
/* The engine says that only graphs use it. */
void md_capture_scratch(uint64_t address, uint64_t bytes) MD_CAPTURE_HELD;
void md_capture_scratch_end(void) MD_CAPTURE_HELD; /* of all that was said so far */

#endif
