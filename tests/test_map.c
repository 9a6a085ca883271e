/* SPDX-License-Identifier: Apache-2.0 */
/* Hash map: agrees with a plain array under random insertions and removals. */
#include "base/map.h"

#include <criterion/criterion.h>
#include <string.h>

Test(map, empty)
{
	struct md_map map;
	size_t cursor = 0;
	md_map_init(&map);
	cr_assert_not(md_map_get(&map, 1, NULL));
	cr_assert_not(md_map_remove(&map, 1, NULL));
	cr_assert_not(md_map_next(&map, &cursor, NULL, NULL));
	md_map_finish(&map);
}

Test(map, replaces)
{
	struct md_map map;
	uint64_t value = 0;
	md_map_init(&map);
	cr_assert(md_map_put(&map, 0, 10), "zero is a key like any other");
	cr_assert(md_map_put(&map, UINT64_MAX, 11));
	cr_assert(md_map_put(&map, 0, 12));
	cr_assert(md_map_get(&map, 0, &value));
	cr_assert_eq(value, 12);
	cr_assert_eq(map.used, 2);
	cr_assert(md_map_remove(&map, 0, &value));
	cr_assert_eq(value, 12);
	cr_assert_not(md_map_get(&map, 0, &value));
	cr_assert(md_map_get(&map, UINT64_MAX, NULL));
	md_map_finish(&map);
}

#define KEYS 512

/* Keys as allocators hand them out: multiples of 512. */
static uint64_t key_of(size_t i)
{
	return 0x7f0000000000 + 512 * i;
}

static void assert_same(const struct md_map *map, const uint64_t expected[KEYS], const bool live[KEYS])
{
	size_t cursor = 0, seen = 0, count = 0;
	uint64_t key, value;
	for (size_t i = 0; i < KEYS; i++) {
		bool found = md_map_get(map, key_of(i), &value);
		count += live[i];
		cr_assert_eq(found, live[i], "key %zu", i);
		cr_assert(!found || value == expected[i], "value of key %zu", i);
	}
	while (md_map_next(map, &cursor, &key, &value)) {
		size_t i = (key - key_of(0)) / 512;
		cr_assert(i < KEYS && live[i] && expected[i] == value, "iteration gives what is in the map");
		seen++;
	}
	cr_assert_eq(seen, count);
	cr_assert_eq(map->used, count);
}

Test(map, agrees_with_an_array)
{
	uint64_t expected[KEYS] = {0}, random = 88172645463325252u;
	bool live[KEYS] = {false};
	struct md_map map;
	md_map_init(&map);
	for (size_t step = 0; step < 50000; step++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		size_t i = (random >> 20) % KEYS;
		if (random & 1) {
			cr_assert(md_map_put(&map, key_of(i), step));
			expected[i] = step;
			live[i] = true;
		} else {
			cr_assert_eq(md_map_remove(&map, key_of(i), NULL), live[i]);
			live[i] = false;
		}
		if (step % 5000 == 0)
			assert_same(&map, expected, live);
	}
	assert_same(&map, expected, live);
	cr_assert(map.capacity <= 4 * KEYS, "tombstones do not make it grow: %zu", map.capacity);
	md_map_finish(&map);
}
