/* SPDX-License-Identifier: Apache-2.0 */
/* Open-addressing hash map from uint64_t to uint64_t (a handle, an address, an index). */
#ifndef MD_BASE_MAP_H
#define MD_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct md_map {
	struct md_map_slot *slots;
	size_t capacity; /* 0 or a power of two */
	size_t used;     /* live slots */
	size_t filled;   /* live slots and tombstones */
};

void md_map_init(struct md_map *map);
void md_map_finish(struct md_map *map);
bool md_map_put(struct md_map *map, uint64_t key, uint64_t value);        /* replaces; false when out of memory */
bool md_map_get(const struct md_map *map, uint64_t key, uint64_t *value); /* value may be NULL */
bool md_map_remove(struct md_map *map, uint64_t key, uint64_t *value);    /* value may be NULL; false if absent */

/* Iteration: start with cursor = 0; false at the end. No insertion or removal meanwhile. */
bool md_map_next(const struct md_map *map, size_t *cursor, uint64_t *key, uint64_t *value);

#endif
