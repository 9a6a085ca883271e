/* SPDX-License-Identifier: Apache-2.0 */
/* How long a run of the command may take, and when it has been quiet for so long that the user should hear of it. */
#ifndef MD_TOOLS_RUN_LIMIT_H
#define MD_TOOLS_RUN_LIMIT_H

#include <stdint.h>

#include "tools/options.h"

#define MD_TIMEOUT_HELP "The most seconds that one run of CMD may take (default: 3600; 0: no limit)."

/*
 * The value of --timeout; text NULL: it was not given. Returns -1 when the command should go on, else its exit code.
 */
int md_run_limit_take(const struct md_command *command, const char *text, uint64_t *ns);

/* What grows while a run gets on, such as the bytes of a file. */
struct md_quiet {
	uint64_t since, seen;
};

/* For how long nothing has grown, in nanoseconds. */
uint64_t md_quiet_for(struct md_quiet *quiet, uint64_t now_ns, uint64_t grown);
/* After this time the user hears of it: a minute, or a quarter of the limit if that is shorter. limit_ns 0: no limit. */
uint64_t md_quiet_most(uint64_t limit_ns);

#endif
