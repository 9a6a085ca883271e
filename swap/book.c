/* SPDX-License-Identifier: Apache-2.0 */
/* Notes the hashes of memory that has come in, and forgets them when it goes out. */
#include "swap/book.h"

#include <stdlib.h>
#include <string.h>

static const struct md_hash unknown;

void md_swap_book_clear(struct md_swap_book *book)
{
	for (size_t i = 0; i < book->count; i++)
		free(book->parts[i].hashes);
	free(book->parts);
	*book = (struct md_swap_book){0};
}

static bool is_of_use(const struct md_swap_part *part)
{
	return part->count && part->range.serial && part->range.bytes >= MD_SWAP_LENT_LEAST;
}

static bool write_part(struct md_swap_book_part *to, const struct md_swap_contents *contents,
		       const struct md_swap_part *from)
{
	*to = (struct md_swap_book_part){.serial = from->range.serial,
					 .bytes = from->range.bytes,
					 .device = from->range.device,
					 .count = from->count,
					 .hashes = calloc(from->count, sizeof(*to->hashes))};
	for (size_t i = 0; to->hashes && i < from->count; i++)
		if (contents->blocks[from->first + i] < MD_SWAP_ZERO &&
		    contents->hashes[from->first + i].size == MD_SWAP_BLOCK)
			to->hashes[i] = contents->hashes[from->first + i].hash;
	return to->hashes != NULL;
}

void md_swap_book_write(struct md_swap_book *book, const struct md_swap_contents *contents)
{
	md_swap_book_clear(book);
	book->parts = calloc(contents->part_count + 1, sizeof(*book->parts));
	for (size_t i = 0; book->parts && i < contents->part_count; i++) {
		if (!is_of_use(&contents->parts[i]))
			continue;
		if (!write_part(&book->parts[book->count], contents, &contents->parts[i])) {
			md_swap_book_clear(book);
			return;
		}
		book->count++;
	}
}

void md_swap_book_forget(struct md_swap_book *book, uint32_t part, uint32_t block)
{
	if (part < book->count && block < book->parts[part].count)
		book->parts[part].hashes[block] = unknown;
}

int md_swap_book_device(const struct md_swap_book *book)
{
	int most = 0;
	uint64_t found = 0;
	for (size_t i = 0; i < book->count; i++) {
		uint64_t bytes = 0;
		for (size_t other = 0; other < book->count; other++)
			bytes += book->parts[other].device == book->parts[i].device ? book->parts[other].bytes : 0;
		if (bytes <= found)
			continue;
		found = bytes;
		most = book->parts[i].device;
	}
	return most;
}

bool md_swap_book_knows(const struct md_swap_book_part *part, size_t block)
{
	return !md_hash_equal(&part->hashes[block], &unknown);
}
