/* SPDX-License-Identifier: Apache-2.0 */
/* What an analysis finds in the words of a graph: pointers, noise, and words that only replay can judge. */
#ifndef MD_ANALYZE_FINDINGS_H
#define MD_ANALYZE_FINDINGS_H

#include "analyze/view.h"
#include "format/artifact/artifact.h"

/* The target of a pointer, in terms of the first capture. */
struct md_target {
	uint32_t alloc;   /* index into views[0].allocs */
	uint32_t binding; /* index into views[0].bindings, or MD_NONE: private memory */
	int64_t offset;   /* in the binding, else in the allocation; negative or beyond the end for a virtual origin */
};

struct md_finding {
	uint32_t node, at; /* at: see md_pointer */
	struct md_target target;
	enum md_pointer_kind kind;
	uint64_t value; /* of a word in contents: its value in the first capture */
};

struct md_findings {
	struct md_finding *items;
	uint32_t count, capacity;
};

struct md_noises {
	struct md_noise *items;
	uint32_t count, capacity;
};

/* A word that only replay can tell to be noise; see struct md_doubtful. */
struct md_doubt {
	uint32_t node, at;
	struct md_target target; /* by the first capture */
	struct md_place one, two;
};

struct md_doubts {
	struct md_doubt *items;
	uint32_t count, capacity;
};

/* Each appends one item; false when out of memory. Noise that follows the last noise at once makes that longer. */
bool md_findings_add(struct md_findings *findings, uint32_t node, uint32_t at, const struct md_target *target);
bool md_noises_add(struct md_noises *noises, uint32_t node, uint32_t at, uint32_t size);
bool md_doubts_add(struct md_doubts *doubts, const struct md_doubt *doubt);
/* Ascending (node, at). */
void md_findings_sort(struct md_findings *findings);
void md_noises_sort(struct md_noises *noises);
void md_doubts_sort(struct md_doubts *doubts);

#endif
