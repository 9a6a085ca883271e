/* SPDX-License-Identifier: Apache-2.0 */
/* A file beside the record of an engine: the adapters that daemons have told it to load, for the daemon that comes after this one. */
#ifndef MD_WORKER_ENGINE_ADOPT_ADAPTERS_H
#define MD_WORKER_ENGINE_ADOPT_ADAPTERS_H

#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

/* Adds one to the file of the process that began then (md_process_began). */
enum md_status md_adopt_adapters_add(const char *folder, pid_t pid, uint64_t began, const char *name, const char *path,
				     struct md_error *err);
/*
 * Calls take for each that the file has of this process; what is about another one, or is no such line, is passed over. No
 * file: none. The texts are valid within the call alone.
 */
enum md_status md_adopt_adapters_read(const char *folder, pid_t pid, uint64_t began,
				      void (*take)(void *context, const char *name, const char *path), void *context,
				      struct md_error *err);
/* The engine has none of this name any more. On failure the file is as it was. */
enum md_status md_adopt_adapters_drop(const char *folder, pid_t pid, uint64_t began, const char *name,
				      struct md_error *err);
void md_adopt_adapters_remove(const char *folder, pid_t pid);

#endif
