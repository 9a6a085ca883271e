/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that a communication library has made: never changed by a test, and known by the library and the order. */
#ifndef MD_CAPTURE_RECORD_MADE_H
#define MD_CAPTURE_RECORD_MADE_H

#include "capture/capture.h"

/*
 * Memory was allocated, mapped, registered or opened, and is recorded. caller: the hook's return address. Nothing happens
 * unless that lies in a communication library. Lock not held.
 */
void md_capture_made(const void *caller, uint64_t address);
/* The device sees host memory at this address, too. Lock not held. */
void md_capture_made_seen(const void *caller, uint64_t host, uint64_t device);

/*
 * Memory has come to be shared with other processes (own: this one exports it), in a process that is one of several ranks. Nothing
 * happens unless MEDUSA_RANKS_MEMORY is 1, where a communication library made or shares it, or where the engine has bound it. caller as above. Lock not held.
 */
void md_capture_made_shared(const void *caller, uint64_t address, bool own);

struct md_capture_made {
	const char *soname; /* NULL: no library made it, but ranks share it */
	char name[64];
};
/* NULL: the memory at the address is nobody's but the engine's. Valid until the memory is freed. */
const struct md_capture_made *md_capture_made_at(uint64_t address) MD_CAPTURE_HELD;
#define MD_MADE_SAID 192
/* "@nccl.17, memory of the communication library libnccl.so.2" */
const char *md_capture_made_said(const struct md_capture_made *made, char text[MD_MADE_SAID]);
void md_capture_made_forget(uint64_t start) MD_CAPTURE_HELD;

#endif
