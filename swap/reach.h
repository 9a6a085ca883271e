/* SPDX-License-Identifier: Apache-2.0 */
/* What a call may touch of the memory that is on its way: a wish, and the wait for it. */
#ifndef MD_SWAP_REACH_H
#define MD_SWAP_REACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/cuda_driver.h"

/*
 * A wish begins, takes words and ranges, and ends with a wait; the locks of memory and arrival are held from the first
 * to the last. Nothing is waited for where all of it is there.
 *
 * What memory holds has been looked through for addresses when it went. A word that points into a part wishes for the
 * part and for all that the words in it lead to. Words that point to other memory that the driver knows wish for
 * everything, because nobody has looked through that.
 */
void md_swap_wish_begin(void);
/* aligned: the driver is asked about it, too, if it is no address in memory that was out. */
void md_swap_wish_word(uint64_t word, bool aligned);
/* Parameters, or what is copied to the device: words at all multiples of 4 bytes. */
void md_swap_wish_bytes(const void *bytes, size_t size);
/* leads: what is read there is used as an address, perhaps. */
void md_swap_wish_range(uint64_t address, uint64_t bytes, bool leads);
/* The range that a copy reads: of the device, or of the host, whose bytes are looked through. */
void md_swap_wish_source(uint64_t address, uint64_t bytes);
void md_swap_wish_all(void);
/* The stream waits, on the device. launch: counted as one. An error: the caller's call must not be made. */
CUresult md_swap_wish_await(CUstream stream, bool launch);
/* This thread waits. */
CUresult md_swap_wish_block(void);

/* A host function may write memory that is copied to the device later. */
void md_swap_reach_unsteady(void);
/* The driver has memory that it did not have before. */
void md_swap_reach_renew(void);
/* Whether the address, or one just beside it, is a word of these bytes. */
bool md_swap_reach_shows(const void *bytes, size_t size, uint64_t address);
/* Memory is read in a way that no address shows (a texture): everything waits for everything from now on. */
void md_swap_reach_hide(void);

/*
 * Whether medusa-swap in --overlap may be asked for (MEDUSA_SWAP_OVERLAP): only then is work done ahead of it. Without
 * that work every call waits for everything.
 */
bool md_swap_prepares_overlap(void);

#endif
