/* SPDX-License-Identifier: Apache-2.0 */
/* Large memory compared in part: which buffers to save whole, where to look in the others, and what has changed. */
#ifndef MD_BASE_SAMPLE_H
#define MD_BASE_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Windows of equal size at equal distances: the first begins at the start of the memory. The last ends at its end, and
 * may be a little further from the one before it.
 */
struct md_sample {
	uint64_t of;             /* bytes that are sampled */
	uint32_t windows, bytes; /* bytes of one window; never 0, together at most half of what is sampled */
};

#define MD_SAMPLE_WINDOW (64u << 10) /* bytes of a window, where the memory is large enough */

/*
 * Plans the sample of `size` > 0 bytes, one of `among` buffers that are sampled together. Fewer than 4 bytes overlap.
 */
struct md_sample md_sample_plan(uint64_t size, uint32_t among);
uint64_t md_sample_offset(const struct md_sample *sample, uint32_t window);
/* True if a window that did not change is looked at again; the first and the last window always are. */
bool md_sample_stays(const struct md_sample *sample, uint32_t window, uint32_t among);

/*
 * Chooses which of `count` buffers are sampled, because they do not fit into `room` bytes. Small buffers are saved
 * whole first; buffers of one size are layers of the same thing, and are all saved or all sampled. Returns how many are
 * sampled.
 */
uint32_t md_sample_choose(const uint64_t *sizes, uint32_t count, uint64_t room, bool *sampled);

/* The next changed stretch from *at on, as [*at, *end); changes near each other are merged. False: there is none. */
bool md_change_next(const uint8_t *before, const uint8_t *now, size_t size, size_t *at, size_t *end);

#endif
