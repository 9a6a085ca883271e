/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All files are opened here: bounded reads that neither wait nor fault, writes that notice a full disk, atomic
 * publication.
 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
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
	return failure ? md_error_set(err, MD_ERR_OUTPUT, "%s: %s", path, strerror(failure)) : MD_OK;
}

/* A rename is durable only when its folder is on the disk, too; some file systems cannot sync a folder and need not. */
static void sync_folder(const char *path)
{
	MD_AUTO_FREE char *folder = strdup(path);
	if (!folder)
		return;
	char *slash = strrchr(folder, '/');
	if (slash)
		slash[slash == folder] = 0;
	MD_AUTO_FD int fd = md_descriptor_open(slash ? folder : ".", O_RDONLY | O_DIRECTORY, 0);
	if (fd >= 0)
		fsync(fd);
}

enum md_status md_file_publish(int fd, const char *temporary, const char *path, struct md_error *err)
{
	if (fsync(fd) != 0 && errno != EINVAL && errno != EROFS) /* pipes and devices cannot be synced */
		return md_error_set(err, MD_ERR_OUTPUT, "%s: %s", temporary, strerror(errno));
	return md_file_rename(temporary, path, err);
}

enum md_status md_file_rename(const char *from, const char *to, struct md_error *err)
{
	if (rename(from, to) != 0)
		return md_error_set(err, MD_ERR_OUTPUT, "%s: cannot be renamed from %s: %s", to, from, strerror(errno));
	sync_folder(to);
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

/* ---- opening to read ---- */

static const char *kind_of(mode_t mode)
{
	return S_ISFIFO(mode) ? "a pipe" : S_ISSOCK(mode) ? "a socket" : S_ISDIR(mode) ? "a folder" : "a device";
}

static enum md_status check_kind(const char *path, const struct stat *info, struct md_error *err)
{
	if (S_ISREG(info->st_mode))
		return MD_OK;
	return md_error_set(err, MD_ERR_INVALID, "%s: not a regular file but %s", path, kind_of(info->st_mode));
}

static enum md_status check_size(const char *path, const struct stat *info, uint64_t most, struct md_error *err)
{
	if (info->st_size >= 0 && (uint64_t)info->st_size <= most)
		return MD_OK;
	return md_error_set(err, MD_ERR_TOO_LARGE, "%s: %lld bytes, at most %" PRIu64, path, (long long)info->st_size,
			    most);
}

/*
 * The type is checked before the file is opened, because opening a device may already have an effect and opening a pipe
 * lets its writer go on; and once more afterwards, because the name may lead to another file by then.
 */
enum md_status md_file_open(const char *path, uint64_t most, int *fd, uint64_t *size, struct md_error *err)
{
	struct stat info;
	if (stat(path, &info) != 0)
		return io_error(err, path);
	MD_FORWARD(check_kind(path, &info, err));
	MD_AUTO_FD int opened = md_descriptor_open(path, O_RDONLY, 0);
	if (opened < 0 || fstat(opened, &info) != 0)
		return io_error(err, path);
	MD_FORWARD(check_kind(path, &info, err));
	MD_FORWARD(check_size(path, &info, most, err));
	*size = (uint64_t)info.st_size;
	*fd = md_steal_fd(&opened);
	return MD_OK;
}

/* ---- reading ---- */

enum md_status md_file_read(const char *path, uint64_t most, struct md_file_bytes *out, struct md_error *err)
{
	MD_AUTO_FD int fd = -1;
	uint64_t size = 0;
	MD_FORWARD(md_file_open(path, most, &fd, &size, err));
	MD_AUTO_FREE uint8_t *data = size < SIZE_MAX ? malloc((size_t)size + 1) : NULL;
	if (!data)
		return md_error_set(err, MD_ERR_NO_MEMORY, "%s: out of memory for %" PRIu64 " bytes", path, size);
	if (md_file_read_at(fd, 0, data, (size_t)size, err) != MD_OK)
		return md_error_prefix(err, "%s", path);
	data[size] = 0;
	*out = (struct md_file_bytes){md_steal_ptr(&data), (size_t)size};
	return MD_OK;
}

/* Room for one byte more than allowed shows whether there are more. */
static enum md_status read_to_end(int fd, const char *path, uint64_t most, uint8_t *data, size_t *size,
				  struct md_error *err)
{
	*size = 0;
	for (;;) {
		ssize_t got = read(fd, data + *size, (size_t)most + 1 - *size);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return io_error(err, path);
		if (got == 0)
			return MD_OK;
		*size += (size_t)got;
		if (*size > most)
			return md_error_set(err, MD_ERR_TOO_LARGE, "%s: more than %" PRIu64 " bytes", path, most);
	}
}

enum md_status md_file_read_stream(const char *path, uint64_t most, struct md_file_bytes *out, struct md_error *err)
{
	size_t size = 0;
	MD_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return io_error(err, path);
	MD_AUTO_FREE uint8_t *data = most < SIZE_MAX ? malloc((size_t)most + 1) : NULL;
	if (!data)
		return md_error_set(err, MD_ERR_NO_MEMORY, "%s: out of memory for %" PRIu64 " bytes", path, most);
	MD_FORWARD(read_to_end(fd, path, most, data, &size, err));
	data[size] = 0;
	*out = (struct md_file_bytes){md_steal_ptr(&data), size};
	return MD_OK;
}

void md_file_release(struct md_file_bytes *bytes)
{
	free(bytes->data);
	*bytes = (struct md_file_bytes){0};
}

enum md_status md_file_source_take(const struct md_file_source *source, uint64_t offset, size_t size, const void **out,
				   void **owned, struct md_error *err)
{
	*owned = NULL;
	if (offset > source->size || size > source->size - offset)
		return md_error_set(err, MD_ERR_TRUNCATED, "%zu bytes at offset %" PRIu64 " of %" PRIu64, size, offset,
				    source->size);
	*out = source->data ? source->data + offset : NULL;
	if (source->data)
		return MD_OK;
	MD_AUTO_FREE void *read = malloc(size ? size : 1);
	if (!read)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %zu bytes", size);
	MD_FORWARD(md_file_read_at(source->fd, offset, read, size, err));
	*out = *owned = md_steal_ptr(&read);
	return MD_OK;
}

/* ---- opening to write ---- */

#define NAMES_TRIED 100

/* A number that nobody can guess, and that another process does not get, even of the same id in another container. */
static uint64_t random_number(const void *of, unsigned time)
{
	uint64_t number = 0;
	struct timespec now;
	if (getrandom(&number, sizeof(number), GRND_NONBLOCK) == (ssize_t)sizeof(number))
		return number;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return ((uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec ^ (uintptr_t)of ^ (uint64_t)getpid() << 20) + time;
}

/* NULL: out of memory. */
static char *temporary_name(const char *path, unsigned time)
{
	char *name = NULL;
	return asprintf(&name, "%s.tmp.%012" PRIx64, path, random_number(&name, time) & 0xffffffffffff) < 0 ? NULL
													    : name;
}

static enum md_status no_name(const char *path, struct md_error *err)
{
	return md_error_set(err, MD_ERR_NO_MEMORY, "%s: out of memory for a temporary name", path);
}

enum md_status md_file_create_beside(const char *path, char **temporary, int *fd, struct md_error *err)
{
	for (unsigned i = 0; i < NAMES_TRIED; i++) {
		MD_AUTO_FREE char *name = temporary_name(path, i);
		if (!name)
			return no_name(path, err);
		*fd = md_descriptor_open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
		if (*fd < 0 && errno == EEXIST)
			continue;
		if (*fd < 0)
			return md_error_set(err, MD_ERR_OUTPUT, "%s: %s", path, strerror(errno));
		*temporary = md_steal_ptr(&name);
		return MD_OK;
	}
	return md_error_set(err, MD_ERR_OUTPUT,
			    "%s: cannot create a temporary file beside it: every name that was tried exists", path);
}

int md_file_create_unnamed(const char *path)
{
	MD_AUTO_FREE char *folder = strdup(path);
	if (!folder || access("/proc/self/fd", X_OK) != 0)
		return -1;
	return md_descriptor_open(dirname(folder), O_WRONLY | O_TMPFILE, 0666);
}

enum md_status md_file_name_beside(int fd, const char *path, char **temporary, struct md_error *err)
{
	char own[32];
	int failure = EEXIST;
	snprintf(own, sizeof(own), "/proc/self/fd/%d", fd);
	for (unsigned i = 0; i < NAMES_TRIED && failure == EEXIST; i++) {
		MD_AUTO_FREE char *name = temporary_name(path, i);
		if (!name)
			return no_name(path, err);
		failure = linkat(AT_FDCWD, own, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
		if (!failure)
			*temporary = md_steal_ptr(&name);
	}
	return failure ? md_error_set(err, MD_ERR_OUTPUT, "%s: %s", path, strerror(failure)) : MD_OK;
}

enum md_status md_file_create(const char *path, unsigned mode, int *fd, struct md_error *err)
{
	*fd = md_descriptor_open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, (mode_t)mode);
	if (*fd < 0)
		return md_error_set(err, errno == EEXIST ? MD_ERR_INVALID : MD_ERR_OUTPUT, "%s: %s", path,
				    strerror(errno));
	return MD_OK;
}

enum md_status md_file_check_output(const char *path, struct md_error *err)
{
	struct stat info;
	if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
		return md_error_set(err, MD_ERR_OUTPUT, "%s: exists and is not a regular file", path);
	return MD_OK;
}

enum md_status md_file_make_alike(int fd, const char *path, struct md_error *err)
{
	struct stat is, wanted;
	if (stat(path, &wanted) != 0 && errno == ENOENT)
		return MD_OK;
	if (stat(path, &wanted) != 0 || fstat(fd, &is) != 0)
		return md_error_set(err, MD_ERR_OUTPUT, "%s: %s", path, strerror(errno));
	bool owned = is.st_uid == wanted.st_uid && is.st_gid == wanted.st_gid;
	if (!owned && fchown(fd, wanted.st_uid, wanted.st_gid) != 0)
		return md_error_set(err, MD_ERR_OUTPUT, "%s: the new file cannot get the owner %u:%u: %s", path,
				    wanted.st_uid, wanted.st_gid, strerror(errno));
	if (fchmod(fd, wanted.st_mode & 0777) != 0)
		return md_error_set(err, MD_ERR_OUTPUT, "%s: %s", path, strerror(errno));
	return MD_OK;
}

int md_file_open_append(const char *path, bool regular)
{
	struct stat info;
	int fd = md_descriptor_open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (fd < 0 || !regular || (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)))
		return fd;
	close(fd);
	errno = EINVAL;
	return -1;
}

FILE *md_file_open_output(const char *path)
{
	return fopen(path, "we");
}
