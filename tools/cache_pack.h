/* SPDX-License-Identifier: Apache-2.0 */
/* Packs the files of compilers' caches into the form in which an artifact holds them. */
#ifndef MD_TOOLS_CACHE_PACK_H
#define MD_TOOLS_CACHE_PACK_H

#include "base/arguments.h"
#include "format/artifact/caches.h"
#include "tools/options.h"

#define MD_CACHE_LIMIT (1ull << 30) /* bytes of all files, unless the user says another number */

/* "300M": K, M and G are powers of 1024. MD_ERR_INVALID: not a number of bytes from 1 to MD_CACHE_BYTES_MAX. */
enum md_status md_cache_limit_parse(const char *text, uint64_t *out, struct md_error *err);

/*
 * Reads the regular files of each folder that `wishes` names ("DIR" or "VARIABLE=DIR"). Links, pipes, devices, sockets,
 * and files that may not be read are left out and logged. MD_ERR_TOO_LARGE if the files have more than `limit` bytes; the
 * message says how many, and names the largest file. data: false counts the files, and reads none.
 */
enum md_status md_cache_pack(const struct md_command *command, const struct md_argument_list *wishes, uint64_t limit,
			     bool data, struct md_caches *out, struct md_error *err);

#endif
