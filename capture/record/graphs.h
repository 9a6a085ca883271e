/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded graphs, and what the engine says of them. */
#ifndef MD_CAPTURE_RECORD_GRAPHS_H
#define MD_CAPTURE_RECORD_GRAPHS_H

#include "capture/capture.h"

struct md_capture_output {
	uint32_t index;
	uint64_t address, size;
};

struct md_capture_graph {
	uint64_t id;
	CUgraphExec exec; /* NULL once destroyed */
	CUcontext context;
	char *label; /* owned; NULL: none */
	unsigned batch;
	uint64_t name;  /* hash of both */
	uint64_t later; /* id of a graph that was given the same name since; 0: none */
	bool refused, labelled;
	bool communicates;                /* all ranks launch it together, in tests, too */
	bool unwanted;                    /* refused by the engine alone, so it may be replayed */
	bool unread;                      /* its nodes have attributes that cannot be read back */
	bool probed;                      /* the poison test is over, or will never be made */
	uint64_t made;                    /* sequence */
	uint64_t launched;                /* sequence of the engine's first launch; 0: not yet */
	uint64_t tested;                  /* sequence; 0: the poison test has shown nothing */
	size_t handed_seen;               /* how many interests of others were looked at; see probe/handed.c */
	struct md_capture_output *handed; /* memory that it writes and others read; owned */
	size_t handed_count, handed_tested;
	bool silent;          /* its test saw it change nothing that is bound, and it has no outputs */
	bool pageable;        /* writes host memory that could not be put back */
	uint64_t *candidates; /* addresses of live allocations that parameters point into, ascending; owned */
	size_t candidate_count;
	struct md_capture_output *outputs; /* each index once; owned */
	size_t output_count;
	struct md_trace_graph kept;     /* the graph as it was walked; nodes, edges and arena owned */
	CUgraph source;                 /* the graph that it was made from, */
	CUgraphNode *handles;           /* and its nodes, by which calls change them; NULL: not known; owned */
	bool *off;                      /* per node: it is switched off; NULL: no node is; owned */
	bool stale;                     /* the trace has the graph from before a change */
	struct md_trace_range *written; /* by its poison test; owned */
	uint32_t written_count;
	bool written_known; /* all unbound memory that it writes is listed, but for what it keeps */
};

void md_capture_graph_instantiated(CUgraph graph, CUgraphExec exec, uint64_t flags);

void md_capture_exec_destroyed(CUgraphExec exec);
struct md_capture_graph *md_capture_graph_of(CUgraphExec exec) MD_CAPTURE_HELD; /* NULL */
/* The graph that the engine means: by its handle, or, for NULL, the one that this thread instantiated last. */
struct md_capture_graph *md_capture_graph_meant(CUgraphExec exec) MD_CAPTURE_HELD;
/*
 * The engine launches a graph, perhaps for the first time. If another graph has its name by now, both are in use, and
 * the engine could get only one of them. runs: the launch is not into a stream capture.
 */
void md_capture_graph_launching(CUgraphExec exec, bool runs);
void md_capture_home_note(void) MD_CAPTURE_HELD; /* memory is bound in the current context */
CUcontext md_capture_home(void) MD_CAPTURE_HELD; /* that context, or that of the first graph; NULL: not known yet */
/* Statements of the engine about a graph; lock held. False: out of memory. */
void md_capture_graph_label(struct md_capture_graph *graph, const char *label, unsigned batch) MD_CAPTURE_HELD;
bool md_capture_graph_output(struct md_capture_graph *graph, struct md_capture_output output) MD_CAPTURE_HELD;
/* The graph's outputs, and its memory that other graphs read; the caller owns the list. NULL: out of memory. */
struct md_capture_output *md_capture_graph_all_outputs(const struct md_capture_graph *graph, size_t *count);
void md_capture_graph_note(struct md_capture_graph *graph, const void *data, size_t bytes) MD_CAPTURE_HELD;
void md_capture_graph_refuse(struct md_capture_graph *graph, const char *why) MD_CAPTURE_HELD;
struct md_capture_graph *md_capture_graph_at(size_t index) MD_CAPTURE_HELD; /* NULL past the end */
size_t md_capture_graphs_labelled(void) MD_CAPTURE_HELD;
size_t md_capture_graphs_recorded(void) MD_CAPTURE_HELD;

#endif
