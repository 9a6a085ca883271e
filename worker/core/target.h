/* SPDX-License-Identifier: Apache-2.0 */
/* The target of a request: its path, and the values of its query. */
#ifndef MD_WORKER_CORE_TARGET_H
#define MD_WORKER_CORE_TARGET_H

#include <stdbool.h>
#include <stddef.h>

#define MD_TARGET_MAX 8192u /* bytes of a path that is decoded */

/*
 * The path of a target ("/a%20b?x=1", "http://host/a?x"), decoded; false: it is longer than `size`, is no path, or a
 * percent sign is not followed by two hexadecimal digits, or they mean a NUL.
 */
bool md_target_path(const char *target, char *path, size_t size);
/* Where the path begins in a target, and where its query does ("" if it has none), both as they were sent. */
const char *md_target_local(const char *target);
const char *md_target_query(const char *target);
/*
 * The first value of a key in "a=b&c=d", decoded; one that cannot be decoded, for a reason as above, is empty. False: the key is not
 * there.
 */
bool md_target_value(const char *query, const char *key, char *value, size_t size);
/* The target with another first value of the key, which is encoded; it stays as it is without one. The caller frees it; NULL: out of memory. */
char *md_target_replace(const char *target, const char *key, const char *value);

/* A segment of its path is ".." when it is decoded, by which it may leave the path that it is put behind. */
bool md_target_climbs(const char *target);

#endif
