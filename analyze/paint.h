/* SPDX-License-Identifier: Apache-2.0 */
/* Overlapping bound ranges are painted onto allocations; where they overlap, the narrowest one shows. */
#ifndef MD_ANALYZE_PAINT_H
#define MD_ANALYZE_PAINT_H

#include "analyze/view.h"

struct md_paint_stroke {
	uint32_t alloc;
	uint64_t width; /* of the whole binding */
	struct md_view_piece piece;
};

struct md_paint {
	struct md_paint_stroke *strokes;
	uint32_t count, capacity;
};

bool md_paint_add(struct md_paint *paint, uint32_t alloc, const struct md_view_piece *piece, uint64_t width);
/* The pieces that show, ascending by (allocation, offset); first has alloc_count + 1 entries. Both owned
 * by the caller. */
bool md_paint_dry(struct md_paint *paint, uint32_t alloc_count, struct md_view_piece **pieces, uint32_t **first);
void md_paint_finish(struct md_paint *paint);

#endif
