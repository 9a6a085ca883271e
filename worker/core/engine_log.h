/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine prints: a log in a file, which is read here and written by a process of its own (log_writer.h). */
#ifndef MD_WORKER_CORE_ENGINE_LOG_H
#define MD_WORKER_CORE_ENGINE_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/core/log_writer.h"

struct md_log_file;

/*
 * DIRECTORY/NAME.log, which is made if need be. What a file name can't hold, or could take for something else, is %XX in
 * it, and a very long name ends with a hash, so that no two models have one file. The writer is borrowed.
 */
enum md_status md_log_file_open(struct md_log_writer *writer, const char *directory, const char *kind, const char *name,
				struct md_log_file **log, struct md_error *err);
void md_log_file_close(struct md_log_file *log); /* NULL is fine */

int md_log_file_output(struct md_log_file *log); /* for the engine; -1: there is none, and it was said why */
const char *md_log_file_path(const struct md_log_file *log);
/* The last bytes of such a log, at most `size`, whoever writes it: for other threads than the loop's. */
size_t md_log_file_tail(const char *directory, const char *name, char *bytes, size_t size);
/* When it was written last, ns since 1970; 0: it is empty, or there is none. */
uint64_t md_log_file_written(const char *directory, const char *name);
/*
 * Bytes from *offset on, at most `size`; *offset moves on. Offsets count what was written since the log that is there
 * began; one that is no longer there becomes the oldest that is. UINT64_MAX: the end. Fewer bytes than there are may come.
 */
size_t md_log_file_read(struct md_log_file *log, uint64_t *offset, char *bytes, size_t size);

#endif
