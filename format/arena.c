/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas: many small blocks that live and die together, the parameters and attributes of one graph's nodes. */
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "format/artifact.h"

#define CHUNK_BYTES (64u << 10)

struct chunk {
	struct chunk *older;
	size_t used, capacity;
	alignas(16) uint8_t bytes[];
};

static struct chunk *chunk_add(void **arena, size_t bytes)
{
	size_t capacity = bytes > CHUNK_BYTES / 4 ? bytes : CHUNK_BYTES;
	struct chunk *chunk = calloc(1, sizeof(*chunk) + capacity);
	if (!chunk)
		return NULL;
	chunk->capacity = capacity;
	chunk->older = *arena;
	*arena = chunk;
	return chunk;
}

void *md_arena_alloc(void **arena, size_t bytes)
{
	if (bytes > SIZE_MAX / 2)
		return NULL;
	bytes = (bytes + 15) & ~(size_t)15;
	struct chunk *chunk = *arena;
	if (!chunk || chunk->capacity - chunk->used < bytes)
		chunk = chunk_add(arena, bytes);
	if (!chunk)
		return NULL;
	void *block = chunk->bytes + chunk->used;
	chunk->used += bytes;
	return block;
}

void md_arena_free(void **arena)
{
	struct chunk *chunk = *arena;
	while (chunk) {
		struct chunk *older = chunk->older;
		free(chunk);
		chunk = older;
	}
	*arena = NULL;
}
