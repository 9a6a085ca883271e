/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are installed with the commands, or lie in the source tree, by name. */
#ifndef MD_TOOLS_SHIPPED_H
#define MD_TOOLS_SHIPPED_H

#include "base/status.h"

/*
 * The path of what a user has given: a file of that path if there is one, else the shipped file NAME.yaml of this kind
 * ("nodes", "functions"). The caller frees it. NOT_FOUND names what is shipped.
 */
enum md_status md_shipped_find(const char *kind, const char *given, char **path, struct md_error *err);
/* The names of this kind, sorted, with ", " between them; freed by the caller. NULL: out of memory. */
char *md_shipped_names(const char *kind);

#endif
