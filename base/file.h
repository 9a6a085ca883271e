/* SPDX-License-Identifier: Apache-2.0 */
/* All files are opened here: without waiting, with a size limit; read and never mapped; published by rename. */
#ifndef MD_BASE_FILE_H
#define MD_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

/* ---- reading: a file that is named by an artifact, the environment or a user ---- */

/*
 * Opens a regular file for reading and says how many bytes it has. The call never waits: a pipe, a device, a socket or
 * a folder is MD_ERR_INVALID and is not even opened. MD_ERR_NOT_FOUND when there is nothing, MD_ERR_TOO_LARGE when it
 * has more than `most` bytes.
 *
 * A file is read, not mapped: anybody may rewrite or truncate it at any time, and that must be an error of the reader,
 * never a signal to the engine in whose process the reader runs. Read each byte once, and check what was read.
 */
enum md_status md_file_open(const char *path, uint64_t most, int *fd, uint64_t *size, struct md_error *err);

struct md_file_bytes {
	uint8_t *data; /* owned; a NUL follows the last byte, so that a text can be used as a string */
	size_t size;
};

/* A whole regular file of at most `most` bytes. */
enum md_status md_file_read(const char *path, uint64_t most, struct md_file_bytes *out, struct md_error *err);
/* The same, also for a pipe or terminal, to its end: only for what a user names to a command, which may wait for it. */
enum md_status md_file_read_stream(const char *path, uint64_t most, struct md_file_bytes *out, struct md_error *err);
void md_file_release(struct md_file_bytes *bytes);

/* Reads exactly size bytes at offset; MD_ERR_TRUNCATED names the offset if the file ends before. */
enum md_status md_file_read_at(int fd, uint64_t offset, void *out, size_t size, struct md_error *err);

/*
 * The source of a reader's bytes, each of which is read once: memory of this process, or an open file that may change.
 */
struct md_file_source {
	const uint8_t *data; /* NULL: read from fd */
	int fd;
	uint64_t size;
};

/*
 * Bytes of a source: those of memory are borrowed, those of a file are read into *owned, which the caller frees.
 * MD_ERR_TRUNCATED when the source has no such bytes.
 */
enum md_status md_file_source_take(const struct md_file_source *source, uint64_t offset, size_t size, const void **out,
				   void **owned, struct md_error *err);

/* ---- writing ---- */

/* Writes all bytes. Errors of writing are MD_ERR_OUTPUT, here with path and the system's text. */
enum md_status md_file_write(int fd, const void *data, size_t size, const char *path, struct md_error *err);
/*
 * A new file beside `path`, under a name that nobody else has and nobody can have prepared (O_EXCL: no link is
 * followed); *temporary is owned by the caller, who publishes or removes it.
 */
enum md_status md_file_create_beside(const char *path, char **temporary, int *fd, struct md_error *err);
/*
 * A new file without a name, in the folder of `path`: a process that is killed does not leave it behind. -1: the file
 * system has none, or /proc is not there, by which it would get its name; md_file_create_beside makes a file then.
 */
int md_file_create_unnamed(const char *path);
/* Gives such a file, with all that is in it, a name as md_file_create_beside's. */
enum md_status md_file_name_beside(int fd, const char *path, char **temporary, struct md_error *err);
/* A new file; MD_ERR_INVALID when the name is taken, by a link too. mode: permissions, less the umask. */
enum md_status md_file_create(const char *path, unsigned mode, int *fd, struct md_error *err);
/* Checks that a file at path, if there is one, is regular: devices and folders are never replaced. */
enum md_status md_file_check_output(const char *path, struct md_error *err);
/*
 * Gives the new file fd the owner, group and permissions of the file at path, if there is one, which it will replace.
 */
enum md_status md_file_make_alike(int fd, const char *path, struct md_error *err);
/*
 * Opens a file for appending and creates it, for its owner alone, if there is none. Does not wait for a pipe's reader, and does not take a
 * terminal as the controlling one. -1 and errno on failure. regular: fail with EINVAL if it is not a regular file.
 */
int md_file_open_append(const char *path, bool regular);
/* Opens a file that a user asked a command to write, and follows links. NULL and errno on failure. */
FILE *md_file_open_output(const char *path);
/* rename, then fsync of the folder; for a file that is already on the disk. */
enum md_status md_file_rename(const char *from, const char *to, struct md_error *err);
/* fsync, then md_file_rename from temporary to path. fd stays open. */
enum md_status md_file_publish(int fd, const char *temporary, const char *path, struct md_error *err);

#endif
