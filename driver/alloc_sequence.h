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
 * What an engine has allocated when it asks for its first graph belongs to the engine: weights, caches, inputs. The
 * n-th of these allocations is bound as "@allocation.N", in a capture and in a restore alike; N counts from 0 and
 * includes freed ones. Nobody else may use names that begin so. Allocations of a profiling forward, which a restore
 * leaves out, do not count.
 *
 * A caching allocator takes the lowest free block that fits, so the order of addresses decides what the engine puts
 * where. So it is not enough that two processes make equal requests: each allocation must also have the same next lower
 * neighbour among those that were live when it was made. If all have, any two addresses compare as they did in the
 * capture.
 */
#define MD_SEQUENCE_PREFIX "@allocation."
#define MD_SEQUENCE_NAME_BYTES 40
#define MD_SEQUENCE_MAX 65536u
#define MD_SEQUENCE_NONE UINT32_MAX
#define MD_SEQUENCE_FAMILIES 7u /* 1 to 6: the device's of enum md_alloc_family */

struct md_sequence_request {
	uint32_t family;
	uint32_t below; /* the nearest lower one of its kind that was live then; MD_SEQUENCE_NONE: none */
	uint32_t freed; /* how many had been made when it was freed; MD_SEQUENCE_NONE: it was not freed */
	uint64_t size;
};

struct md_alloc_sequence {
	struct md_sequence_request *items; /* owned */
	uint64_t *addresses;               /* by index; owned */
	size_t count, room;
	/* Live allocations of each kind, because addresses of different kinds are not comparable. Value: the index. */
	struct md_interval_index live[MD_SEQUENCE_FAMILIES];
	unsigned paused;
	bool closed; /* the engine has asked for a graph: later allocations do not count */
	bool broken; /* too many, or no memory for them: nothing is bound by sequence */
};

/* These functions take no lock. */
void md_sequence_add(struct md_alloc_sequence *sequence, uint32_t family, uint64_t address, uint64_t size);
/* Removes all live allocations that begin in [address, address + size). Does nothing once the sequence is closed. */
void md_sequence_remove(struct md_alloc_sequence *sequence, uint64_t address, uint64_t size);
void md_sequence_finish(struct md_alloc_sequence *sequence);

void md_sequence_name(size_t index, char name[MD_SEQUENCE_NAME_BYTES]);
/* Reads N from "@allocation.N". False: it is another name. */
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
