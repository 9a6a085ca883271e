/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that the other ranks of the job have, too, and that no communication library made: vLLM's custom all-reduce and PyTorch's
 * symmetric memory share such memory. Kernels wait there for kernels of other ranks, so no rank replays their graphs alone.
 */
#ifndef MD_CAPTURE_RECORD_OTHERS_H
#define MD_CAPTURE_RECORD_OTHERS_H

#include "capture/capture.h"

enum md_others {
	MD_OTHERS_NONE,
	MD_OTHERS_RANKS,    /* exported to another process, or imported from one */
	MD_OTHERS_MULTICAST /* a multicast object: what is written there is written to several devices */
};

/* The live allocation at start; it counts until it is freed. */
void md_capture_others_note(uint64_t start, enum md_others how) MD_CAPTURE_HELD;
void md_capture_others_forget(uint64_t start) MD_CAPTURE_HELD;
/* A process that is no rank of several is fed by others, and its graphs wait for nobody: MD_OTHERS_RANKS is nothing there. */
enum md_others md_capture_others_at(uint64_t address) MD_CAPTURE_HELD;
/* The engine has bound part of the allocation there. Memory that ranks share has a name of its own, so bound it counts as without one. */
bool md_capture_others_bound(uint64_t address) MD_CAPTURE_HELD;
bool md_capture_others_any(void) MD_CAPTURE_HELD;
/* "memory that ...", and what to do; NULL: MD_OTHERS_NONE. */
const char *md_capture_others_said(enum md_others how);

#endif
