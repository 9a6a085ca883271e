/* SPDX-License-Identifier: Apache-2.0 */
/* The next work of the background. */
#ifndef MD_RESTORE_WORK_H
#define MD_RESTORE_WORK_H

#include "restore/restore.h"

enum md_work_kind {
	MD_WORK_WAIT,    /* for bindings, images or a trigger */
	MD_WORK_BUILD,   /* the next stage of a graph */
	MD_WORK_BATCH,   /* small graphs, all stages of each */
	MD_WORK_RESOLVE, /* a kernel */
	MD_WORK_ARENA,
	MD_WORK_HEAP,   /* a slice of host memory */
	MD_WORK_DROP,   /* destroys the graph that a ready executable was instantiated from */
	MD_WORK_UNDO,   /* takes a graph apart whose group is refused */
	MD_WORK_SETTLE, /* no graph waits any more */
};

struct md_work {
	enum md_work_kind kind;
	struct md_restore_graph *graph;
	uint32_t kernel;
	enum md_pace_step pace; /* how it uses the driver, with units; 0 units: too little for a turn */
	uint64_t units;
	bool awaited;
};

/* Refuses graphs that can't be restored any more. */
struct md_work md_restore_work_next(struct md_restore *r, bool settled) MD_REQUIRES(md_restore_work, md_restore_lock);

#endif
