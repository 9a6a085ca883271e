/* SPDX-License-Identifier: Apache-2.0 */
/* A graph of the artifact on its way to an executable that the engine can launch. */
#ifndef MD_RESTORE_RESTORE_GRAPH_H
#define MD_RESTORE_RESTORE_GRAPH_H

#include <stdbool.h>

#include "base/status.h"
#include "driver/cuda_driver.h"
#include "format/artifact/artifact.h"

enum md_graph_state { MD_GRAPH_WAITING, MD_GRAPH_READY, MD_GRAPH_REFUSED };

enum md_trial_of { MD_TRIAL_ONE, MD_TRIAL_ALIKE, MD_TRIAL_ALL }; /* alike: the same byte of the same kernel */

struct md_trial { /* values of doubtful words in a trial of a verify run, in place of those of the first capture */
	bool set;
	enum md_trial_of of;
	uint32_t index; /* of the only one, or of one of those that are alike */
	uint64_t value;
};

struct md_moved { /* a pointer of the graph that has this address in place of its own, in verify mode */
	uint32_t pointer;
	uint64_t address;
};

/* Apart from the graphs, because they are long, and hardly ever touched. */
struct md_graph_reasons {
	struct md_error refused;
	struct md_error too_late; /* verifying: why a cold start would have refused it when the engine asked for it */
};

struct md_restore_graph {
	struct md_artifact_graph *stored;
	struct md_trial trial;
	const struct md_moved *moved; /* ascending; not owned */
	uint32_t moved_count;
	unsigned border_tries; /* verifying: to learn what addresses between bindings mean */
	enum md_graph_state state;
	bool handed_out;
	bool stale;                              /* made for an address that the binding no longer has */
	bool destroyed;                          /* by the engine, after it was handed out */
	uint32_t rank;                           /* place in the order of building */
	uint32_t *kernels, *bindings, *contents; /* distinct indices that it uses, one allocation, with: */
	uint32_t *constants;                     /* bindings whose hashes must be right, which are among the others */
	uint32_t *images;                        /* images with variables that are set, or pointed to */
	uint32_t kernel_count, binding_count, content_count, constant_count, image_count;
	uint32_t kernels_done, bindings_done; /* cursors: everything before them is resolved, bound */
	bool uses_arena, has_noise_now;
	bool communicates; /* it has addresses of a communication library's memory */
	unsigned awaited;  /* calls of medusa_graph_get that wait for it */
	uint32_t stage;    /* the next stage of md_restore_graph_stages */
	bool batched;      /* made together with others, and not handed on yet */
	uint32_t slice;    /* how many nodes the stage may add now */
	uint32_t nodes_added;
	CUgraphNode *nodes; /* owned, until the edges are there; with it: */
	/* per node: the child graph node that it lies in, or MD_NONE; NULL: there are no child graphs */
	uint32_t *parents;
	CUgraph *children; /* per node: the graph that it embeds, which is the driver's */
	CUevent *events;   /* owned, as long as exec */
	uint32_t event_count;
	CUgraph graph;
	CUgraphExec exec;
	struct md_graph_reasons *reasons; /* not owned */
	bool given_up;                    /* the engine asked for it, and did not wait */
	bool split, warned;               /* logged: others of its group were handed out; it is launched too early */
	bool *fed;  /* per part of handed memory: it was written; verifying: since the last launch; owned */
	bool drops; /* it is listed for something to drop */
	bool asked; /* verifying: the engine has asked for it */
	bool live;  /* ... and has not labelled it yet */
};

#endif
