/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of the inputs of graphs. */
#ifndef MD_RESTORE_VERIFY_INPUTS_H
#define MD_RESTORE_VERIFY_INPUTS_H

#include "restore/restore.h"

struct md_live_graph;
struct md_verify_handed;

/* The hash of a graph's inputs at one comparison. */
struct md_verify_inputs {
	bool known, none; /* none: the graph has no inputs that could vary */
	uint64_t sum;
};

/* Reads the hash before a comparison, in the current context; waits for it. */
enum md_status md_verify_inputs_read(struct md_restore *r, const struct md_restore_graph *graph,
				     const struct md_verify_handed *handed, const struct md_device_hasher *hasher,
				     struct md_verify_inputs *out, struct md_error *err);
/* A comparison on these inputs has passed. */
void md_verify_inputs_note(struct md_live_graph *live, const struct md_verify_inputs *now);
/* The user accepts graphs that were always compared on the same inputs. */
bool md_verify_unvaried_accepted(void);

#endif
