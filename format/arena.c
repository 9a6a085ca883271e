/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas: many small blocks that are freed together, such as the parameters and attributes of one graph's nodes. */
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "format/artifact/artifact.h"

#define FIRST_BYTES (1u << 10)
#define CHUNK_BYTES (64u << 10)
#define POOL_BYTES ((size_t)32 << 20) /* of addresses; memory comes with the first touch */
#define HUGE_PAGE ((size_t)2 << 20)

struct chunk {
	struct chunk *older;
	size_t used, capacity;
	bool mapped; /* of a pool */
	alignas(16) uint8_t bytes[];
};

/* Chunks grow in size, because a file may have very many graphs with very few bytes each. */
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

/*
 * Huge pages, where the kernel gives them: the page faults of small ones take a third of the time in which an artifact's
 * graphs are read. Sanitizers watch the heap alone, so it is taken with them.
 */
static struct chunk *chunk_map(size_t bytes)
{
#ifdef __SANITIZE_ADDRESS__
	(void)bytes;
	return NULL;
#else
	size_t size = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	char *base =
	    mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return NULL;
	size_t before = -(uintptr_t)base % HUGE_PAGE;
	if (before)
		munmap(base, before);
	munmap(base + before + size, HUGE_PAGE - before);
	struct chunk *chunk = (struct chunk *)(base + before);
	madvise(chunk, size, MADV_HUGEPAGE);
	chunk->mapped = true;
	chunk->capacity = size - sizeof(*chunk);
	return chunk;
#endif
}

static bool is_pool(const struct chunk *newest)
{
	return newest && newest->mapped;
}

bool md_arena_open_pool(void **arena)
{
	*arena = chunk_map(POOL_BYTES);
	return *arena != NULL;
}

static struct chunk *chunk_add(void **arena, size_t bytes)
{
	size_t capacity = chunk_capacity(*arena, bytes), pool = sizeof(struct chunk) + bytes;
	struct chunk *chunk = is_pool(*arena) ? chunk_map(pool > POOL_BYTES ? pool : POOL_BYTES) : NULL;
	if (chunk) {
		chunk->older = *arena;
		*arena = chunk;
		return chunk;
	}
	chunk = calloc(1, sizeof(*chunk) + capacity);
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
	if (is_pool(*arena))
		return bytes;
	return fits(*arena, bytes) ? 0 : sizeof(struct chunk) + chunk_capacity(*arena, bytes);
}

void md_arena_free(void **arena)
{
	struct chunk *chunk = *arena;
	while (chunk) {
		struct chunk *older = chunk->older;
		if (chunk->mapped)
			munmap(chunk, sizeof(*chunk) + chunk->capacity);
		else
			free(chunk);
		chunk = older;
	}
	*arena = NULL;
}
