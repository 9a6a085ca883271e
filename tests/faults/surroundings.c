/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a process under test: its clock jumps and its disk is full when another process says so in a file. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/export.h"

/*
 * SURROUNDINGS=FILE             16 bytes, which anybody may change at any time: struct surroundings
 * SURROUNDINGS_PROGRAM=NAME     only in the program of that name, not in what it starts
 */
struct surroundings {
	_Atomic int64_t ahead_s; /* what the clock of the day says beyond the truth; CLOCK_MONOTONIC is not changed */
	_Atomic uint64_t full;   /* not 0: no regular file of this process gets a byte (ENOSPC) */
};

static struct surroundings calm, *around = &calm;

__attribute__((constructor)) static void read_settings(void)
{
	char program[4096];
	const char *path = getenv("SURROUNDINGS"), *only = getenv("SURROUNDINGS_PROGRAM");
	ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 1);
	program[size > 0 ? size : 0] = '\0';
	const char *slash = strrchr(program, '/');
	if (!path || !slash || (only && strcmp(slash + 1, only) != 0))
		return;
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *got = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*around), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (got == MAP_FAILED)
		_exit(9);
	close(fd);
	around = got;
}

/* The next definition of this name. */
#define REAL(type, name, ...)                                                                                          \
	static type (*real)(__VA_ARGS__);                                                                              \
	if (!real)                                                                                                     \
		real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name);

/* ---- the clock ---- */

MD_EXPORT int clock_gettime(clockid_t clock, struct timespec *now)
{
	REAL(int, "clock_gettime", clockid_t, struct timespec *)
	int result = real(clock, now);
	if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += atomic_load(&around->ahead_s);
	return result;
}

MD_EXPORT time_t time(time_t *out)
{
	REAL(time_t, "time", time_t *)
	time_t now = real(NULL) + atomic_load(&around->ahead_s);
	if (out)
		*out = now;
	return now;
}

MD_EXPORT int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	REAL(int, "gettimeofday", struct timeval *restrict, void *restrict)
	int result = real(now, zone);
	if (!result)
		now->tv_sec += atomic_load(&around->ahead_s);
	return result;
}

/* ---- the disk ---- */

static int is_full(int fd)
{
	struct stat is;
	return atomic_load(&around->full) && !fstat(fd, &is) && S_ISREG(is.st_mode);
}

#define FAIL_FULL(fd)                                                                                                  \
	if (is_full(fd)) {                                                                                             \
		errno = ENOSPC;                                                                                        \
		return -1;                                                                                             \
	}

MD_EXPORT ssize_t write(int fd, const void *bytes, size_t size)
{
	REAL(ssize_t, "write", int, const void *, size_t)
	FAIL_FULL(fd)
	return real(fd, bytes, size);
}

MD_EXPORT ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at)
{
	REAL(ssize_t, "pwrite", int, const void *, size_t, off_t)
	FAIL_FULL(fd)
	return real(fd, bytes, size, at);
}

MD_EXPORT ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at)
{
	REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t)
	FAIL_FULL(fd)
	return real(fd, bytes, size, at);
}

MD_EXPORT ssize_t writev(int fd, const struct iovec *parts, int count)
{
	REAL(ssize_t, "writev", int, const struct iovec *, int)
	FAIL_FULL(fd)
	return real(fd, parts, count);
}

static int grows_full(int fd, int64_t size)
{
	struct stat is;
	return is_full(fd) && !fstat(fd, &is) && size > is.st_size;
}

#define FAIL_GROWTH(fd, size)                                                                                          \
	if (grows_full(fd, size)) {                                                                                    \
		errno = ENOSPC;                                                                                        \
		return -1;                                                                                             \
	}

MD_EXPORT int ftruncate(int fd, off_t size)
{
	REAL(int, "ftruncate", int, off_t)
	FAIL_GROWTH(fd, size)
	return real(fd, size);
}

MD_EXPORT int ftruncate64(int fd, off64_t size)
{
	REAL(int, "ftruncate64", int, off64_t)
	FAIL_GROWTH(fd, size)
	return real(fd, size);
}
