/* SPDX-License-Identifier: Apache-2.0 */
/* --nondeterministic ULPS[:TYPE], an option of the commands that run an engine and judge its graphs. */
#ifndef MD_TOOLS_TOLERANCE_H
#define MD_TOOLS_TOLERANCE_H

#include "base/element.h"
#include "tools/options.h"

#define MD_TOLERANCE_HELP "Accept nondeterministic graphs within ULPS[:f32|f16|bf16|f64] of live ones."

/*
 * Passes what the user stated, or that nothing was stated, on to the library in the engine's process; a setting left in
 * the environment does not count. Returns -1, or the exit code of a usage error.
 */
int md_tolerance_take(const struct md_command *command, const char *text, struct md_tolerance *out);

#endif
