/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the folders of engines' caches: by environment variables that name them, or by the compilers' defaults. */
#ifndef MD_TOOLS_CACHE_PLACE_H
#define MD_TOOLS_CACHE_PLACE_H

#include <limits.h>
#include <stdbool.h>

#include "base/status.h"
#include "format/artifact/caches.h"

/*
 * The folder that the variable names in this environment, or the folder that its compiler uses if the variable is not
 * set. False if Medusa does not know the variable: only the user can say what an unknown one is for.
 */
bool md_cache_place_known(const char *variable, char folder[PATH_MAX]);

/* Divides "NAME=DIR"; *name has no room for more than PATH_MAX bytes. False if there is no name in front. */
bool md_cache_place_split(const char *wish, char name[PATH_MAX], const char **folder);

/*
 * Sets name, variable, inside and path of *out, by which an artifact describes a folder that is packed. The caller
 * finishes *out. wish is "DIR" or "VARIABLE=DIR". MD_ERR_NOT_FOUND if there is no such folder.
 */
enum md_status md_cache_place_describe(const char *wish, struct md_cache_folder *out, struct md_error *err);

#endif
