/* SPDX-License-Identifier: Apache-2.0 */
/* Device allocations in the order in which an engine makes them, for engines that bind nothing by name. */
#ifndef MD_DRIVER_ALLOC_SEQUENCE_H
#define MD_DRIVER_ALLOC_SEQUENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/interval.h"
#include "base/status.h"

/*
 * What an engine has allocated when it asks for its first graph is its own: weights, caches, inputs. The n-th of these
 * is bound as "@allocation.N", in a capture and in a restore alike; counted from 0, freed ones included. Names that
 * begin so are nobody else's. A profiling forward, which a restore leaves out, does not count.
 *
 * A caching allocator takes the lowest of the free blocks that fit, so the order of addresses decides what the engine
 * puts where. Equal requests alone do not make two processes alike: each allocation must also find the same neighbour
 * below it, among those that were live when it was made. If all do, any two compare as they did.
 */
#define MD_SEQUENCE_PREFIX "@allocation."
#define MD_SEQUENCE_NAME_BYTES 40
#define MD_SEQUENCE_MAX 65536u
#define MD_SEQUENCE_NONE UINT32_MAX
#define MD_SEQUENCE_FAMILIES 7u /* 1 to 6: the device's of enum md_alloc_family */

struct md_sequence_request {
	uint32_t family;
	uint32_t
	    below; /* the nearest lower one that was live then and is of its kind; MD_SEQUENCE_NONE: there is none */
	uint32_t freed; /* how many had been made when it was freed; MD_SEQUENCE_NONE: it was not */
	uint64_t size;
};

struct md_alloc_sequence {
	struct md_sequence_request *items; /* owned */
	uint64_t *addresses;               /* of the items; owned */
	size_t count, room;
	/* Live allocations of each kind: addresses of different kinds are not comparable. Value: the index. */
	struct md_interval_index live[MD_SEQUENCE_FAMILIES];
	unsigned paused;
	bool closed; /* the engine has asked for a graph: what comes now is not counted */
	bool broken; /* too many, or no memory for them: nothing is bound by sequence */
};

/* These functions take no lock. */
void md_sequence_add(struct md_alloc_sequence *sequence, uint32_t family, uint64_t address, uint64_t size);
/* Everything live that begins in [address, address + size). Once closed, nothing changes any more. */
void md_sequence_remove(struct md_alloc_sequence *sequence, uint64_t address, uint64_t size);
void md_sequence_finish(struct md_alloc_sequence *sequence);

void md_sequence_name(size_t index, char name[MD_SEQUENCE_NAME_BYTES]);
/* False: it is no such name. */
bool md_sequence_index(const char *name, size_t *index);

/* ---- alloc_sequence_compare.c ---- */

struct md_sequence_side {
	const struct md_sequence_request *items;
	size_t count;
	const char *whose, *where; /* "artifact", "in the artifact" */
};

/* The first difference of two sequences, by the numbers of the allocations. */
enum md_status md_sequence_compare(const struct md_sequence_side *one, const struct md_sequence_side *two,
				   struct md_error *err);

#endif
