/* SPDX-License-Identifier: Apache-2.0 */
/* An indexed heap of candidates: the greatest key is first. */
#include <stdlib.h>
#include <string.h>

#include "scheduler/knapsack/knapsack_state.h"

bool md_knap_queue_init(struct md_knap_queue *queue, uint32_t limit)
{
	*queue = (struct md_knap_queue){.key = malloc(limit * (sizeof(double) + 2 * sizeof(uint32_t)) + 1)};
	if (!queue->key)
		return false;
	queue->heap = (uint32_t *)(queue->key + limit);
	queue->where = queue->heap + limit;
	memset(queue->where, 0xff, limit * sizeof(uint32_t)); /* MD_KNAPSACK_NONE */
	return true;
}

void md_knap_queue_finish(struct md_knap_queue *queue)
{
	free(queue->key);
	queue->key = NULL;
}

static bool before(const struct md_knap_queue *queue, uint32_t a, uint32_t b)
{
	return queue->key[a] > queue->key[b] || (queue->key[a] == queue->key[b] && a < b);
}

static void set(struct md_knap_queue *queue, uint32_t at, uint32_t number)
{
	queue->heap[at] = number;
	queue->where[number] = at;
}

/* Moves the number at `at` behind those that come before it. */
static void sink(struct md_knap_queue *queue, uint32_t at)
{
	uint32_t number = queue->heap[at];
	for (;;) {
		uint32_t child = 2 * at + 1;
		if (child + 1 < queue->count && before(queue, queue->heap[child + 1], queue->heap[child]))
			child++;
		if (child >= queue->count || !before(queue, queue->heap[child], number))
			break;
		set(queue, at, queue->heap[child]);
		at = child;
	}
	set(queue, at, number);
}

/* Moves the number at `at`, whose key has changed, to its place. */
static void settle(struct md_knap_queue *queue, uint32_t at)
{
	uint32_t number = queue->heap[at];
	for (; at && before(queue, number, queue->heap[(at - 1) / 2]); at = (at - 1) / 2)
		set(queue, at, queue->heap[(at - 1) / 2]);
	set(queue, at, number);
	sink(queue, at);
}

void md_knap_queue_put(struct md_knap_queue *queue, uint32_t number, double key)
{
	uint32_t at = queue->where[number];
	if (at == MD_KNAPSACK_NONE && !(key > 0))
		return;
	if (key > 0) {
		queue->key[number] = key;
		if (at == MD_KNAPSACK_NONE)
			queue->heap[at = queue->count++] = number;
		settle(queue, at);
		return;
	}
	queue->where[number] = MD_KNAPSACK_NONE;
	uint32_t last = queue->heap[--queue->count];
	if (last != number) {
		queue->heap[at] = last;
		settle(queue, at);
	}
}

void md_knap_queue_append(struct md_knap_queue *queue, uint32_t number, double key)
{
	if (!(key > 0))
		return;
	queue->key[number] = key;
	set(queue, queue->count++, number);
}

void md_knap_queue_order(struct md_knap_queue *queue)
{
	for (uint32_t at = queue->count / 2; at-- > 0;)
		sink(queue, at);
}
