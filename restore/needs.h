/* SPDX-License-Identifier: Apache-2.0 */
/* What a graph needs, found by following its nodes and pointers: the time depends on the graph, not on the artifact. */
#ifndef MD_RESTORE_NEEDS_H
#define MD_RESTORE_NEEDS_H

#include "base/bits.h"
#include "format/artifact/artifact.h"

struct md_needs {
	const struct md_artifact *artifact;
	/* of the artifact: its contents by allocation, its bindings from which contents may be made, and that overlap */
	uint32_t *first_content, *next_content; /* allocation -> content, content -> content; MD_NONE */
	struct md_bits hashed, hashed_alike;    /* alike: in both captures */
	uint32_t *overlapping;
	uint32_t overlapping_count;
	uint32_t without_hash; /* a constant binding; MD_NONE */
	/* of a graph */
	struct md_bits kernels, allocs, contents, bindings, constants, images;
	bool uses_arena, uses_values, uses_uncompared;
	uint32_t *pending; /* allocations whose contents are still to be followed */
	uint32_t pending_count;
};

/* False: out of memory; md_needs_finish frees what there is. */
bool md_needs_init(struct md_needs *needs, const struct md_artifact *artifact);
void md_needs_finish(struct md_needs *needs);
void md_needs_of(struct md_needs *needs, const struct md_artifact_graph *graph);
/* Why a graph with these needs cannot be made, if so. */
enum md_status md_needs_check(const struct md_needs *needs, struct md_error *err);

#endif
