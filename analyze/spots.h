/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of places in allocations of the first capture: where graphs have addresses, and how far what is there may reach. */
#ifndef MD_ANALYZE_SPOTS_H
#define MD_ANALYZE_SPOTS_H

#include <stdbool.h>
#include <stddef.h>

#include "analyze/view.h"

/* A byte of an allocation of the first capture. */
struct md_spot {
	uint32_t alloc;
	uint64_t offset;
};

struct md_spots { /* ascending, each once, as soon as it is sorted */
	struct md_spot *items;
	size_t count, capacity;
};

int md_spot_compare(const void *left, const void *right);
/* False when out of memory. */
bool md_spots_add(struct md_spots *spots, struct md_spot spot);
void md_spots_sort(struct md_spots *spots);
/* The index of the first one behind a spot. */
size_t md_spots_behind(const struct md_spots *spots, struct md_spot spot);
/* Where the next one of its allocation lies, if that is before `otherwise`. */
uint64_t md_spots_next(const struct md_spots *spots, struct md_spot spot, uint64_t otherwise);
/* Where the next binding of the allocation begins, or the allocation ends. */
uint64_t md_spot_piece_end(const struct md_view *view, struct md_spot spot);

#endif
