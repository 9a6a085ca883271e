/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that grow. */
#include "base/array.h"

#include <stdlib.h>

#define FIRST_ROOM 8

void *md_array_resize(void *array, uint64_t count, size_t item)
{
	size_t bytes;
	if (__builtin_mul_overflow(count, item, &bytes))
		return NULL;
	return realloc(array, bytes ? bytes : 1);
}

void *md_array_enlarge(void *array, uint64_t wanted, uint64_t *room, uint64_t most, size_t item)
{
	uint64_t more = *room ? *room : FIRST_ROOM / 2; /* so that twice this is FIRST_ROOM */
	void *grown;
	if (!wanted || wanted > most)
		return NULL;
	more = more > most / 2 ? most : 2 * more;
	if (more < wanted)
		more = wanted;
	grown = md_array_resize(array, more, item);
	if (grown)
		*room = more;
	return grown;
}
