/* SPDX-License-Identifier: Apache-2.0 */
/* Files about an engine that a daemon leaves to the next one, in a folder that is their user's alone. */
#ifndef MD_WORKER_ENGINE_ADOPT_FILE_H
#define MD_WORKER_ENGINE_ADOPT_FILE_H

#include <limits.h>
#include <sys/types.h>

#include "base/file.h"

#define MD_ADOPT_FILE_PREFIX "engine-"

void md_adopt_file_path(const char *folder, pid_t pid, const char *suffix, char path[PATH_MAX]);
/* All of it, if only this user can write to it; MD_ERR_NOT_FOUND: it is not there. */
enum md_status md_adopt_file_read(const char *path, size_t most, struct md_file_bytes *bytes, struct md_error *err);
/* The whole file at once; what was there stays if that fails. It need not survive the machine: its processes do not either. */
enum md_status md_adopt_file_write(const char *folder, pid_t pid, const char *suffix, const char *text, size_t size,
				   struct md_error *err);

#endif
