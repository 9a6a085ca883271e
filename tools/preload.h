/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a path of a library that LD_PRELOAD can hold, whatever the names of the library's folders. */
#ifndef MD_TOOLS_PRELOAD_H
#define MD_TOOLS_PRELOAD_H

#include <limits.h>
#include <stdbool.h>

#include "base/status.h"

/* A link that had to be created; it is removed when the command has ended. */
struct md_preload {
	char path[PATH_MAX];                         /* for LD_PRELOAD */
	char folder[PATH_MAX], link[PATH_MAX + 256]; /* "" when there is none */
};

/*
 * Looks for the library where it is installed, seen from the running program's folder, and in ../lib. The dynamic
 * linker divides LD_PRELOAD at spaces and colons and replaces $LIB, $ORIGIN and $PLATFORM, with no way of quoting. If
 * its folder is called so, the path by which the program was started is tried, then a link in a folder of our own,
 * unless may_link is false: a command that becomes the engine could not remove it. MD_ERR_NOT_FOUND, or MD_ERR_INVALID
 * with what to do.
 */
enum md_status md_preload_find(const char *name, bool may_link, struct md_preload *out, struct md_error *err);
/* The real path of a file beside our libraries, "hostcuda/libcuda.so.1" say. MD_ERR_NOT_FOUND names where it was looked
 * for. */
enum md_status md_preload_locate(const char *name, char path[PATH_MAX], struct md_error *err);
void md_preload_finish(struct md_preload *preload);

#endif
