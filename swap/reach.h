/* SPDX-License-Identifier: Apache-2.0 */
/* A wish: the memory that a call may touch while memory is on its way, and the wait for it. */
#ifndef MD_SWAP_REACH_H
#define MD_SWAP_REACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/cuda_driver.h"

/*
 * A wish begins, takes words and ranges, and ends with a wait. The locks of memory and arrival are held until the wish
 * ends. They are not held during the wait, which may last until another thread makes a call. The wait is empty if
 * everything that was wished for has come.
 *
 * The contents of memory were searched for addresses when it went out. A word that points into a part wishes for this
 * part, and for all parts to which words in it lead. A word that points to other memory that the driver knows wishes for
 * everything, because the contents of that memory have not been searched.
 */
void md_swap_wish_begin(void);
/*
 * aligned: if the word is not an address in memory that was out, the driver is asked about it; else only where there was
 * memory near it.
 */
void md_swap_wish_word(uint64_t word, bool aligned);
/* Adds the words at all multiples of 4 bytes in parameters, or in bytes that are copied to the device. */
void md_swap_wish_bytes(const void *bytes, size_t size);
/* leads: words that are read there may be used as addresses. */
void md_swap_wish_range(uint64_t address, uint64_t bytes, bool leads);
/*
 * Adds the range that a copy reads, on the device or on the host. Bytes on the host are searched for addresses. to: the
 * address to which they are copied.
 */
void md_swap_wish_source(uint64_t address, uint64_t bytes, uint64_t to);
/* why: a text that stays, what the call does */
void md_swap_wish_all(const char *why);
/* The wish is that of this kernel's launch; for the log. */
void md_swap_wish_function(CUfunction function);
/*
 * Makes the stream wait, on the device. launch: counts the call as a launch. An error: the caller must not make the
 * call.
 */
CUresult md_swap_wish_await(CUstream stream, bool launch);
/* Makes this thread wait. */
CUresult md_swap_wish_block(void);

/* A host function may write memory that is copied to the device later. */
void md_swap_reach_unsteady(void);
/* Called when memory has come to an address in another way than as new device memory that swap/ manages. */
void md_swap_reach_came(uint64_t address, uint64_t bytes);
/* Whether the address, or one just beside it, is a word of these bytes. */
bool md_swap_reach_shows(const void *bytes, size_t size, uint64_t address);
/* Memory is read without a visible address (by a texture): from now on every call waits for everything. */
void md_swap_reach_hide(void);

/*
 * Whether graphs and memory are searched for addresses before medusa-swap in --overlap asks for it: in processes that
 * medusa-swap manages, unless MEDUSA_SWAP_OVERLAP is 0. Without that, graphs wait for everything.
 */
bool md_swap_prepares_overlap(void);

#endif
