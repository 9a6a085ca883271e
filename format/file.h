/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files: written fully or with an error that names the path, published by rename, read through a mapping. */
#ifndef MD_FORMAT_FILE_H
#define MD_FORMAT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Writes all bytes. Errors are MD_ERR_IO with path and the system's text. */
enum md_status md_file_write(int fd, const void *data, size_t size, const char *path, struct md_error *err);
/* fsync, then rename from temporary to path, then fsync of the folder. fd stays open. */
enum md_status md_file_publish(int fd, const char *temporary, const char *path, struct md_error *err);

/* All size bytes at offset; MD_ERR_TRUNCATED names the offset when the file ends before. */
enum md_status md_file_read_at(int fd, uint64_t offset, void *out, size_t size, struct md_error *err);

struct md_file_map {
	const void *data; /* NULL for an empty file */
	size_t size;
};

/* Regular files only. MD_ERR_NOT_FOUND when it does not exist. */
enum md_status md_file_map(const char *path, struct md_file_map *map, struct md_error *err);
/* The same of an open file; a descriptor below 0 is an open that has just failed (errno). */
enum md_status md_file_map_fd(int fd, const char *path, struct md_file_map *map, struct md_error *err);
void md_file_unmap(struct md_file_map *map);

#endif
