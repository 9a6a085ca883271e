/* SPDX-License-Identifier: Apache-2.0 */
/* Completion of a command's line in shells, from the table that its options and its help come from. */
#ifndef MD_TOOLS_COMPLETION_H
#define MD_TOOLS_COMPLETION_H

#include <stdio.h>

#include "tools/options.h"

/* shell: bash, zsh or fish; false for any other. */
bool md_completion_print(const struct md_command *command, const char *shell, FILE *out);

#endif
