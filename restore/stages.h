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
void md_restore_stages_undo(const struct md_restore_stage *stages, size_t count, struct md_restore *r,
			    struct md_restore_graph *graph);

#endif
