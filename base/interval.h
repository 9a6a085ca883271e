/* SPDX-License-Identifier: Apache-2.0 */
/* Interval index: which of a changing set of non-overlapping [start, start + size) holds an address? */
#ifndef MD_BASE_INTERVAL_H
#define MD_BASE_INTERVAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct md_interval {
	uint64_t start;
	uint64_t size;
	uint64_t value;
};

struct md_interval_index {
	struct md_interval *items; /* sorted by start */
	size_t count;
	size_t capacity;
};

void md_interval_init(struct md_interval_index *index);
void md_interval_finish(struct md_interval_index *index);
/* Intervals that overlap the new one are dropped first (an address was reused); false when out of memory. */
bool md_interval_add(struct md_interval_index *index, uint64_t start, uint64_t size, uint64_t value);
/* Adds a range; intervals that it overlaps or touches are merged with it. */
bool md_interval_merge(struct md_interval_index *index, uint64_t start, uint64_t size);
/* Takes a range out of all intervals. False when out of memory: then the part of an interval behind the range is lost. */
bool md_interval_cut(struct md_interval_index *index, uint64_t start, uint64_t size);
/* Removes the interval that starts at start; false if there is none. */
bool md_interval_remove(struct md_interval_index *index, uint64_t start);
/* The interval holding address, or NULL. Valid until the next change. */
const struct md_interval *md_interval_find(const struct md_interval_index *index, uint64_t address);
/* The interval with the greatest start <= address, or NULL; for addresses one past the end of an interval. */
const struct md_interval *md_interval_floor(const struct md_interval_index *index, uint64_t address);
/* The interval with the least start > address, or NULL. */
const struct md_interval *md_interval_after(const struct md_interval_index *index, uint64_t address);

#endif
