/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files: writing that notices a full disk, atomic publication, read-only mapping. */
#include "format/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/descriptor.h"

static enum md_status io_error(struct md_error *err, const char *path)
{
	int code = errno;
	return md_error_set(err, code == ENOENT ? MD_ERR_NOT_FOUND : MD_ERR_IO, "%s: %s", path, strerror(code));
}

enum md_status md_file_write(int fd, const void *data, size_t size, const char *path, struct md_error *err)
{
	int failure = md_descriptor_write(fd, data, size);
	return failure ? md_error_set(err, MD_ERR_IO, "%s: %s", path, strerror(failure)) : MD_OK;
}

/* A rename lasts only when its folder is on the disk too; some file systems can't do that, and need not. */
static void sync_folder(const char *path)
{
	MD_AUTO_FREE char *folder = strdup(path);
	if (!folder)
		return;
	char *slash = strrchr(folder, '/');
	if (slash)
		slash[slash == folder] = 0;
	MD_AUTO_FD int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		fsync(fd);
}

enum md_status md_file_publish(int fd, const char *temporary, const char *path, struct md_error *err)
{
	if (fsync(fd) != 0 && errno != EINVAL && errno != EROFS) /* pipes and devices can't */
		return md_error_set(err, MD_ERR_IO, "%s: %s", temporary, strerror(errno));
	if (rename(temporary, path) != 0)
		return md_error_set(err, MD_ERR_IO, "%s: cannot be renamed from %s: %s", path, temporary,
				    strerror(errno));
	sync_folder(path);
	return MD_OK;
}

enum md_status md_file_read_at(int fd, uint64_t offset, void *out, size_t size, struct md_error *err)
{
	for (size_t done = 0; done < size;) {
		ssize_t got = pread(fd, (char *)out + done, size - done, (off_t)(offset + done));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return md_error_set(err, MD_ERR_IO, "at offset %" PRIu64 ": %s", offset + done,
					    strerror(errno));
		if (got == 0)
			return md_error_set(err, MD_ERR_TRUNCATED, "the file ends at offset %" PRIu64, offset + done);
		done += (size_t)got;
	}
	return MD_OK;
}

enum md_status md_file_map(const char *path, struct md_file_map *map, struct md_error *err)
{
	MD_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	return md_file_map_fd(fd, path, map, err);
}

enum md_status md_file_map_fd(int fd, const char *path, struct md_file_map *map, struct md_error *err)
{
	struct stat info;
	*map = (struct md_file_map){0};
	if (fd < 0 || fstat(fd, &info) != 0)
		return io_error(err, path);
	if (!S_ISREG(info.st_mode))
		return md_error_set(err, MD_ERR_INVALID, "%s: not a regular file", path);
	if (info.st_size == 0)
		return MD_OK;
	void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (data == MAP_FAILED)
		return io_error(err, path);
	map->data = data;
	map->size = (size_t)info.st_size;
	return MD_OK;
}

void md_file_unmap(struct md_file_map *map)
{
	if (map->data)
		munmap((void *)map->data, map->size);
	*map = (struct md_file_map){0};
}
