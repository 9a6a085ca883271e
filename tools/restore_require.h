/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-restore --require: judges whether graphs were restored by what each process of the engine says, and ends the engine if not. */
#ifndef MD_TOOLS_RESTORE_REQUIRE_H
#define MD_TOOLS_RESTORE_REQUIRE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "tools/options.h"
#include "tools/run.h"
#include "tools/workplace.h"

#define MD_REQUIRE_ENV 2

struct md_require {
	const struct md_command *command;
	bool asked, all;            /* asked: there is a requirement; all: every graph, otherwise one is enough */
	uint64_t limit_ns, started; /* 0: no limit */
	char folder[PATH_MAX], told[PATH_MAX];             /* where processes of the engine write; what plug-ins say */
	char outcomes[PATH_MAX + 32], tell[PATH_MAX + 32]; /* settings of the environment */
	bool met, failed;
};

/* The value of --require; text NULL: it was not given. Returns -1 when the command should go on, else its exit code. */
int md_require_take(const struct md_command *command, const char *text, struct md_require *out);
/*
 * Sets what `run` asks of this requirement, and MD_REQUIRE_ENV settings for the engine; they and the files in the workplace are there as
 * long as both.
 */
enum md_status md_require_begin(struct md_require *require, const struct md_workplace *workplace, struct md_run *run,
				const char *env[MD_REQUIRE_ENV], struct md_error *err);
/* The command has ended with this code: the exit code of ours. What is missing is said. */
int md_require_end(struct md_require *require, int exit_code);

#endif
