/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface for constants that several processes have in one piece of device memory: a model's backbone. */
#ifndef MEDUSA_SHARE_H
#define MEDUSA_SHARE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * medusa-backbone(1) creates the memory and hands it out; it never maps it. The first process fills it, the others map
 * it read-only. A kernel that writes to a read-only mapping breaks the context of its own process, and the memory
 * is not changed. That protects against mistakes, not against a process of the same user that wants to do harm
 * (SECURITY.md in the source tree: whoever holds the descriptor can map it for writing).
 *
 * Only what no forward writes may lie there: weights, but no buffers such as rotary caches, scales that are
 * computed, or counters.
 *
 * The functions work in each library of Medusa, also in libmedusa.so alone. Codes, besides those named below:
 * MEDUSA_ERR_INVALID (an argument), MEDUSA_ERR_NO_MEMORY (of the host or of the device), MEDUSA_ERR_DRIVER;
 * medusa_reason() says why in one sentence. After each failure the process has what it had before.
 */

typedef unsigned long long medusa_deviceptr; /* as in medusa.h */

struct medusa_share_options {
	size_t size;          /* sizeof(struct medusa_share_options), set by the caller */
	uint64_t deadline_ns; /* how long to wait while another process fills the memory; NULL or 0: ten minutes */
	int verify;           /* 1: hash what is there, and compare with what was committed */
};

/*
 * Takes `bytes` bytes of device memory, on the device of the current context, that all processes have in common which
 * give the same name and layout. layout is a text of at most 1,024 characters that tells apart what must not be
 * mixed: names, shapes, types and places of all tensors, and the revision of the weights; long ones are best given as a
 * hash. *address is aligned to 2 MiB.
 *
 * *filled is 1 if the memory is filled, and mapped read-only; 0: the caller fills it, and calls medusa_share_commit.
 *
 * While another process fills the memory the call waits; when that one dies before it commits, the caller
 * fills it. With another layout the memory is another one, beside the first.
 *
 * MEDUSA_ERR_NOT_FOUND: no medusa-backbone runs (MEDUSA_BACKBONE, or its usual socket), this process records a capture
 * or a verification, which share nothing, or the broker does not allow it: take memory of your own.
 * MEDUSA_ERR_TIMEOUT: another process was still filling it. MEDUSA_ERR_MISMATCH: the same name and layout has another
 * number of bytes, or with verify, the bytes have changed since they were committed. MEDUSA_ERR_UNSUPPORTED: the
 * device has no virtual memory management.
 */
int medusa_share(const char *name, const char *layout, size_t bytes, const struct medusa_share_options *options,
		 medusa_deviceptr *address, int *filled);
/*
 * Says that the memory is filled. Waits for the work of the context, maps the memory read-only, and gives it to the
 * processes that wait. MEDUSA_ERR_NOT_FOUND: the address is not one that this process fills, or the broker has gone: then
 * no other process gets the memory any more, but it is read-only all the same.
 */
int medusa_share_commit(medusa_deviceptr address);
/* Unmaps the memory, which nothing may use any more. The device has it back when the last process has done so. */
int medusa_share_end(medusa_deviceptr address);

#ifdef __cplusplus
}
#endif

#endif
