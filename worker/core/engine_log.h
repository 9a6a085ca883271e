/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine prints: a file that it writes by itself, so that it goes on when the worker does not. */
#ifndef MD_WORKER_CORE_ENGINE_LOG_H
#define MD_WORKER_CORE_ENGINE_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define MD_LOG_FILE_MAX (8u << 20) /* bytes; then the older half goes */

struct md_log_file;

/* Opens or makes DIRECTORY/NAME.log, with what a file name can't hold in NAME replaced. */
enum md_status md_log_file_open(const char *directory, const char *name, struct md_log_file **log,
				struct md_error *err);
void md_log_file_close(struct md_log_file *log); /* NULL is fine */

int md_log_file_output(const struct md_log_file *log); /* for the engine: everything written is appended */
const char *md_log_file_path(const struct md_log_file *log);
/*
 * Bytes from *offset on, at most `size`; *offset moves on. Offsets count all that was ever written; one that is no longer
 * there becomes the oldest that is. UINT64_MAX: the end.
 */
size_t md_log_file_read(struct md_log_file *log, uint64_t *offset, char *bytes, size_t size);
/* Cuts the older half off a file that has become too large; called now and then. */
void md_log_file_trim(struct md_log_file *log);

#endif
