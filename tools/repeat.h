/* SPDX-License-Identifier: Apache-2.0 */
/* Starts an engine again without the test that has broken it: one faulting graph must not cost the others. */
#ifndef MD_TOOLS_REPEAT_H
#define MD_TOOLS_REPEAT_H

#include <limits.h>

#include "base/note.h"
#include "tools/options.h"
#include "tools/run.h"
#include "tools/workplace.h"

#define MD_REPEAT_MOST 16 /* tests that may break an engine, over all runs of one call of a command */

struct md_repeat {
	const struct md_command *command;     /* who says what is done */
	const struct md_workplace *workplace; /* not owned; where these lie: */
	char notes[PATH_MAX], left_out[PATH_MAX];
	struct md_note *left; /* owned; what is left out by now */
	size_t count;
	unsigned most;
	bool stop; /* set by the caller: the command is ended once it has done what --until names */
};

enum md_repeat_outcome {
	MD_REPEAT_DONE,     /* no test of ours broke it, whatever it ended with */
	MD_REPEAT_AGAIN,    /* one did, which is left out from now on: to be run once more */
	MD_REPEAT_GIVEN_UP, /* one did, and was the last that is borne; why was said */
};

enum md_status md_repeat_init(struct md_repeat *repeat, const struct md_command *command,
			      const struct md_workplace *workplace, struct md_error *err);
void md_repeat_finish(struct md_repeat *repeat);

/*
 * Runs the command once, as md_run_child does (output: -1), or md_run_child_output. A process of it that notes that it
 * is broken or hangs is ended, with the command itself and all it started.
 */
enum md_status md_repeat_run(struct md_repeat *repeat, const struct md_run *run, int output, int *exit_code,
			     enum md_repeat_outcome *outcome, struct md_error *err);

/* The explanation of a failure that is the command's own. */
#define MD_REPEAT_OWN "no replay of Medusa's was under way, so this is the command's own failure"

#endif
