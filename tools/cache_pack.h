/* SPDX-License-Identifier: Apache-2.0 */
/* Packs the files of compilers' caches, as an artifact holds them. */
#ifndef MD_TOOLS_CACHE_PACK_H
#define MD_TOOLS_CACHE_PACK_H

#include "base/arguments.h"
#include "format/artifact/caches.h"
#include "tools/options.h"

#define MD_CACHE_LIMIT (1ull << 30) /* bytes of all files, unless the user says another number */

/* "300M": K, M and G are powers of 1024. MD_ERR_INVALID if it is no number of bytes from 1 to MD_CACHE_BYTES_MAX. */
enum md_status md_cache_limit_parse(const char *text, uint64_t *out, struct md_error *err);

/*
 * Reads the regular files of each folder that `wishes` names ("DIR" or "VARIABLE=DIR"). What is something else (links,
 * pipes, devices, sockets), or may not be read, is left out and said. MD_ERR_TOO_LARGE if the files have more bytes than
 * `limit`, with how many they have and which are the largest. data: false counts the files, and reads none.
 */
enum md_status md_cache_pack(const struct md_command *command, const struct md_argument_list *wishes, uint64_t limit,
			     bool data, struct md_caches *out, struct md_error *err);

#endif
