/* SPDX-License-Identifier: Apache-2.0 */
/* The file that a trace is written to, PATH.part until it is complete: locked by its process, checked before writes. */
#include "format/trace/part_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

/* A pipe would block the writer. */
static bool is_regular(struct md_descriptor *file)
{
	struct stat info;
	if (fstat(file->fd, &info) == 0 && S_ISREG(info.st_mode))
		return true;
	md_descriptor_drop(file);
	errno = EINVAL;
	return false;
}

bool md_trace_part_restrict(int fd)
{
	struct stat info;
	if (fstat(fd, &info))
		return false;
	bool foreign = info.st_uid != geteuid(), made = !info.st_uid && (info.st_mode & 0777) == 0666;
	return foreign || made || !(info.st_mode & 0077) || fchmod(fd, 0600) == 0;
}

static bool restricted(struct md_descriptor *file)
{
	if (md_trace_part_restrict(file->fd))
		return true;
	int failure = errno;
	md_descriptor_drop(file);
	errno = failure;
	return false;
}

enum md_status md_trace_part_open(const char *path, int flags, struct md_trace_part *out, struct md_error *err)
{
	struct md_trace_part part = MD_TRACE_PART_NONE;
	if (asprintf(&part.path, "%s.part", path) < 0)
		return md_error_set(err, MD_ERR_NO_MEMORY, "%s: out of memory for its path", path);
	if (md_descriptor_keep(&part.file, md_descriptor_open(part.path, flags | O_NOFOLLOW, 0600)) &&
	    is_regular(&part.file) && restricted(&part.file)) {
		*out = part;
		return MD_OK;
	}
	enum md_status status = md_error_set(err, MD_ERR_OUTPUT, "%s: %s", part.path,
					     errno == EINVAL ? "not a regular file" : strerror(errno));
	free(part.path);
	return status;
}

/* ---- locks ---- */

static pid_t holder_of(int fd)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	return fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? lock.l_pid : -1;
}

/*
 * fcntl locks, not flock(2): after a fork, parent and child share a descriptor, and with flock each would believe that
 * the lock is its own.
 */
bool md_trace_part_lock(const struct md_trace_part *part, pid_t *holder)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	if (fcntl(part->file.fd, F_SETLK, &lock) == 0 || (errno != EACCES && errno != EAGAIN))
		return true;
	pid_t pid = holder_of(part->file.fd);
	*holder = pid > 0 ? pid : 0;
	return false;
}

bool md_trace_part_is_held(const char *path, pid_t *holder)
{
	MD_AUTO_FD int fd = md_descriptor_open(path, O_RDONLY, 0);
	pid_t pid = fd >= 0 ? holder_of(fd) : -1;
	*holder = pid > 0 ? pid : 0;
	return pid >= 0;
}

/* ---- while it is written ---- */

/* Opens the file again, if it is still the same file and nobody else has locked it. */
static bool open_again(const struct md_trace_part *part, struct md_descriptor *file)
{
	pid_t holder;
	if (!md_descriptor_keep(file, md_descriptor_open(part->path, O_WRONLY | O_NOFOLLOW, 0)))
		return false;
	struct md_trace_part again = {*file, part->path};
	if (file->device == part->file.device && file->inode == part->file.inode &&
	    md_trace_part_lock(&again, &holder) && lseek(file->fd, 0, SEEK_END) >= 0)
		return true;
	md_descriptor_drop(file);
	errno = ESTALE;
	return false;
}

enum md_status md_trace_part_check(struct md_trace_part *part, struct md_error *err)
{
	struct md_descriptor again = MD_DESCRIPTOR_NONE;
	if (md_descriptor_is_ours(&part->file))
		return MD_OK;
	if (!open_again(part, &again))
		return md_error_set(err, MD_ERR_OUTPUT,
				    "%s: the program closed its descriptor (%d), and it cannot be opened again: %s",
				    part->path, part->file.fd, strerror(errno));
	part->file = again;
	return MD_OK;
}

void md_trace_part_close(struct md_trace_part *part)
{
	md_descriptor_drop(&part->file);
	free(part->path);
	*part = MD_TRACE_PART_NONE;
}
