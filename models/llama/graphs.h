/* SPDX-License-Identifier: Apache-2.0 */
/* One CUDA graph for each decode batch size: restored where Medusa has it, else warmed up,
 * captured and instantiated. */
#ifndef LLAMA_GRAPHS_H
#define LLAMA_GRAPHS_H

#include "models/llama/engine.h"

struct llama_graph {
	unsigned batch;
	CUgraphExec exec;
	bool restored;
	size_t nodes;            /* 0: unknown (restored) */
	char reason[256];        /* why it was not restored; "" when it was */
	uint64_t replay_ns;      /* median, when measured */
	uint64_t replay_live_ns; /* of a graph captured live, timed in turns with this restored one */
};

struct llama_graphs {
	struct llama_graph *graphs; /* ascending batch */
	size_t count;
	char label[48];
	uint64_t restore_ns, warmup_ns, capture_ns, instantiate_ns;
	uint64_t first_ready_at; /* md_clock_ns of the first graph that could be launched */
};

/* "decode" and a digest of all that the graphs bake in: a graph of another configuration is never found. */
enum md_status llama_graphs_init(struct llama_graphs *graphs, const struct llama_engine *engine,
				 const unsigned *batches, size_t count, struct md_error *err);
enum md_status llama_graphs_prepare(struct llama_graphs *graphs, struct llama_engine *engine, struct md_error *err);
void llama_graphs_finish(struct llama_graphs *graphs); /* also on a zeroed one */

/* The graph of the smallest batch that holds `live` sequences, or NULL. */
const struct llama_graph *llama_graphs_pick(const struct llama_graphs *graphs, size_t live);

enum md_status llama_graph_launch(const struct llama_graph *graph, struct llama_engine *engine, struct md_error *err);

/* Inputs that every graph can be replayed with: each row another token at another position of a block of its own. */
enum md_status llama_graphs_set_rows(struct llama_engine *engine, struct md_error *err);

struct llama_replays {
	size_t count;
	uint64_t p50_ns, p99_ns, longest_ns; /* from the launch to the end of the wait for it */
	uint64_t ns;                         /* all of them together */
};

struct llama_background {
	bool measured;
	struct llama_replays during, alone;
};

/*
 * Replays the first restored graph for as long as the others are being restored, without ever asking for one of them,
 * and then `rounds` times alone. Nothing is measured when the first graph is not restored.
 */
enum md_status llama_graphs_measure_background(const struct llama_graphs *graphs, struct llama_engine *engine,
					       int rounds, struct llama_background *out, struct md_error *err);

/* Median time of `rounds` replays of each graph, into replay_ns. */
enum md_status llama_graphs_measure(struct llama_graphs *graphs, struct llama_engine *engine, int rounds,
				    struct md_error *err);

/* Runs each graph and eager from the same random inputs; *equal counts those whose outputs and KV are
 * the same bytes. */
enum md_status llama_graphs_check(const struct llama_graphs *graphs, struct llama_engine *engine, uint64_t seed,
				  size_t *equal, struct md_error *err);

#endif
