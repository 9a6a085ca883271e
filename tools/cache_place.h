/* SPDX-License-Identifier: Apache-2.0 */
/* Where engines look for their caches: the variables of the environment that tell them, and where they look without. */
#ifndef MD_TOOLS_CACHE_PLACE_H
#define MD_TOOLS_CACHE_PLACE_H

#include <limits.h>
#include <stdbool.h>

#include "base/status.h"
#include "format/artifact/caches.h"

/*
 * The folder that the variable names in this environment, or the one that its compiler uses where the variable is not
 * set. False if Medusa does not know the variable: what an unknown one is for, only the user can say.
 */
bool md_cache_place_known(const char *variable, char folder[PATH_MAX]);

/* Divides "NAME=DIR"; *name has no room for more than PATH_MAX bytes. False if there is no name in front. */
bool md_cache_place_split(const char *wish, char name[PATH_MAX], const char **folder);

/*
 * What an artifact says of a folder that is to be packed: name, variable, inside and path of *out, which the caller
 * finishes. wish is "DIR" or "VARIABLE=DIR". MD_ERR_NOT_FOUND if there is no such folder.
 */
enum md_status md_cache_place_describe(const char *wish, struct md_cache_folder *out, struct md_error *err);

#endif
