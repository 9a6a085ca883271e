/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes the tolerance that a user accepts for nondeterministic graphs from the command line to the engine's
 * environment.
 */
#include "tools/tolerance.h"

#include <stdlib.h>

int md_tolerance_take(const struct md_command *command, const char *text, struct md_tolerance *out)
{
	*out = (struct md_tolerance){0};
	if (text && !md_tolerance_parse(text, out))
		return md_options_usage_error(
		    command,
		    "--nondeterministic: \"%s\" is not ULPS or ULPS:TYPE, as in 64:bf16 (types are "
		    "f32, f16, bf16, f64, exact)",
		    text);
	if (text ? setenv("MEDUSA_NONDETERMINISTIC", text, 1) : unsetenv("MEDUSA_NONDETERMINISTIC"))
		return md_options_usage_error(command, "--nondeterministic: out of memory for its values");
	return -1;
}
