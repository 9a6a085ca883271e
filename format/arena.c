/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas: many small blocks that live and die together, the parameters and attributes of one graph's nodes. */
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "format/artifact/artifact.h"

#define FIRST_BYTES (1u << 10)
#define CHUNK_BYTES (64u << 10)

struct chunk {
	struct chunk *older;
	size_t used, capacity;
	alignas(16) uint8_t bytes[];
};

/* Chunks grow: a file may have very many graphs with very few bytes each. */
static size_t chunk_capacity(const struct chunk *newest, size_t bytes)
{
	size_t usual = newest ? newest->capacity * 2 : FIRST_BYTES;
	if (usual > CHUNK_BYTES)
		usual = CHUNK_BYTES;
	return bytes > usual / 4 ? bytes : usual;
}

static size_t round_up(size_t bytes)
{
	return (bytes + 15) & ~(size_t)15;
}

static bool fits(const struct chunk *chunk, size_t bytes)
{
	return chunk && chunk->capacity - chunk->used >= bytes;
}

static struct chunk *chunk_add(void **arena, size_t bytes)
{
	size_t capacity = chunk_capacity(*arena, bytes);
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
	bytes = round_up(bytes);
	struct chunk *chunk = *arena;
	if (!fits(chunk, bytes))
		chunk = chunk_add(arena, bytes);
	if (!chunk)
		return NULL;
	void *block = chunk->bytes + chunk->used;
	chunk->used += bytes;
	return block;
}

size_t md_arena_need(void *const *arena, size_t bytes)
{
	if (bytes > SIZE_MAX / 2)
		return SIZE_MAX;
	bytes = round_up(bytes);
	return fits(*arena, bytes) ? 0 : sizeof(struct chunk) + chunk_capacity(*arena, bytes);
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
