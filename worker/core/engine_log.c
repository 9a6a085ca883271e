/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/engine_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/hash.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define NAME_MAX_BYTES 160u /* of a file's name before it ends with a hash */

struct md_log_file {
	struct md_log_writer *writer;
	struct md_log_pipe *pipe; /* NULL: the engine was not started yet */
	char *path, *earlier;     /* of the log, and of what was written before it */
	ino_t file;               /* what `path` was when it was looked at; 0: never */
	uint64_t size;            /* of it, then */
	uint64_t before;          /* bytes that were written before it */
};

/* ---- names ---- */

static void make_name(const char *kind, const char *name, char *out, size_t size)
{
	size_t used = (size_t)snprintf(out, size, "%s", kind);
	for (const char *at = name; *at && used < NAME_MAX_BYTES; at++) {
		bool plain = !strchr("/\\:*?\"<>|%~", *at) && (unsigned char)*at > ' ' && (unsigned char)*at < 0x7f &&
			     (used || *at != '.');
		used += (size_t)snprintf(out + used, size - used, plain ? "%c" : "%%%02X", (unsigned char)*at);
	}
	if (used >= NAME_MAX_BYTES)
		snprintf(out + used, size - used, "~%016" PRIx64, md_hash_checksum(name, strlen(name)));
	else
		out[used] = '\0';
}

/* ---- the file ---- */

static int open_file(const char *path, int flags)
{
	return open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
}

enum md_status md_log_file_open(struct md_log_writer *writer, const char *directory, const char *kind, const char *name,
				struct md_log_file **log, struct md_error *err)
{
	char file[NAME_MAX_BYTES + 32];
	struct md_log_file *made = calloc(1, sizeof(*made));
	make_name(kind, name, file, sizeof(file));
	if (!made || asprintf(&made->path, "%s/%s.log", directory, file) < 0 ||
	    asprintf(&made->earlier, "%s.1", made->path) < 0) {
		md_log_file_close(made);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the log of %.100s", name);
	}
	MD_AUTO_FD int fd = open_file(made->path, O_WRONLY | O_CREAT | O_APPEND);
	if (fd < 0) {
		md_error_set(err, MD_ERR_OUTPUT, "%.300s: %s", made->path, strerror(errno));
		md_log_file_close(made);
		return err->status;
	}
	made->writer = writer;
	*log = made;
	return MD_OK;
}

void md_log_file_close(struct md_log_file *log)
{
	if (!log)
		return;
	md_log_pipe_destroy(log->pipe);
	free(log->path);
	free(log->earlier);
	free(log);
}

int md_log_file_output(struct md_log_file *log)
{
	struct md_error err = {0};
	if (!log->pipe && md_log_pipe_create(log->writer, log->path, &log->pipe, &err) != MD_OK)
		md_error_log("what an engine prints is lost: %s", err.message);
	return log->pipe ? md_log_pipe_output(log->pipe) : -1;
}

const char *md_log_file_path(const struct md_log_file *log)
{
	return log->path;
}

/* ---- reading ---- */

/* The file, and what stat says of it, zeros if there is none. */
static int look(const char *path, struct stat *is)
{
	int fd = open_file(path, O_RDONLY);
	if (fd < 0 || fstat(fd, is))
		*is = (struct stat){0};
	return fd;
}

/* Another file may be the log since it was looked at last: offsets go on behind the one before. */
static void count_on(struct md_log_file *log, const struct stat *now, const struct stat *earlier)
{
	bool same = log->file == now->st_ino && (uint64_t)now->st_size >= log->size;
	if (!log->file)
		log->before = (uint64_t)earlier->st_size;
	else if (!same)
		log->before += earlier->st_ino == log->file ? (uint64_t)earlier->st_size : log->size;
	log->file = now->st_ino;
	log->size = (uint64_t)now->st_size;
}

size_t md_log_file_read(struct md_log_file *log, uint64_t *offset, char *bytes, size_t size)
{
	struct stat is, was;
	MD_AUTO_FD int now = look(log->path, &is);
	MD_AUTO_FD int earlier = look(log->earlier, &was);
	count_on(log, &is, &was);
	uint64_t end = log->before + log->size;
	uint64_t kept = (uint64_t)was.st_size < log->before ? (uint64_t)was.st_size : log->before;
	uint64_t oldest = log->before - kept;
	*offset = *offset > end ? end : *offset < oldest ? oldest : *offset;
	ssize_t got = *offset < log->before
			  ? pread(earlier, bytes, size, (off_t)((uint64_t)was.st_size - (log->before - *offset)))
			  : pread(now, bytes, size, (off_t)(*offset - log->before));
	*offset += got > 0 ? (uint64_t)got : 0;
	return got > 0 ? (size_t)got : 0;
}

/* ---- by its name alone ---- */

static int open_named(const char *directory, const char *name, const char *ending, struct stat *is)
{
	char file[NAME_MAX_BYTES + 32];
	MD_AUTO_FREE char *path = NULL;
	make_name("", name, file, sizeof(file));
	*is = (struct stat){0};
	return asprintf(&path, "%s/%s.log%s", directory, file, ending) < 0 ? -1 : look(path, is);
}

uint64_t md_log_file_written(const char *directory, const char *name)
{
	struct stat is, was;
	MD_AUTO_FD int now = open_named(directory, name, "", &is);
	MD_AUTO_FD int earlier = is.st_size ? -1 : open_named(directory, name, ".1", &was);
	const struct timespec *at = is.st_size ? &is.st_mtim : &was.st_mtim;
	if (!is.st_size && (earlier < 0 || !was.st_size))
		return 0;
	return (uint64_t)at->tv_sec * 1000000000u + (uint64_t)at->tv_nsec;
}

static size_t read_end(int fd, const struct stat *is, char *bytes, size_t size)
{
	off_t from = is->st_size > (off_t)size ? is->st_size - (off_t)size : 0;
	ssize_t got = fd < 0 ? 0 : pread(fd, bytes, size, from);
	return got > 0 ? (size_t)got : 0;
}

size_t md_log_file_tail(const char *directory, const char *name, char *bytes, size_t size)
{
	struct stat is, was;
	MD_AUTO_FD int now = open_named(directory, name, "", &is);
	MD_AUTO_FD int earlier = open_named(directory, name, ".1", &was);
	size_t late = (uint64_t)is.st_size < size ? (size_t)is.st_size : size;
	size_t early = read_end(earlier, &was, bytes, size - late);
	return early + read_end(now, &is, bytes + early, size - early);
}
