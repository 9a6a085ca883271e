/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's own graphs, as it makes and labels them. */
#ifndef MD_RESTORE_VERIFY_LIVE_GRAPHS_H
#define MD_RESTORE_VERIFY_LIVE_GRAPHS_H

#include "restore/restore.h"
#include "restore/verify/inputs.h"
#include "restore/verify/live_parameters.h"

struct md_live_output;

extern pthread_mutex_t md_verify_table_lock; /* of the table of live graphs; also held while graphs are compared */

struct md_live_graph {
	CUgraphExec exec;                           /* NULL once destroyed */
	struct md_live_nodes nodes;                 /* as it was instantiated */
	pthread_t maker;                            /* the thread that instantiated it */
	char *label;                                /* owned; NULL until it has one */
	unsigned batch, compared, launches, others; /* others: comparisons at launches of other graphs */
	struct md_live_output *outputs;             /* owned; by index */
	uint32_t output_count;
	char *refused;                  /* owned; the engine's reason */
	bool passed;                    /* some comparison has passed */
	bool effects;                   /* it was seen to write memory that is compared */
	struct md_verify_inputs inputs; /* of the first comparison that passed */
	const char *owed;               /* why its comparisons do not count yet, as it was reported; NULL: they do */
	bool varied;                    /* a later one passed on other inputs */
	bool unfed;                     /* reported: it is launched before the memory that it reads is written */
	bool communicates;              /* all ranks compare it together */
	bool sampled;                   /* the last comparison had state that was too large to be saved */
};

/* exec NULL: the graph that this thread has instantiated last. */
enum md_status md_verify_label(void *exec, const char *label, unsigned batch, struct md_error *err);
enum md_status md_verify_output(void *exec, unsigned index, uint64_t address, uint64_t size, struct md_error *err);
enum md_status md_verify_refuse(void *exec, const char *why, struct md_error *err);
void md_verify_instantiated(CUgraphExec exec, CUgraph graph);
/* NULL past the end. */
const struct md_live_graph *md_verify_live_at(size_t index) MD_REQUIRES(md_verify_table_lock);
void md_verify_launch(CUgraphExec exec);
void md_verify_forget(CUgraphExec exec);
void md_verify_end(void);
/* The engine calls medusa_mark(). */
void md_verify_mark(const char *name);

#endif
