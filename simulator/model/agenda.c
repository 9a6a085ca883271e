/* SPDX-License-Identifier: Apache-2.0 */
/* The heap of future events. */
#include "simulator/model/agenda.h"

#include <stdlib.h>

#include "base/array.h"

static bool before(const struct md_sim_entry *a, const struct md_sim_entry *b)
{
	return a->at < b->at || (a->at == b->at && a->order < b->order);
}

/* Moves the entry, which is the last one of the heap's first i + 1, to its place in the heap. */
static void rise(struct md_sim_entry *entries, size_t i)
{
	struct md_sim_entry entry = entries[i];
	while (i && before(&entry, &entries[(i - 1) / 2])) {
		entries[i] = entries[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	entries[i] = entry;
}

bool md_sim_agenda_add(struct md_sim_agenda *agenda, uint64_t at, uint32_t kind, uint32_t index, uint32_t generation)
{
	if (!MD_ARRAY_GROW(agenda->entries, agenda->count, agenda->capacity))
		return false;
	agenda->entries[agenda->count] = (struct md_sim_entry){at, agenda->orders++, kind, index, generation};
	rise(agenda->entries, agenda->count++);
	return true;
}

const struct md_sim_entry *md_sim_agenda_first(const struct md_sim_agenda *agenda)
{
	return agenda->count ? agenda->entries : NULL;
}

void md_sim_agenda_pop(struct md_sim_agenda *agenda)
{
	struct md_sim_entry *entries = agenda->entries;
	struct md_sim_entry last = entries[--agenda->count];
	size_t i = 0;
	for (;;) {
		size_t child = 2 * i + 1;
		if (child >= agenda->count)
			break;
		if (child + 1 < agenda->count && before(&entries[child + 1], &entries[child]))
			child++;
		if (!before(&entries[child], &last))
			break;
		entries[i] = entries[child];
		i = child;
	}
	entries[i] = last;
}

void md_sim_agenda_delay(struct md_sim_agenda *agenda, uint32_t kinds, uint64_t by)
{
	for (size_t i = 0; i < agenda->count; i++)
		if (kinds >> agenda->entries[i].kind & 1)
			agenda->entries[i].at += by;
	for (size_t i = 1; i < agenda->count; i++)
		rise(agenda->entries, i);
}

void md_sim_agenda_finish(struct md_sim_agenda *agenda)
{
	free(agenda->entries);
	*agenda = (struct md_sim_agenda){0};
}
