/* SPDX-License-Identifier: Apache-2.0 */
/* Counts device allocations until the engine asks for its first graph, and notes the order of their addresses. */
#include "driver/alloc_sequence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* Pitched memory is allocated in the same address range as plain memory. */
static struct md_interval_index *kind_of(struct md_alloc_sequence *sequence, uint32_t family)
{
	return &sequence->live[family == 2 || family >= MD_SEQUENCE_FAMILIES ? 1 : family];
}

static bool make_room(struct md_alloc_sequence *sequence)
{
	size_t items = sequence->room, addresses = sequence->room;
	if (sequence->count >= MD_SEQUENCE_MAX || !MD_ARRAY_GROW(sequence->items, sequence->count, items) ||
	    !MD_ARRAY_RESERVE(sequence->addresses, items, addresses))
		return false;
	sequence->room = items;
	return true;
}

void md_sequence_add(struct md_alloc_sequence *sequence, uint32_t family, uint64_t address, uint64_t size)
{
	struct md_interval_index *live = kind_of(sequence, family);
	const struct md_interval *below;
	uint32_t index = (uint32_t)sequence->count;
	if (sequence->closed || sequence->paused || sequence->broken)
		return;
	md_sequence_remove(sequence, address, size); /* an allocation there was freed unseen */
	below = md_interval_floor(live, address);
	struct md_sequence_request item = {family, below ? (uint32_t)below->value : MD_SEQUENCE_NONE, MD_SEQUENCE_NONE,
					   size};
	if (!make_room(sequence) || !md_interval_add(live, address, size, index)) {
		sequence->broken = true;
		return;
	}
	sequence->items[index] = item;
	sequence->addresses[index] = address;
	sequence->count++;
}

void md_sequence_remove(struct md_alloc_sequence *sequence, uint64_t address, uint64_t size)
{
	if (sequence->closed)
		return;
	for (unsigned family = 0; family < MD_SEQUENCE_FAMILIES; family++) {
		struct md_interval_index *live = &sequence->live[family];
		const struct md_interval *last = size ? md_interval_floor(live, address + (size - 1)) : NULL;
		for (; last && last->start >= address; last = md_interval_floor(live, address + (size - 1))) {
			sequence->items[last->value].freed = (uint32_t)sequence->count;
			md_interval_remove(live, last->start);
		}
	}
}

void md_sequence_finish(struct md_alloc_sequence *sequence)
{
	for (unsigned family = 0; family < MD_SEQUENCE_FAMILIES; family++)
		md_interval_finish(&sequence->live[family]);
	free(sequence->items);
	free(sequence->addresses);
	*sequence = (struct md_alloc_sequence){0};
}

void md_sequence_name(size_t index, char name[MD_SEQUENCE_NAME_BYTES])
{
	snprintf(name, MD_SEQUENCE_NAME_BYTES, MD_SEQUENCE_PREFIX "%zu", index);
}

bool md_sequence_index(const char *name, size_t *index)
{
	const char *digits = name + strlen(MD_SEQUENCE_PREFIX);
	size_t value = 0;
	if (strncmp(name, MD_SEQUENCE_PREFIX, strlen(MD_SEQUENCE_PREFIX)) || !*digits)
		return false;
	for (; *digits; digits++) {
		if (*digits < '0' || *digits > '9' || value >= MD_SEQUENCE_MAX)
			return false;
		value = 10 * value + (size_t)(*digits - '0');
	}
	*index = value;
	return true;
}
