/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the file behind a pool, and writes and reads its blocks. */
#define MD_LOG_DOMAIN "swap"

#include "swap/spill_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "swap/pool.h"

struct md_swap_spill_calls md_swap_spill_calls = {
    .write = pwrite, .read = pread, .allocate = fallocate, .sync = fdatasync};

/* ---- blocks ---- */

/* Without room from the disk beforehand, writing finds out whether it has any. */
static int allocate(int fd, off_t at)
{
	while (md_swap_spill_calls.allocate(fd, 0, at, (off_t)MD_SWAP_BLOCK)) {
		if (errno == EOPNOTSUPP || errno == ENOSYS)
			return 0;
		if (errno != EINTR)
			return errno;
	}
	return 0;
}

static int move_bytes(int fd, off_t at, uint8_t *data, bool write)
{
	for (size_t done = 0; done < MD_SWAP_BLOCK;) {
		size_t left = MD_SWAP_BLOCK - done;
		ssize_t moved = write ? md_swap_spill_calls.write(fd, data + done, left, at + (off_t)done)
				      : md_swap_spill_calls.read(fd, data + done, left, at + (off_t)done);
		if (moved < 0 && errno == EINTR)
			continue;
		if (moved <= 0)
			return moved ? errno : EIO; /* the file has become shorter, or takes nothing */
		done += (size_t)moved;
	}
	return 0;
}

/* The page cache would keep a failure of the disk to itself. */
static int write_at(int fd, bool direct, off_t at, const void *data)
{
	int failure = allocate(fd, at);
	if (!failure)
		failure = move_bytes(fd, at, (uint8_t *)data, true);
	if (!failure && !direct && md_swap_spill_calls.sync(fd))
		failure = errno;
	return failure;
}

int md_swap_spill_write(const struct md_swap_spill_file *file, uint32_t block, const void *data)
{
	if (!md_descriptor_is_ours(&file->kept))
		return EBADF;
	return write_at(file->kept.fd, file->direct, (off_t)(block * MD_SWAP_BLOCK), data);
}

int md_swap_spill_read(const struct md_swap_spill_file *file, uint32_t block, void *data)
{
	if (!md_descriptor_is_ours(&file->kept))
		return EBADF;
	return move_bytes(file->kept.fd, (off_t)(block * MD_SWAP_BLOCK), data, false);
}

enum md_status md_swap_spill_explain(const struct md_swap_spill_file *file, uint32_t block, bool write, int failure,
				     struct md_error *err)
{
	return md_error_set(err, write ? MD_ERR_NO_MEMORY : MD_ERR_CORRUPT,
			    "the spill file in %s: %s 2 MiB at offset %" PRIu64 ": %s", file->path,
			    write ? "writing" : "reading", block * (uint64_t)MD_SWAP_BLOCK,
			    failure == EBADF ? "the engine has closed its descriptor" : strerror(failure));
}

void md_swap_spill_punch(const struct md_swap_spill_file *file)
{
	if (md_descriptor_is_ours(&file->kept))
		fallocate(file->kept.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			  (off_t)(file->blocks * MD_SWAP_BLOCK));
}

void md_swap_spill_close(struct md_swap_spill_file *file)
{
	if (file->kept.fd >= 0)
		md_descriptor_drop(&file->kept);
	*file = MD_SWAP_NO_SPILL;
}

/* ---- making ---- */

/* Where the file system knows no files without names, the name is there for a moment. */
static int open_named(const char *folder, int flags)
{
	char path[PATH_MAX];
	if (snprintf(path, sizeof(path), "%s/.medusa-spill-%d-XXXXXX", folder, (int)getpid()) >= (int)sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	int fd = mkostemp(path, flags);
	if (fd >= 0)
		unlink(path);
	return fd;
}

static int open_in(const char *folder, int flags)
{
	int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT))
		fd = open_named(folder, O_CLOEXEC | flags);
	return fd;
}

static enum md_status cannot(const char *folder, const char *what, int failure, struct md_error *err)
{
	return md_error_set(err, MD_ERR_OUTPUT, "the spill file in %s: %s: %s", folder, what, strerror(failure));
}

