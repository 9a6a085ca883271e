/* SPDX-License-Identifier: Apache-2.0 */
/* Constant memory that several engines have in common: what medusa-backbone gives for it, by what it holds. */
#ifndef MD_SWAP_EQUAL_H
#define MD_SWAP_EQUAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"
#include "driver/cuda_driver.h"

struct md_share; /* a lease: the memory is held by medusa-backbone until it ends */

/*
 * Asks for memory that holds what key says, without waiting for other processes. fills: nobody has it, and this process
 * is to write it. *fd belongs to the lease. Any error: there is none now. Defined in libmedusa-swap.so alone (backbone/equal.c),
 * as the others.
 */
enum md_status md_swap_equal_attach(CUdevice device, const struct md_hash *key, uint64_t bytes, struct md_share **lease,
				    int *fd, bool *fills, struct md_error *err) __attribute__((weak));
/* Says that the memory is written, and read-only here. After an error nobody else may have it, or somebody may. */
enum md_status md_swap_equal_commit(struct md_share *lease, struct md_error *err) __attribute__((weak));
/*
 * Whether there is room for memory of this process's own in the place of it, for which others may have to go first. *alone:
 * nobody else has it, or gets it: it may be written instead. Waits for some seconds; any error: not now.
 */
enum md_status md_swap_equal_own(struct md_share *lease, bool *alone, struct md_error *err) __attribute__((weak));
/* The memory is not mapped any more. */
void md_swap_equal_end(struct md_share *lease) __attribute__((weak));

#endif
