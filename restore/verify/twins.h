/* SPDX-License-Identifier: Apache-2.0 */
/* The comparison of one graph with its restored twin. */
#ifndef MD_RESTORE_VERIFY_TWINS_H
#define MD_RESTORE_VERIFY_TWINS_H

#include "ranks/lockstep.h"
#include "restore/restore.h"
#include "restore/verify/buffers.h"
#include "restore/verify/doubt.h"
#include "restore/verify/handed_copies.h"
#include "restore/verify/inputs.h"
#include "restore/verify/originals.h"
#include "restore/verify/unbound_outputs.h"

/* What is compared: all bound memory, the graph's own outputs, and memory that it hands on. */
struct md_verify_subject {
	struct md_verify_memory memory;
	struct md_verify_handed handed;
	struct md_verify_outputs outputs;
	struct md_verify_doubt doubt;
	struct md_verify_originals originals;
	struct md_lockstep lockstep; /* of a graph that communicates */
	uint64_t bytes, usual_ns;    /* usual_ns: how long a replay takes; see md_replay */
	uint32_t replays;            /* of either graph */
	bool nondeterministic;       /* the graph is nondeterministic, and nothing else is wrong */
	struct md_verify_inputs inputs;
	bool effects; /* the live graph writes memory that is compared */
};

/* The kernels of the graph are resolved. The engine's memory is put back, whatever the result. Work is held. */
enum md_status md_verify_twins_compare(struct md_restore *r, struct md_restore_graph *graph, CUgraphExec live,
				       struct md_verify_subject *subject, struct md_error *err)
    MD_REQUIRES(md_verify_table_lock);

#endif
