/* SPDX-License-Identifier: Apache-2.0 */
/* Starts an engine again without the test that has broken it, so that one faulting graph does not cost the others. */
#ifndef MD_TOOLS_REPEAT_H
#define MD_TOOLS_REPEAT_H

#include <limits.h>

#include "base/note.h"
#include "tools/options.h"
#include "tools/run.h"
#include "tools/workplace.h"

#define MD_REPEAT_MOST 16 /* most tests that may break an engine, over all runs of one call of a command */

struct md_repeat {
	const struct md_command *command;     /* for messages */
	const struct md_workplace *workplace; /* not owned; holds the notes: */
	char notes[PATH_MAX], left_out[PATH_MAX];
	char told[PATH_MAX];  /* holds what plug-ins say, see tools/told.h */
	struct md_note *left; /* owned; the tests that are left out so far */
	size_t count;
	unsigned most, runs;
	bool stop;         /* set by the caller: the command is ended once it has done what --until names */
	uint64_t limit_ns; /* set by the caller: for each run, as in struct md_run */
	bool late;         /* the last run was ended for that reason, or another one that was said */
};

enum md_repeat_outcome {
	MD_REPEAT_DONE,     /* no test of ours broke the engine, whatever its exit code */
	MD_REPEAT_AGAIN,    /* a test did, which is left out from now on: run again */
	MD_REPEAT_GIVEN_UP, /* a test did, and it was the last one allowed; the reason was printed */
};

enum md_status md_repeat_init(struct md_repeat *repeat, const struct md_command *command,
			      const struct md_workplace *workplace, struct md_error *err);
void md_repeat_finish(struct md_repeat *repeat);

/*
 * Runs the command once, for repeat->limit_ns at most, as md_run_child does (output: -1), or md_run_child_output. If a process of the command notes
 * that it is broken or hangs, the process is ended, with the command and everything that the command has started.
 */
enum md_status md_repeat_run(struct md_repeat *repeat, const struct md_run *run, int output, int *exit_code,
			     enum md_repeat_outcome *outcome, struct md_error *err);

/*
 * Whether the notes have gone, with the rest of the workplace's folder as a rule: what the command does from now on stays unknown,
 * so it may be ended. md_repeat_run says so then.
 */
bool md_repeat_is_lost(const struct md_repeat *repeat);

/* Explains a failure that the command itself caused. */
#define MD_REPEAT_OWN "no replay of Medusa's was under way, so this is the command's own failure"

#endif
