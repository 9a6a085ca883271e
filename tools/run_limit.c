/* SPDX-License-Identifier: Apache-2.0 */
/* How long a run of the command may take, and when it has been quiet for so long that the user should hear of it. */
#include "tools/run_limit.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000000000u
#define USUAL_S 3600u
#define MOST_S 1000000000u /* some 31 years; in nanoseconds it fits 64 bits */
#define QUIET_S 60u

int md_run_limit_take(const struct md_command *command, const char *text, uint64_t *ns)
{
	char *end;
	*ns = (uint64_t)USUAL_S * SECOND;
	if (!text)
		return -1;
	/* neither signs nor spaces, which strtod takes, nor "nan" and "inf" */
	bool number = *text && strspn(text, "0123456789.") == strlen(text);
	double seconds = number ? strtod(text, &end) : -1;
	if (!number || *end || !(seconds >= 0 && seconds <= MOST_S))
		return md_options_usage_error(
		    command, "--timeout: \"%s\" is not a number of seconds from 0 (no limit) to %u", text, MOST_S);
	*ns = (uint64_t)(seconds * SECOND);
	if (seconds > 0 && !*ns)
		*ns = 1; /* 0 means something else */
	return -1;
}

uint64_t md_quiet_for(struct md_quiet *quiet, uint64_t now_ns, uint64_t grown)
{
	if (!quiet->since || grown != quiet->seen)
		*quiet = (struct md_quiet){now_ns, grown};
	return now_ns - quiet->since;
}

uint64_t md_quiet_most(uint64_t limit_ns)
{
	uint64_t most = (uint64_t)QUIET_S * SECOND;
	return limit_ns && limit_ns / 4 < most ? limit_ns / 4 : most;
}
