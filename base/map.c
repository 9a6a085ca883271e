/* SPDX-License-Identifier: Apache-2.0 */
/* Open-addressing hash map: linear probing, tombstones, at most three quarters filled. */
#include "base/map.h"

#include <stdlib.h>

#include "base/splitmix.h"

enum slot_state { SLOT_EMPTY, SLOT_LIVE, SLOT_GONE };

struct md_map_slot {
	uint64_t key;
	uint64_t value;
	uint8_t state; /* slot_state */
};

#define FIRST_CAPACITY 16u

void md_map_init(struct md_map *map)
{
	*map = (struct md_map){0};
}

void md_map_finish(struct md_map *map)
{
	free(map->slots);
	*map = (struct md_map){0};
}

/* Handles and addresses differ mostly in their middle bits: mix these into the low ones. */
static size_t home_of(const struct md_map *map, uint64_t key)
{
	return (size_t)md_random_mix(key) & (map->capacity - 1);
}

static struct md_map_slot *find(const struct md_map *map, uint64_t key)
{
	if (!map->capacity)
		return NULL;
	for (size_t i = home_of(map, key); map->slots[i].state != SLOT_EMPTY; i = (i + 1) & (map->capacity - 1))
		if (map->slots[i].state == SLOT_LIVE && map->slots[i].key == key)
			return &map->slots[i];
	return NULL;
}

/* The key is known to be absent, and there is room. */
static void insert(struct md_map *map, uint64_t key, uint64_t value)
{
	size_t i = home_of(map, key);
	while (map->slots[i].state == SLOT_LIVE)
		i = (i + 1) & (map->capacity - 1);
	if (map->slots[i].state == SLOT_EMPTY)
		map->filled++;
	map->used++;
	map->slots[i] = (struct md_map_slot){key, value, SLOT_LIVE};
}

static bool rehash(struct md_map *map, size_t capacity)
{
	struct md_map grown = {.capacity = capacity};
	if (capacity > SIZE_MAX / sizeof(*grown.slots))
		return false;
	grown.slots = calloc(capacity, sizeof(*grown.slots));
	if (!grown.slots)
		return false;
	for (size_t i = 0; i < map->capacity; i++)
		if (map->slots[i].state == SLOT_LIVE)
			insert(&grown, map->slots[i].key, map->slots[i].value);
	free(map->slots);
	*map = grown;
	return true;
}

bool md_map_put(struct md_map *map, uint64_t key, uint64_t value)
{
	struct md_map_slot *slot = find(map, key);
	if (slot) {
		slot->value = value;
		return true;
	}
	if (map->filled + 1 > map->capacity / 4 * 3) {
		size_t capacity = map->capacity ? map->capacity : FIRST_CAPACITY;
		/* Most filled slots are tombstones: a rehash of the same size is enough. */
		if (map->used + 1 > capacity / 2)
			capacity *= 2;
		if (!rehash(map, capacity))
			return false;
	}
	insert(map, key, value);
	return true;
}

bool md_map_get(const struct md_map *map, uint64_t key, uint64_t *value)
{
	const struct md_map_slot *slot = find(map, key);
	if (slot && value)
		*value = slot->value;
	return slot != NULL;
}

bool md_map_remove(struct md_map *map, uint64_t key, uint64_t *value)
{
	struct md_map_slot *slot = find(map, key);
	if (!slot)
		return false;
	if (value)
		*value = slot->value;
	slot->state = SLOT_GONE;
	map->used--;
	return true;
}

bool md_map_next(const struct md_map *map, size_t *cursor, uint64_t *key, uint64_t *value)
{
	for (; *cursor < map->capacity; (*cursor)++) {
		const struct md_map_slot *slot = &map->slots[*cursor];
		if (slot->state != SLOT_LIVE)
			continue;
		if (key)
			*key = slot->key;
		if (value)
			*value = slot->value;
		(*cursor)++;
		return true;
	}
	return false;
}
