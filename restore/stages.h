/* SPDX-License-Identifier: Apache-2.0 */
/* A restore as two lists of stages with undo. */
#ifndef MD_RESTORE_STAGES_H
#define MD_RESTORE_STAGES_H

#include "restore/restore.h"

struct md_restore_stage {
	const char *name;
	enum md_status (*run)(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err);
	void (*undo)(struct md_restore *r,
		     struct md_restore_graph *graph); /* may be NULL; safe when run did not finish */
	size_t ns; /* offset in struct medusa_stats of the stage's time; 0: not counted */
	bool (*more)(const struct md_restore_graph *graph); /* true: the stage must run again; NULL: once is enough */
	enum md_pace_step pace;
	/* NULL: needs no turn beside replays, as it hardly uses the driver */
	uint64_t (*units)(const struct md_restore_graph *graph);
};

#define MD_GRAPH_STAGES 8u

extern const struct md_restore_stage md_restore_session_stages[];
extern const size_t md_restore_session_stage_count;
extern const struct md_restore_stage md_restore_graph_stages[];
extern const size_t md_restore_graph_stage_count;

/* Runs the stages in order. When one fails, undoes it and those before it, last first, and names it in the message. */
enum md_status md_restore_stages_run(const struct md_restore_stage *stages, size_t count, struct md_restore *r,
				     struct md_restore_graph *graph, struct md_error *err);
/*
 * Runs one stage of the graph, or a slice of it (graph->slice); *done after the last one. A failure undoes everything.
 */
enum md_status md_restore_graph_step(struct md_restore *r, struct md_restore_graph *graph, bool *done,
				     struct md_error *err);
/*
 * Destroys the graph that the executable was instantiated from. The executable does not need it, and the next graph gets
 * its memory.
 */
void md_restore_drop_template(struct md_restore_graph *graph);

/* The functions below are for graphs that are made together, whose times are counted together. */
struct md_stage_times {
	uint64_t launches; /* of the engine, when the first stage began */
	uint64_t ns[MD_GRAPH_STAGES], units[MD_GRAPH_STAGES];
};
/* Runs all stages, but does not wait for the upload. A failure undoes everything. */
enum md_status md_restore_graph_make(struct md_restore *r, struct md_restore_graph *graph, struct md_stage_times *times,
				     struct md_error *err);
/* Waits for all uploads; if that fails, each of the graphs is to be undone by md_restore_graph_not_uploaded. */
enum md_status md_restore_graphs_wait(struct md_restore *r, struct md_stage_times *times, struct md_error *err);
/* Undoes everything; the name of the stage is put before the message of err. */
enum md_status md_restore_graph_not_uploaded(struct md_restore *r, struct md_restore_graph *graph,
					     struct md_error *err);
/* Adds the times to the statistics, and to what is known of this machine. awaited: somebody waited for a graph. */
void md_restore_times_count(struct md_restore *r, const struct md_stage_times *times, bool awaited);

void md_restore_stages_undo(const struct md_restore_stage *stages, size_t count, struct md_restore *r,
			    struct md_restore_graph *graph);

#endif
