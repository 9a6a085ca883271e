/* SPDX-License-Identifier: Apache-2.0 */
/* A priority queue of small indices, which can be moved and removed: a binary heap that knows where each one is. */
#ifndef MD_SCHEDULER_CORE_PRIORITY_H
#define MD_SCHEDULER_CORE_PRIORITY_H

#include <stdbool.h>
#include <stdint.h>

struct md_key { /* order: by major, then by minor, then by index; the least is first */
	double major;
	uint64_t minor;
};

struct md_priority_item {
	struct md_key key;
	double turn; /* goes before rank and key: the least is first */
	uint32_t index;
	int32_t rank; /* goes before the key: the highest is first */
};

struct md_priority {
	struct md_priority_item *items;
	uint32_t *places; /* by index; UINT32_MAX: not in it */
	uint32_t count, capacity;
};

bool md_key_less(struct md_key a, struct md_key b);
void md_priority_init(struct md_priority *queue);
void md_priority_finish(struct md_priority *queue);
bool md_priority_reserve(struct md_priority *queue, uint32_t capacity); /* for indices < capacity; false: no memory */
void md_priority_put(struct md_priority *queue, uint32_t index,
		     struct md_key key); /* adds, or moves; turn and rank 0 */
void md_priority_put_turn(struct md_priority *queue, uint32_t index, double turn, int32_t rank, struct md_key key);
/* does nothing if it is not in the queue */
void md_priority_remove(struct md_priority *queue, uint32_t index);
bool md_priority_has(const struct md_priority *queue, uint32_t index);

#endif
