/* SPDX-License-Identifier: Apache-2.0 */
/* Large memory compared in part: which buffers to save whole, where to look in the others, and what has changed. */
#include "base/sample.h"

#include <string.h>

#define WINDOWS_MOST 1024u
#define WINDOWS_LEAST 8u
#define WINDOWS_TOTAL 2048u /* of all buffers together */
#define WINDOWS_STAY 128u   /* of all buffers together */
#define WINDOW_LEAST 64u
#define ALIGNMENT 16u

#define GRAIN 1024u       /* a change is noticed for this many bytes at a time */
#define MERGE (32u << 10) /* changes nearer to each other than this are merged: a copy costs more than its bytes */

struct md_sample md_sample_plan(uint64_t size, uint32_t among)
{
	uint32_t bytes = MD_SAMPLE_WINDOW, windows = WINDOWS_TOTAL / (among ? among : 1);
	windows = windows > WINDOWS_MOST ? WINDOWS_MOST : windows < WINDOWS_LEAST ? WINDOWS_LEAST : windows;
	while (windows > WINDOWS_LEAST && (uint64_t)windows * bytes > size / 2)
		windows /= 2;
	while (bytes > WINDOW_LEAST && (uint64_t)windows * bytes > size / 2)
		bytes /= 2;
	if ((uint64_t)windows * bytes > size / 2) {
		windows = 2;
		bytes = size < 4 ? 1 : (uint32_t)(size / 4);
	}
	return (struct md_sample){size, windows, bytes};
}

uint64_t md_sample_offset(const struct md_sample *sample, uint32_t window)
{
	uint64_t room = sample->of - sample->bytes;
	uint64_t distance = room / (sample->windows - 1) / ALIGNMENT * ALIGNMENT;
	return window + 1 == sample->windows ? room : window * distance;
}

bool md_sample_stays(const struct md_sample *sample, uint32_t window, uint32_t among)
{
	uint32_t each = WINDOWS_STAY / (among ? among : 1);
	uint32_t step = each < 2 ? sample->windows : (sample->windows + each - 1) / each;
	return window % step == 0 || window + 1 == sample->windows;
}

uint32_t md_sample_choose(const uint64_t *sizes, uint32_t count, uint64_t room, bool *sampled)
{
	uint32_t chosen = 0;
	for (uint64_t size = 0;;) {
		uint64_t next = UINT64_MAX, alike = 0;
		for (uint32_t i = 0; i < count; i++) {
			if (sizes[i] <= size || sizes[i] > next)
				continue;
			alike = sizes[i] < next ? 1 : alike + 1;
			next = sizes[i];
		}
		if (!alike)
			return chosen;
		size = next;
		bool fits = alike <= room / size;
		room -= fits ? alike * size : 0;
		chosen += fits ? 0 : (uint32_t)alike;
		for (uint32_t i = 0; i < count; i++) {
			if (sizes[i] == size)
				sampled[i] = !fits;
		}
	}
}

bool md_change_next(const uint8_t *before, const uint8_t *now, size_t size, size_t *at, size_t *end)
{
	size_t grain, start = size;
	for (size_t i = *at; i < size; i += grain) {
		grain = size - i < GRAIN ? size - i : GRAIN;
		if (start < size && i >= *end + MERGE)
			break;
		if (!memcmp(before + i, now + i, grain))
			continue;
		start = start < size ? start : i;
		*end = i + grain;
	}
	*at = start;
	return start < size;
}
