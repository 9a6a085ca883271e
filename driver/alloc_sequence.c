/* SPDX-License-Identifier: Apache-2.0 */
/* Counts device allocations until the engine asks for its first graph. */
#include "driver/alloc_sequence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ITEMS_MAX 65536u

void md_sequence_add(struct md_alloc_sequence *sequence, uint64_t address, uint64_t size)
{
	if (sequence->closed || sequence->paused || sequence->broken)
		return;
	if (sequence->count == sequence->room) {
		size_t room = sequence->room ? 2 * sequence->room : 64;
		struct md_sequence_item *grown =
		    room <= ITEMS_MAX ? realloc(sequence->items, room * sizeof(*grown)) : NULL;
		sequence->broken = !grown;
		if (!grown)
			return;
		sequence->items = grown;
		sequence->room = room;
	}
	sequence->items[sequence->count++] = (struct md_sequence_item){address, size, true};
}

void md_sequence_remove(struct md_alloc_sequence *sequence, uint64_t address, uint64_t size)
{
	for (size_t i = 0; i < sequence->count; i++) {
		struct md_sequence_item *item = &sequence->items[i];
		if (item->live && item->address >= address && item->address - address < size)
			item->live = false;
	}
}

void md_sequence_finish(struct md_alloc_sequence *sequence)
{
	free(sequence->items);
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
		if (*digits < '0' || *digits > '9' || value >= ITEMS_MAX)
			return false;
		value = 10 * value + (size_t)(*digits - '0');
	}
	*index = value;
	return true;
}
