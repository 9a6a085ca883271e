/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacks the caches of an artifact before an engine starts. */
#ifndef MD_TOOLS_CACHE_UNPACK_H
#define MD_TOOLS_CACHE_UNPACK_H

#include "base/arguments.h"
#include "tools/options.h"

struct md_cache_wish { /* the command line */
	struct md_argument_list folders;
	bool none;
};

#define MD_CACHE_OPTIONS(wish)                                                                                         \
	{.name = "cache-dir",                                                                                          \
	 .argument = "NAME=DIR",                                                                                       \
	 .list = &(wish).folders,                                                                                      \
	 .help = "Unpack the artifact's cache NAME into DIR, where the engine then looks for it; may be repeated."},   \
	{                                                                                                              \
		.name = "no-caches", .flag = &(wish).none, .help = "Unpack no caches."                                 \
	}

/* -1, or MD_EXIT_USAGE and a message if a folder is not given as NAME=DIR. */
int md_cache_wish_check(const struct md_command *command, const struct md_cache_wish *wish);

/*
 * Unpacks into the folders that the wish, the environment or the compilers' own rules name, and sets variables of the
 * environment for folders that the wish names. A failure is reported, and the engine starts without the caches. Artifacts
 * without caches, and artifacts that cannot be read, are passed over in silence: the restore library judges them.
 */
void md_cache_unpack(const struct md_command *command, const char *artifact, const struct md_cache_wish *wish);

#endif
