/* SPDX-License-Identifier: Apache-2.0 */
/* The comparison of one graph with its restored twin. */
#ifndef MD_RESTORE_VERIFY_TWINS_H
#define MD_RESTORE_VERIFY_TWINS_H

#include "restore/restore.h"
#include "restore/verify/buffers.h"
#include "restore/verify/doubt.h"
#include "restore/verify/handed_copies.h"
#include "restore/verify/inputs.h"
#include "restore/verify/originals.h"
#include "restore/verify/unbound_outputs.h"

/* What is compared: everything bound, the graph's own outputs, and what it hands on. */
struct md_verify_subject {
	struct md_verify_memory memory;
	struct md_verify_handed handed;
	struct md_verify_outputs outputs;
	struct md_verify_doubt doubt;
	struct md_verify_originals originals;
	uint64_t bytes, usual_ns; /* usual_ns: that a replay takes; see md_replay */
	bool nondeterministic;    /* and nothing else is wrong */
	struct md_verify_inputs inputs;
	bool effects; /* the live graph writes what is compared */
};

/* The kernels of the graph are resolved. Whatever comes of it, the engine's memory is as it was. Holds work. */
enum md_status md_verify_twins_compare(struct md_restore *r, struct md_restore_graph *graph, CUgraphExec live,
				       struct md_verify_subject *subject, struct md_error *err)
    MD_REQUIRES(md_verify_table_lock);

#endif
