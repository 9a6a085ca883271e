/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a graph back from the driver, for the trace. */
#ifndef MD_CAPTURE_RECORD_WALK_H
#define MD_CAPTURE_RECORD_WALK_H

#include "base/map.h"
#include "capture/capture.h"

/* The graph has an address in the allocation; it has an unbound address there. */
enum { MD_CANDIDATE = 1, MD_CANDIDATE_PRIVATE = 2 };

/* Zeroed, except for fields of `out` that are known before. Finish it in any case. */
struct md_capture_walk {
	struct md_trace_graph out;
	CUgraphNode *handles;     /* of out.nodes */
	uint64_t sequence;        /* of nodes whose launch was not seen */
	CUcontext context;        /* in which the graph is instantiated */
	struct md_map index;      /* CUgraphNode -> node index */
	struct md_map candidates; /* allocation start -> MD_CANDIDATE bits */
	size_t node_room, handle_room, edge_room;
	char refused[512];      /* first reason */
	char communicates[512]; /* "": no; else why a rank cannot restore it alone */
	bool out_of_memory;
	bool pageable; /* writes host memory that is not page-locked */
	bool unread;   /* has attributes that cannot be read back from its nodes */
};

void md_capture_walk(struct md_capture_walk *walk, CUgraph graph) MD_CAPTURE_HELD;
/* The node gets the parameters that a call gave it, at walk->sequence; its type and attributes stay. */
void md_capture_walk_change(struct md_capture_walk *walk, uint32_t at, const CUgraphNodeParams *params) MD_CAPTURE_HELD;
/* Why the graph is not restored, unless all ranks test it together; NULL: nothing is in the way. */
static inline char *md_capture_walk_reason(struct md_capture_walk *walk)
{
	return walk->refused[0] ? walk->refused : walk->communicates[0] ? walk->communicates : NULL;
}
void md_capture_walk_finish(struct md_capture_walk *walk);

#endif
