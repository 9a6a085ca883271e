/* SPDX-License-Identifier: Apache-2.0 */
/* Which process of a program writes the trace: the first that uses the device. The others step aside with a warning. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/capture.h"

/*
 * The owner holds a lock on the file that it writes, which the writer renames at the end, until it exits: a process
 * that was started with the same MEDUSA_TRACE meets it under either name. Nothing is left behind by one that dies.
 */
static int owned = -1;
static bool in_child; /* of a fork that came after the recording had begun */

static bool is_regular(int fd, struct stat *info)
{
	return fstat(fd, info) == 0 && S_ISREG(info->st_mode);
}

static bool held_by_another(const char *path)
{
	MD_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat info;

	return fd >= 0 && is_regular(fd, &info) && flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
}

enum take { TAKEN, TAKEN_BY_ANOTHER, RENAMED, NOT_LOCKABLE };

static enum take take(const char *part)
{
	MD_AUTO_FD int fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	struct stat mine, there;

	if (fd < 0 || !is_regular(fd, &mine))
		return NOT_LOCKABLE; /* the writer will say why, or it is a device */
	if (flock(fd, LOCK_EX | LOCK_NB))
		return errno == EWOULDBLOCK ? TAKEN_BY_ANOTHER : NOT_LOCKABLE;
	if (stat(part, &there) || there.st_ino != mine.st_ino || there.st_dev != mine.st_dev)
		return RENAMED; /* between opening and locking, by an owner that has ended */
	owned = fd;
	fd = -1;
	return TAKEN;
}

bool md_capture_own(const char *path)
{
	char part[4200], pid[24];
	enum take result = RENAMED;

	snprintf(part, sizeof(part), "%s.part", path);
	for (int i = 0; i < 3 && result == RENAMED; i++)
		result = held_by_another(path) ? TAKEN_BY_ANOTHER : take(part);
	if (result == TAKEN_BY_ANOTHER) {
		md_warn("another process records to %s; nothing is recorded in this one", path);
		return false;
	}
	/* Programs that this one starts must not write the same trace. */
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("MEDUSA_TRACE_OWNER", pid, 1);
	unsetenv("MEDUSA_TRACE");
	return true;
}

void md_capture_not_asked_warn(void)
{
	const char *owner = getenv("MEDUSA_TRACE_OWNER");

	if (owner && *owner)
		md_warn("process %s, which started this one, records; nothing is recorded here", owner);
	else
		md_warn("MEDUSA_TRACE is not set; nothing is recorded");
}

void md_capture_disown(void)
{
	if (owned >= 0)
		close(owned);
	owned = -1;
	in_child = true;
}

void md_capture_disowned_warn(void)
{
	static atomic_bool said;

	if (in_child && !atomic_exchange(&said, true))
		md_warn("process %d records; nothing is recorded in a child that it forked since", (int)getppid());
}
