/* SPDX-License-Identifier: Apache-2.0 */
/* A binary heap that records where each item is. */
#include "scheduler/core/priority.h"

#include <stdlib.h>

#include "base/array.h"

#define ABSENT UINT32_MAX

bool md_key_less(struct md_key a, struct md_key b)
{
	return a.major != b.major ? a.major < b.major : a.minor < b.minor;
}

static bool item_less(const struct md_priority_item *a, const struct md_priority_item *b)
{
	if (a->turn < b->turn || b->turn < a->turn)
		return a->turn < b->turn;
	if (a->rank != b->rank)
		return a->rank > b->rank;
	if (md_key_less(a->key, b->key))
		return true;
	return !md_key_less(b->key, a->key) && a->index < b->index;
}

void md_priority_init(struct md_priority *queue)
{
	*queue = (struct md_priority){0};
}

void md_priority_finish(struct md_priority *queue)
{
	free(queue->items);
	free(queue->places);
	*queue = (struct md_priority){0};
}

bool md_priority_reserve(struct md_priority *queue, uint32_t capacity)
{
	uint32_t items = queue->capacity, places = queue->capacity;
	if (!MD_ARRAY_RESERVE(queue->items, capacity, items) || !MD_ARRAY_RESERVE(queue->places, items, places))
		return false;
	for (uint32_t i = queue->capacity; i < items; i++)
		queue->places[i] = ABSENT;
	queue->capacity = items;
	return true;
}

static void set(struct md_priority *queue, uint32_t place, struct md_priority_item item)
{
	queue->items[place] = item;
	queue->places[item.index] = place;
}

static void sift_up(struct md_priority *queue, uint32_t place, struct md_priority_item item)
{
	while (place > 0) {
		uint32_t parent = (place - 1) / 2;
		if (!item_less(&item, &queue->items[parent]))
			break;
		set(queue, place, queue->items[parent]);
		place = parent;
	}
	set(queue, place, item);
}

static void sift_down(struct md_priority *queue, uint32_t place, struct md_priority_item item)
{
	for (;;) {
		uint32_t child = 2 * place + 1;
		if (child >= queue->count)
			break;
		if (child + 1 < queue->count && item_less(&queue->items[child + 1], &queue->items[child]))
			child++;
		if (!item_less(&queue->items[child], &item))
			break;
		set(queue, place, queue->items[child]);
		place = child;
	}
	set(queue, place, item);
}

void md_priority_put(struct md_priority *queue, uint32_t index, struct md_key key)
{
	md_priority_put_turn(queue, index, 0, 0, key);
}

void md_priority_put_turn(struct md_priority *queue, uint32_t index, double turn, int32_t rank, struct md_key key)
{
	struct md_priority_item item = {key, turn, index, rank};
	uint32_t place = queue->places[index];
	if (place == ABSENT) {
		sift_up(queue, queue->count++, item);
	} else if (item_less(&item, &queue->items[place])) {
		sift_up(queue, place, item);
	} else {
		sift_down(queue, place, item);
	}
}

void md_priority_remove(struct md_priority *queue, uint32_t index)
{
	uint32_t place = queue->places[index];
	if (place == ABSENT)
		return;
	queue->places[index] = ABSENT;
	struct md_priority_item last = queue->items[--queue->count];
	if (last.index == index)
		return;
	if (place > 0 && item_less(&last, &queue->items[(place - 1) / 2]))
		sift_up(queue, place, last);
	else
		sift_down(queue, place, last);
}

bool md_priority_has(const struct md_priority *queue, uint32_t index)
{
	return queue->places[index] != ABSENT;
}
