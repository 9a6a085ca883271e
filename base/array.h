/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growing arrays. On failure (no memory, or a size that does not fit size_t) the array and its room stay as they were.
 */
#ifndef MD_BASE_ARRAY_H
#define MD_BASE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * realloc for `count` items of `item` bytes, and for at least one byte. NULL: out of memory, or the bytes do not fit
 * size_t.
 */
void *md_array_resize(void *array, uint64_t count, size_t item);

/*
 * Makes room for at least `wanted` items: for twice *room if that is more, and never for more than `most`. *room is set
 * on success. NULL: as above, or `wanted` is 0 or above `most`.
 */
void *md_array_enlarge(void *array, uint64_t wanted, uint64_t *room, uint64_t most, size_t item);

/*
 * True: `array` has room for `wanted` items; `room`, of any unsigned type, holds the number of items there is room for.
 */
#define MD_ARRAY_RESERVE(array, wanted, room)                                                                          \
	((uint64_t)(wanted) <= (uint64_t)(room) || MD_ARRAY_ENLARGE_((array), (uint64_t)(wanted), (room)))

/* The same for one item after the first `count`. */
#define MD_ARRAY_GROW(array, count, room)                                                                              \
	((uint64_t)(count) < (uint64_t)(room) || MD_ARRAY_ENLARGE_((array), (uint64_t)(count) + 1, (room)))

/* The same for arrays that seldom grow, and whose room is their count. */
#define MD_ARRAY_EXTEND(array, count)                                                                                  \
	({                                                                                                             \
		uint64_t md_count_ = (count);                                                                          \
		__typeof__(array) md_extended_ = md_count_ < MD_ARRAY_MOST_(count)                                     \
						     ? md_array_resize((array), md_count_ + 1, sizeof(*(array)))       \
						     : NULL;                                                           \
		if (md_extended_)                                                                                      \
			(array) = md_extended_;                                                                        \
		md_extended_ != NULL;                                                                                  \
	})

#define MD_ARRAY_MOST_(room) ((uint64_t)(__typeof__(room))-1)
#define MD_ARRAY_ENLARGE_(array, wanted, room)                                                                         \
	({                                                                                                             \
		uint64_t md_room_ = (room);                                                                            \
		__typeof__(array) md_enlarged_ =                                                                       \
		    md_array_enlarge((array), (wanted), &md_room_, MD_ARRAY_MOST_(room), sizeof(*(array)));            \
		_Static_assert((__typeof__(room))-1 > 0, "room is unsigned");                                          \
		if (md_enlarged_) {                                                                                    \
			(array) = md_enlarged_;                                                                        \
			(room) = (__typeof__(room))md_room_;                                                           \
		}                                                                                                      \
		md_enlarged_ != NULL;                                                                                  \
	})

#endif
