/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that Medusa opens in the engine's process: high numbers, checked before use, writes without a signal. */
#include "base/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/child.h"
#include "base/cleanup.h"
#include "base/environment.h"
#include "base/thread.h"

/* ---- numbers ---- */

/* Lower ones serve when the limit is low. */
static const int floors[] = {960, 448, 192, 96, 48, 24, 3};

/* Duplicates fd to the first number that is free from a floor on, the highest floor that is possible; -1: none is. */
static int high_copy(int fd)
{
	int high = -1;
	for (size_t i = 0; i < sizeof(floors) / sizeof(floors[0]) && high < 0; i++)
		high = fcntl(fd, F_DUPFD_CLOEXEC, floors[i]);
	return high;
}

int md_descriptor_raise(int fd)
{
	int high = high_copy(fd);
	if (high < 0)
		return fd;
	close(fd);
	return high;
}

/*
 * Linux enlarges a process's table of descriptors when a number beyond it is first used, and then waits until all
 * processors have seen it, if the process has several threads: 20 to 30 ms were seen. So it is enlarged while there is
 * one thread: when the library is loaded, and in each child, which begins with a small table.
 */
static void make_room(void)
{
	int fd = eventfd(0, EFD_CLOEXEC);
	if (fd < 0)
		return;
	int high = high_copy(fd);
	if (high >= 0)
		close(high);
	close(fd);
}

static void make_room_in_child(void)
{
	int saved = errno;
	make_room();
	errno = saved;
}

__attribute__((constructor(MD_LOADED_FIRST))) static void make_room_at_start(void)
{
	static struct md_child_renewal own = {.renew = make_room_in_child};
	make_room();
	md_child_register(&own);
}

static bool is_another(int fd, const struct stat *file)
{
	struct stat now;
	return !fstat(fd, &now) && (now.st_dev != file->st_dev || now.st_ino != file->st_ino);
}

/*
 * open(2) returns the lowest free number, which Medusa has only until it is moved up. If the engine closes every
 * descriptor at that very time and opens a file of its own, the engine has that number from then on. So the number is
 * ours only while it stands for the file at the path; otherwise it is left alone, and the result is false. unsure: what
 * to assume where this cannot be determined.
 */
static bool move_up(const char *path, int *fd, bool unsure)
{
	struct stat file;
	int high = high_copy(*fd), saved = errno;
	if (high < 0 && saved == EBADF) { /* the engine closed it in between */
		*fd = -1;
		return unsure;
	}
	unsure |= stat(path, &file) != 0;
	if (!unsure && is_another(high < 0 ? *fd : high, &file)) {
		if (high >= 0)
			close(high);
		return false;
	}
	if (high < 0 && *fd > STDERR_FILENO) /* no room for two: the low number stays */
		return true;
	if (unsure || !is_another(*fd, &file))
		close(*fd);
	*fd = high;
	errno = saved;
	return true;
}

#define TRIES 4 /* the path may name another file in between; that does not happen so many times in a row */

/* O_NONBLOCK is for open(2) alone: on regular files it means nothing; on others a write would fail. */
int md_descriptor_open(const char *path, int flags, mode_t mode)
{
	int fd = -1;
	for (int i = 1; i <= TRIES; i++) {
		fd = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, mode);
		if (fd < 0 || move_up(path, &fd, i == TRIES))
			break;
		fd = -1;
		errno = EEXIST;
		if (flags & O_EXCL)
			break;
	}
	if (fd >= 0 && !(flags & O_NONBLOCK))
		fcntl(fd, F_SETFL, flags & ~(O_CREAT | O_EXCL | O_TRUNC | O_CLOEXEC));
	return fd;
}

FILE *md_descriptor_read_stream(const char *path)
{
	MD_AUTO_FD int fd = md_descriptor_open(path, O_RDONLY, 0);
	FILE *stream = fd < 0 ? NULL : fdopen(fd, "re");
	if (stream)
		md_steal_fd(&fd); /* the stream owns it now */
	return stream;
}

bool md_descriptor_scarce(unsigned *limit)
{
	struct rlimit now;
	if (getrlimit(RLIMIT_NOFILE, &now) || now.rlim_cur >= MD_DESCRIPTORS_LEAST)
		return false;
	*limit = (unsigned)now.rlim_cur;
	return true;
}

/* ---- identity ---- */

bool md_descriptor_keep(struct md_descriptor *kept, int fd)
{
	struct stat info;
	if (fd < 0 || fstat(fd, &info))
		return false;
	*kept = (struct md_descriptor){fd, info.st_dev, info.st_ino};
	return true;
}

bool md_descriptor_is_ours(const struct md_descriptor *kept)
{
	struct stat info;
	int saved = errno;
	bool ours =
	    kept->fd >= 0 && fstat(kept->fd, &info) == 0 && info.st_dev == kept->device && info.st_ino == kept->inode;
	errno = saved;
	return ours;
}

void md_descriptor_drop(struct md_descriptor *kept)
{
	if (md_descriptor_is_ours(kept))
		close(kept->fd);
	*kept = MD_DESCRIPTOR_NONE;
}

/* ---- writing ---- */

static int write_all(int fd, const char *bytes, size_t size)
{
	while (size > 0) {
		ssize_t wrote = write(fd, bytes, size);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote < 0)
			return errno;
		bytes += wrote;
		size -= (size_t)wrote;
	}
	return 0;
}

struct job {
	int fd, failure;
	const void *data;
	size_t size;
};

static void *write_job(void *argument)
{
	struct job *job = argument;
	job->failure = write_all(job->fd, job->data, job->size);
	return NULL;
}

/* Writes from a thread of its own: a signal that the write causes goes to that thread and ends with it. */
static int write_in_thread(int fd, const void *data, size_t size)
{
	struct job job = {.fd = fd, .data = data, .size = size};
	pthread_t thread;
	int failure = md_thread_start(&thread, write_job, &job);
	if (failure)
		return failure;
	pthread_join(thread, NULL);
	return job.failure;
}

int md_descriptor_write(int fd, const void *data, size_t size)
{
	sigset_t ours, held, before, pending;
	int failure;
	sigemptyset(&ours);
	sigaddset(&ours, SIGPIPE);
	sigaddset(&ours, SIGXFSZ);
	held = ours;
	sigaddset(&held, SIGTTOU); /* while SIGTTOU is blocked, the kernel does not even send it */
	pthread_sigmask(SIG_BLOCK, &held, &before);
	sigemptyset(&pending);
	sigpending(&pending);
	/* A signal that the write causes could not be told from one that is pending already. */
	if (sigismember(&pending, SIGPIPE) || sigismember(&pending, SIGXFSZ)) {
		failure = write_in_thread(fd, data, size);
	} else {
		failure = write_all(fd, data, size);
		if (failure == EPIPE || failure == EFBIG)
			sigtimedwait(&ours, NULL, &(struct timespec){0, 0});
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return failure;
}
