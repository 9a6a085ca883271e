/* SPDX-License-Identifier: Apache-2.0 */
/* What this process's memory held when it came in last: hashes of blocks, by which other engines find the same blocks here. */
#ifndef MD_SWAP_BOOK_H
#define MD_SWAP_BOOK_H

#include "swap/contents.h"

/* Physical memory; the engine may have changed or freed it since. */
struct md_swap_book_part {
	uint64_t serial; /* struct md_swap_physical */
	uint64_t bytes;
	int device;
	size_t count;
	struct md_hash *hashes; /* owned; of each block; all zero: not known, or of no use to others */
};

/* Belongs to the thread of swap/control.c. */
struct md_swap_book {
	struct md_swap_book_part *parts; /* owned */
	size_t count;
};

/* Notes memory that is worth lending, instead of what was noted before. Without memory for it, nothing is noted. */
void md_swap_book_write(struct md_swap_book *book, const struct md_swap_contents *contents);
void md_swap_book_clear(struct md_swap_book *book);
/* Another engine has found other bytes there. */
void md_swap_book_forget(struct md_swap_book *book, uint32_t part, uint32_t block);
/* The device on which most of it is. */
int md_swap_book_device(const struct md_swap_book *book);
bool md_swap_book_knows(const struct md_swap_book_part *part, size_t block);

#endif
