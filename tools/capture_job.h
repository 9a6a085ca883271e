/* SPDX-License-Identifier: Apache-2.0 */
/* One call of medusa-capture: its options, its steps, and the files that they make and remove. */
#ifndef MD_TOOLS_CAPTURE_JOB_H
#define MD_TOOLS_CAPTURE_JOB_H

#include <limits.h>
#include <stdbool.h>

#include "base/arguments.h"
#include "analyze/analyze.h"
#include "format/artifact/artifact.h"
#include "format/trace/trace.h"
#include "tools/capture_third.h"
#include "tools/options.h"
#include "tools/repeat.h"
#include "tools/tolerance.h"
#include "tools/workplace.h"

struct md_job_wish { /* the command line */
	struct md_argument_list vary, with_cache;
	uint64_t cache_limit; /* bytes */
	const char *output, *until, *second, *nondeterministic;
	struct md_tolerance tolerance;
	bool single, keep_traces, store_images, no_images, no_verify, allow_uncompared, accept_unvaried;
	bool accept_process_values, refuse_unset, stop;
};

struct md_job_rank {                             /* what one process of the engine records, and what is made of it */
	char traces[MD_CAPTURES_MOST][PATH_MAX]; /* in the workplace; "" before the run */
	char order[PATH_MAX + 64];               /* file that says where a later run's allocations go */
	struct md_trace runs[MD_CAPTURES_MOST];
	unsigned run_count;
	struct md_artifact artifact;
	struct md_untouched untouched; /* what the analysis found */
	uint32_t disagreed;            /* graphs about which two captures disagree */
	bool analyzed;
	struct md_artifact_sizes sizes;
};

struct md_job {
	const struct md_command *command;
	const struct md_job_wish *wish;
	char **argv;
	struct md_workplace workplace;
	char traces[MD_CAPTURES_MOST]
		   [PATH_MAX];     /* as the environment names them; a rank's have its number behind that */
	struct md_job_rank *ranks; /* owned; rank_count of them, in their order */
	uint32_t rank_count;       /* 1, until the first run shows that a launcher has started ranks */
	bool bundle;               /* it has; the output is a folder then */
	struct md_job_rank *at;    /* the rank that a step is about */
	struct md_repeat repeat;
	bool traces_needed; /* something failed that the traces may explain */
};

/* ---- steps, in their order: -1, or the exit code with which the command ends; why was said ---- */

/* One run of the engine: the traces of its ranks (capture_record.c). */
int md_job_capture(struct md_job *job, unsigned index);
/* Makes the artifacts; where two captures disagree, after a third one (capture_prove.c). */
int md_job_analyze(struct md_job *job);
/* Refuses graphs that communicate in all ranks of a bundle if one of them lacks the graph (capture_agree.c). */
int md_job_agree(struct md_job *job);
/* Compares restored graphs with live ones, from files that do not have their final names yet. */
int md_job_verify(struct md_job *job);
/* Checks whether the caches that exist so far can be packed (capture_caches.c). */
int md_job_check_caches(struct md_job *job);
/* Reads them into the artifact. */
enum md_status md_job_pack_caches(struct md_job *job, struct md_error *err);
/* Gives the artifact or the bundle its name; returns an exit code in any case (capture_publish.c). */
int md_job_publish(struct md_job *job);
/* Moves traces that the user wants, or that explain a failure, out of the workplace. */
void md_job_keep_traces(const struct md_job *job);

/* ---- what steps share (capture_job.c) ---- */

/* Prints a message, with the rank that it is about if there are several. */
void md_job_say(const struct md_job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Takes the step for each rank; the first one that ends the command keeps the others from it. */
int md_job_each(struct md_job *job, int (*step)(struct md_job *job));
/* The number of the rank that a step is about. */
uint32_t md_job_rank(const struct md_job *job);
/* Prints the error, and returns the exit code. */
int md_job_fail(const struct md_job *job, const struct md_error *err, int exit_code);
/* True if recording ends before the engine does. */
bool md_job_has_end(const struct md_job *job);
/*
 * MEDUSA_UNTIL of the runs: without --until, recording ends where the engine says that it is complete, if it says so, and
 * the command is ended then.
 */
const char *md_job_until(const struct md_job *job);
bool md_job_asks_engine(const struct md_job *job);
/* Ends a server that has done what --until names: a terminal's Ctrl-C reaches this process, too. */
void md_job_forget_terminal(bool done);

#endif
