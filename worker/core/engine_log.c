/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/engine_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

struct md_log_file {
	char *path;
	int fd;
	uint64_t cut; /* bytes that were cut off */
};

static void make_name(const char *name, char *out, size_t size)
{
	size_t used = 0;
	for (; *name && used + 1 < size; name++) {
		bool plain = !strchr("/\\:*?\"<>|", *name) && (unsigned char)*name > ' ' && (used || *name != '.');
		out[used++] = plain ? *name : '_';
	}
	out[used] = '\0';
}

enum md_status md_log_file_open(const char *directory, const char *name, struct md_log_file **log, struct md_error *err)
{
	char file[200];
	struct md_log_file *made = calloc(1, sizeof(*made));
	make_name(name, file, sizeof(file));
	if (!made || asprintf(&made->path, "%s/%s.log", directory, file) < 0) {
		free(made);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the log of %.100s", name);
	}
	made->fd = open(made->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (made->fd < 0) {
		md_error_set(err, MD_ERR_OUTPUT, "%.300s: %s", made->path, strerror(errno));
		md_log_file_close(made);
		return err->status;
	}
	*log = made;
	return MD_OK;
}

void md_log_file_close(struct md_log_file *log)
{
	if (!log)
		return;
	if (log->fd >= 0)
		close(log->fd);
	free(log->path);
	free(log);
}

int md_log_file_output(const struct md_log_file *log)
{
	return log->fd;
}

const char *md_log_file_path(const struct md_log_file *log)
{
	return log->path;
}

static uint64_t file_size(const struct md_log_file *log)
{
	struct stat is;
	return fstat(log->fd, &is) ? 0 : (uint64_t)is.st_size;
}

size_t md_log_file_read(struct md_log_file *log, uint64_t *offset, char *bytes, size_t size)
{
	uint64_t end = log->cut + file_size(log);
	*offset = *offset > end ? end : *offset < log->cut ? log->cut : *offset;
	ssize_t got = pread(log->fd, bytes, size, (off_t)(*offset - log->cut));
	*offset += got > 0 ? (uint64_t)got : 0;
	return got > 0 ? (size_t)got : 0;
}

/* What the engine writes between reading and cutting is lost: some lines of a log that has 4 MiB more. */
void md_log_file_trim(struct md_log_file *log)
{
	uint64_t size = file_size(log), kept = MD_LOG_FILE_MAX / 2;
	if (size <= MD_LOG_FILE_MAX)
		return;
	MD_AUTO_FREE char *bytes = malloc(kept);
	if (!bytes || pread(log->fd, bytes, kept, (off_t)(size - kept)) != (ssize_t)kept || ftruncate(log->fd, 0))
		return;
	log->cut += size - kept;
	if (write(log->fd, bytes, kept) != (ssize_t)kept)
		log->cut += kept;
}
