/* SPDX-License-Identifier: Apache-2.0 */
/* The heap of future events. */
#include "simulator/model/agenda.h"

#include <stdlib.h>

#include "base/array.h"

static bool before(const struct md_sim_entry *a, const struct md_sim_entry *b)
{
	return a->at < b->at || (a->at == b->at && a->order < b->order);
}

bool md_sim_agenda_add(struct md_sim_agenda *agenda, uint64_t at, uint32_t kind, uint32_t index, uint32_t generation)
{
	if (!MD_ARRAY_GROW(agenda->entries, agenda->count, agenda->capacity))
		return false;
	struct md_sim_entry entry = {at, agenda->orders++, kind, index, generation};
	size_t i = agenda->count++;
	while (i && before(&entry, &agenda->entries[(i - 1) / 2])) {
		agenda->entries[i] = agenda->entries[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	agenda->entries[i] = entry;
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

void md_sim_agenda_finish(struct md_sim_agenda *agenda)
{
	free(agenda->entries);
	*agenda = (struct md_sim_agenda){0};
}
