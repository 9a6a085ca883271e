/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at the traces of a run while it is under way: what was recorded, what is waited for, and what has gone wrong. */
#ifndef MD_TOOLS_CAPTURE_WATCH_H
#define MD_TOOLS_CAPTURE_WATCH_H

#include <stdbool.h>

#include "tools/capture_job.h"
#include "tools/run_limit.h"

struct md_job_watch {
	struct md_job *job;
	unsigned index;    /* of the capture */
	const char *trace; /* of the run; those of ranks have their number behind that */
	struct md_quiet quiet;
	uint64_t last;   /* look */
	uint64_t looked; /* since when it had been quiet as the traces were read for that */
	uint32_t graphs; /* that were recorded then */
	bool said_quiet, said_empty;
	bool stopped; /* the recording has stopped */
	bool over;    /* everything was recorded when the time for the run had passed, and the command went on */
};

/* Sets what `run` asks and tells this watch; job->repeat.late says afterwards that the time has passed. */
void md_job_watch(struct md_job_watch *watch, struct md_run *run);

#endif
