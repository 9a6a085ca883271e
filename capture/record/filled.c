/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory that the engine has filled outside of graphs, by copies from the host or sets. It holds data, unless a
 * kernel has written there since.
 */
#include <string.h>

#include "base/splitmix.h"
#include "capture/capture.h"
#include "capture/record/filled.h"

#define MOST 65536 /* ranges; later ones are not remembered */
#define WINDOWS 16 /* of a large range, these are hashed; a range of no more bytes is hashed whole */
#define WINDOW_BYTES 256

/* Value: how to recognize the filled bytes. */
static struct md_interval_index filled MD_CAPTURE_GUARDED;
#define NOBODY_KNOWS 0 /* a part of a copy, which cannot be recognized */
#define ALL_THE_SAME 1 /* it was set */
#define TOLD_BY 2      /* or more: a hash */

static bool is_device(const struct md_interval *item)
{
	return item && (item->value & MD_FAMILY_MASK) != MD_ALLOC_HOST;
}

void md_capture_filled_forget(uint64_t start, uint64_t size)
{
	const struct md_interval *item;
	while (size && (item = md_interval_floor(&filled, start + size - 1)) && item->start + item->size > start) {
		struct md_interval found = *item;
		uint64_t rest = found.value == ALL_THE_SAME ? ALL_THE_SAME : NOBODY_KNOWS,
			 end = found.start + found.size;
		md_interval_remove(&filled, found.start);
		if (found.start < start)
			md_interval_add(&filled, found.start, start - found.start, rest);
		if (end > start + size)
			md_interval_add(&filled, start + size, end - start - size, rest);
	}
}

uint64_t md_capture_filled_window(uint64_t size, unsigned window, uint64_t *bytes)
{
	if (size <= WINDOWS * WINDOW_BYTES) {
		*bytes = window ? 0 : size;
		return 0;
	}
	*bytes = window < WINDOWS ? WINDOW_BYTES : 0;
	return (size - WINDOW_BYTES) / (WINDOWS - 1) * window;
}

/* Windows are hashed one after the other. */
uint64_t md_capture_filled_hash(uint64_t hash, const void *bytes, uint64_t size)
{
	return md_hash_checksum(bytes, size) + hash * MD_RANDOM_STEP;
}

static uint64_t tell(const uint8_t *bytes, uint64_t size)
{
	uint64_t hash = 0, part;
	for (unsigned i = 0;; i++) {
		uint64_t at = md_capture_filled_window(size, i, &part);
		if (!part)
			return hash < TOLD_BY ? TOLD_BY : hash;
		hash = md_capture_filled_hash(hash, bytes + at, part);
	}
}

/* A range lies within one allocation, and is forgotten with it. */
void md_capture_filled(const void *from, uint64_t to, uint64_t size)
{
	const uint8_t *bytes = from;
	const struct md_interval *item;
	md_capture_lock();
	if (from && is_device(md_interval_find(&md_capture.live, (uintptr_t)from)))
		size = 0;
	while (md_capture.writer && size && filled.count < MOST &&
	       is_device(item = md_interval_find(&md_capture.live, to))) {
		uint64_t left = item->start + item->size - to, part = size < left ? size : left;
		md_capture_filled_forget(to, part);
		if (!md_interval_add(&filled, to, part, bytes ? tell(bytes, part) : ALL_THE_SAME))
			md_capture_trouble("out of memory for what the engine copies");
		bytes = bytes ? bytes + part : NULL;
		to += part;
		size -= part;
	}
	md_capture_unlock();
}

const struct md_interval *md_capture_filled_at(uint64_t address)
{
	return md_interval_find(&filled, address);
}

bool md_capture_filled_holds(const struct md_interval *range, uint64_t hash)
{
	return range->value < TOLD_BY || range->value == (hash < TOLD_BY ? TOLD_BY : hash);
}

bool md_capture_filled_was_set(const struct md_interval *range)
{
	return range->value == ALL_THE_SAME;
}
