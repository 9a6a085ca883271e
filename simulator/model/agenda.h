/* SPDX-License-Identifier: Apache-2.0 */
/* Future events: a heap by time; events of equal time keep their order of insertion. */
#ifndef MD_SIMULATOR_MODEL_AGENDA_H
#define MD_SIMULATOR_MODEL_AGENDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct md_sim_entry {
	uint64_t at, order;
	uint32_t kind, index;
	/* of the object that the entry is about; the entry is stale if the object has another generation now */
	uint32_t generation;
};

struct md_sim_agenda {
	struct md_sim_entry *entries;
	size_t count, capacity;
	uint64_t orders;
};

bool md_sim_agenda_add(struct md_sim_agenda *agenda, uint64_t at, uint32_t kind, uint32_t index,
		       uint32_t generation);                                        /* false: out of memory */
const struct md_sim_entry *md_sim_agenda_first(const struct md_sim_agenda *agenda); /* NULL: empty */
void md_sim_agenda_pop(struct md_sim_agenda *agenda);                               /* must not be called when empty */
/* Entries of these kinds (bit k: kind k) happen later by that much; others stay. */
void md_sim_agenda_delay(struct md_sim_agenda *agenda, uint32_t kinds, uint64_t by);
void md_sim_agenda_finish(struct md_sim_agenda *agenda);

#endif
