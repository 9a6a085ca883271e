/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements in which a restored graph differs from the live one,
 * and the values that live and restored replays leave there.
 */
#ifndef MD_RESTORE_VERIFY_DOUBT_H
#define MD_RESTORE_VERIFY_DOUBT_H

#include "base/element.h"
#include "base/status.h"
#include "driver/cuda_driver.h"

struct md_verify_memory;

#define MD_VERIFY_OUTPUT 0x80000000u /* a place is an output's index with this bit, or a buffer's index without it */

struct md_verify_cell {
	uint64_t offset;
	uint32_t place;
	uint8_t type, size; /* md_element_type; bytes, fewer than its type's at the end of a buffer */
	bool seen;          /* a live replay has left the value of the first restored one */
	bool came_back;     /* a later restored replay has left the value of the first live one */
	bool unsteady;      /* the later restored replays, which are all made in one way, differ among themselves */
	uint8_t first[MD_ELEMENT_BYTES_MAX], other[MD_ELEMENT_BYTES_MAX]; /* of the live one, of the restored one */
	uint8_t later[MD_ELEMENT_BYTES_MAX];                              /* of the first later restored one */
	struct md_element_span live, restored;
};

/* Every element in which a restored replay differs from the first live one. */
struct md_verify_doubt {
	struct md_tolerance tolerance; /* the tolerance that the user accepts; if it is given, it alone decides */
	struct md_verify_cell *cells;
	size_t count, room;
	unsigned live_runs, restored_runs; /* replays so far, from the same state */
	bool beyond;                       /* too many elements, or a difference that cannot be looked into */
};

/* NONE: live replays agree in all these elements. ALL: the graph is nondeterministic, and nothing else is wrong. */
enum md_doubt_answer { MD_DOUBT_NONE, MD_DOUBT_SOME, MD_DOUBT_ALL };

/* Adds differing elements of a place from `offset` on, where an element begins. type UNKNOWN: the tolerance's type. */
void md_verify_doubt_add(struct md_verify_doubt *doubt, uint32_t place, enum md_element_type type, uint64_t offset,
			 const uint8_t *live, const uint8_t *restored, size_t size);
/*
 * Takes the values that one more replay, live or restored, has
 * left; before anything is put back. outputs: addresses, by index.
 */
enum md_status md_verify_doubt_take(struct md_verify_doubt *doubt, const struct md_verify_memory *memory,
				    const CUdeviceptr *outputs, bool restored, CUstream stream, struct md_error *err);
enum md_doubt_answer md_verify_doubt_ask(const struct md_verify_doubt *doubt);
/* Elements in which later restored replays differ among themselves: chance decides, and no memory explains it. */
size_t md_verify_doubt_unsteady(const struct md_verify_doubt *doubt);
/* Describes what is nondeterministic (all), or the first element that nondeterminism does not explain (some). */
void md_verify_doubt_say_all(const struct md_verify_doubt *doubt, const struct md_verify_memory *memory,
			     struct md_error *err);
void md_verify_doubt_say_some(const struct md_verify_doubt *doubt, const struct md_verify_memory *memory,
			      struct md_error *err);
/* The tolerance stays. */
void md_verify_doubt_finish(struct md_verify_doubt *doubt);

#endif
