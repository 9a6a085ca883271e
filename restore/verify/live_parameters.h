/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of the engine's own graphs. */
#ifndef MD_RESTORE_VERIFY_LIVE_PARAMETERS_H
#define MD_RESTORE_VERIFY_LIVE_PARAMETERS_H

#include "restore/restore.h"

struct md_live_node { /* its parameters, as pointers of artifacts name their bytes */
	uint32_t size;
	uint8_t *bytes; /* owned */
};

struct md_live_nodes {
	struct md_live_node *items;
	uint32_t count, room;
	bool known;
};

void md_verify_nodes_read(struct md_live_nodes *nodes, CUgraph graph);
void md_verify_nodes_finish(struct md_live_nodes *nodes);
/* Finds the live graph's address of an allocation to which the artifact's graph has pointers. */
enum md_status md_verify_nodes_find(const struct md_live_nodes *nodes, const struct md_artifact_graph *stored,
				    uint32_t alloc, uint64_t *start, struct md_error *err);

#endif