static enum md_status open_file(const char *folder, struct md_swap_spill_file *file, int *fd, struct md_error *err)
{
	struct stat info;
	if (stat(folder, &info) || !S_ISDIR(info.st_mode))
		return cannot(folder, "no such folder", errno ? errno : ENOTDIR, err);
	*fd = open_in(folder, O_DIRECT);
	file->direct = *fd >= 0;
	if (*fd < 0 && errno == EINVAL)
		*fd = open_in(folder, 0);
	return *fd < 0 ? cannot(folder, "making it", errno, err) : MD_OK;
}

/* The offset of a block, and its place in memory, are multiples of 2 MiB, which each file system takes. */
static int try_block(int fd, bool direct, uint8_t *data)
{
	data[0] = 1;
	int failure = write_at(fd, direct, 0, data);
	data[0] = 0;
	if (!failure)
		failure = move_bytes(fd, 0, data, false);
	return !failure && data[0] != 1 ? EIO : failure;
}

static enum md_status try_out(const char *folder, struct md_swap_spill_file *file, int fd, struct md_error *err)
{
	uint8_t *data = mmap(NULL, MD_SWAP_BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a trial of the spill file in %s", folder);
	int failure = try_block(fd, file->direct, data);
	if (failure == EINVAL && file->direct) {
		file->direct = false;
		failure = fcntl(fd, F_SETFL, 0) ? errno : try_block(fd, false, data);
	}
	munmap(data, MD_SWAP_BLOCK);
	return failure ? cannot(folder, "writing and reading 2 MiB for a trial", failure, err) : MD_OK;
}

static enum md_status size_of(const char *folder, uint64_t bytes, int fd, uint32_t *blocks, struct md_error *err)
{
	struct statvfs disk;
	struct rlimit limit;
	if (fstatvfs(fd, &disk))
		return cannot(folder, "asking how much is free", errno, err);
	uint64_t free_bytes = disk.f_bavail * (uint64_t)disk.f_frsize, wanted = bytes ? bytes : free_bytes / 2;
	uint64_t count = wanted / MD_SWAP_BLOCK + (wanted < MD_SWAP_BLOCK);
	if (count > MD_SWAP_SPILL_BLOCKS && bytes)
		return md_error_set(err, MD_ERR_TOO_LARGE,
				    "the spill file in %s: %" PRIu64 " bytes: it may have %" PRIu64 " at most", folder,
				    bytes, MD_SWAP_SPILL_BLOCKS * (uint64_t)MD_SWAP_BLOCK);
	*blocks = count < MD_SWAP_SPILL_BLOCKS ? (uint32_t)count : MD_SWAP_SPILL_BLOCKS;
	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < *blocks * (uint64_t)MD_SWAP_BLOCK)
		return cannot(folder, "its size is above the limit of this process (ulimit -f)", EFBIG, err);
	if (bytes > free_bytes)
		md_warn("the spill file in %s may have %" PRIu64 " bytes, and the file system has %" PRIu64
			" free: engines will be refused when it is full",
			folder, bytes, free_bytes);
	return MD_OK;
}

enum md_status md_swap_spill_create(const char *folder, uint64_t bytes, struct md_swap_spill_file *file,
				    struct md_error *err)
{
	struct md_swap_spill_file made = MD_SWAP_NO_SPILL;
	MD_AUTO_FD int fd = -1;
	errno = 0;
	snprintf(made.path, sizeof(made.path), "%s", folder);
	MD_FORWARD(open_file(folder, &made, &fd, err));
	MD_FORWARD(size_of(folder, bytes, fd, &made.blocks, err));
	if (ftruncate(fd, (off_t)(made.blocks * MD_SWAP_BLOCK)))
		return cannot(folder, "setting its size", errno, err);
	MD_FORWARD(try_out(folder, &made, fd, err));
	if (!made.direct)
		md_warn("the spill file in %s: the file system refuses O_DIRECT, so blocks go through the page cache",
			folder);
	if (!md_descriptor_keep(&made.kept, fd))
		return cannot(folder, "looking at it", errno, err);
	fd = -1;
	*file = made;
	return MD_OK;
}
