/* SPDX-License-Identifier: Apache-2.0 */
/* Device allocations in the order in which an engine makes them, for engines that bind nothing by name. */
#ifndef MD_DRIVER_ALLOC_SEQUENCE_H
#define MD_DRIVER_ALLOC_SEQUENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * What an engine has allocated when it asks for its first graph is its own: weights, caches, inputs. The n-th of these
 * is bound as "@allocation.N", in a capture and in a restore alike; counted from 0, freed ones included. Names that
 * begin so are nobody else's. A profiling forward, which a restore leaves out, does not count.
 */
#define MD_SEQUENCE_PREFIX "@allocation."
#define MD_SEQUENCE_NAME_BYTES 40

struct md_sequence_item {
	uint64_t address, size;
	bool live;
};

struct md_alloc_sequence {
	struct md_sequence_item *items; /* owned */
	size_t count, room;
	unsigned paused;
	bool closed; /* the engine has asked for a graph: what comes now is not counted */
	bool broken; /* too many, or no memory for them: nothing is bound by sequence */
};

/* None of these takes a lock. */
void md_sequence_add(struct md_alloc_sequence *sequence, uint64_t address, uint64_t size);
/* Everything live that begins in [address, address + size). */
void md_sequence_remove(struct md_alloc_sequence *sequence, uint64_t address, uint64_t size);
void md_sequence_finish(struct md_alloc_sequence *sequence);

void md_sequence_name(size_t index, char name[MD_SEQUENCE_NAME_BYTES]);
/* False: it is no such name. */
bool md_sequence_index(const char *name, size_t *index);

#endif
