/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/cgroup_folder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"

/* Down to folders that processes have made in theirs, until these are left alone: they hold up the caller. */
#define STEPS_MAX 100000u
#define VANISHED_MAX 100u /* folders that were not there any more, one after the other */

int md_cgroup_folder_open(const char *path)
{
	struct statfs is;
	MD_AUTO_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstatfs(fd, &is))
		return -1;
	if (is.f_type == CGROUP2_SUPER_MAGIC)
		return md_steal_fd(&fd);
	errno = EMEDIUMTYPE;
	return -1;
}

static bool write_file(int folder, const char *name, const char *text)
{
	MD_AUTO_FD int fd = openat(folder, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

/* What the file holds, as far as there is room. False: it cannot be read. */
static bool read_file(int folder, const char *name, char *text, size_t size)
{
	MD_AUTO_FD int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t got = fd >= 0 ? read(fd, text, size - 1) : -1;
	text[got > 0 ? got : 0] = '\0';
	return got >= 0;
}

bool md_cgroup_folder_kill(int folder)
{
	return write_file(folder, "cgroup.kill", "1");
}

bool md_cgroup_folder_is_populated(int folder)
{
	char text[256];
	const char *line = read_file(folder, "cgroup.events", text, sizeof(text)) ? strstr(text, "populated ") : NULL;
	return line && line[strlen("populated ")] == '1';
}

/* Moving a process that runs already would stop all cgroups of the machine for a moment. */
pid_t md_cgroup_folder_fork(int folder)
{
	struct clone_args how = {
	    .flags = CLONE_VFORK | CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)folder};
	return (pid_t)syscall(SYS_clone3, &how, sizeof(how));
}

/*
 * In one instruction, behind which nothing is taken from the stack: the child goes on with the parent's, and overwrites what a function
 * of the C library would have on it for its return.
 */
static inline __attribute__((always_inline)) long clone_in_place(const struct clone_args *how)
{
#if defined(__x86_64__) && !defined(MD_SANITIZED)
	long made;
	__asm__ volatile("syscall"
			 : "=a"(made)
			 : "a"(SYS_clone3), "D"(how), "S"(sizeof(*how))
			 : "rcx", "r11", "memory");
	return made;
#elif defined(__aarch64__) && !defined(MD_SANITIZED)
	register long made __asm__("x0") = (long)how;
	register long size __asm__("x1") = sizeof(*how);
	register long number __asm__("x8") = SYS_clone3;
	__asm__ volatile("svc 0" : "+r"(made) : "r"(size), "r"(number) : "memory");
	return made;
#else
	(void)how;
	return -ENOSYS;
#endif
}

__attribute__((noinline)) pid_t md_cgroup_folder_spawn(int folder, void (*run)(void *context), void *context)
{
	const struct clone_args how = {
	    .flags = CLONE_VM | CLONE_VFORK | CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)folder};
	long made = clone_in_place(&how);
	if (!made)
		run(context);
	if (made == -ENOSYS) { /* this processor, or a sanitizer */
		pid_t forked = md_cgroup_folder_fork(folder);
		if (!forked)
			run(context);
		return forked;
	}
	if (made < 0)
		errno = (int)-made;
	return made < 0 ? -1 : (pid_t)made;
}

bool md_cgroup_folder_take(int folder, pid_t pid)
{
	char text[24];
	snprintf(text, sizeof(text), "%d", (int)pid);
	return write_file(folder, "cgroup.procs", text);
}

bool md_cgroup_folder_memory(int folder, uint64_t *bytes)
{
	char text[64], *end;
	if (!read_file(folder, "memory.current", text, sizeof(text)) || !isdigit((unsigned char)*text))
		return false;
	errno = 0;
	uint64_t value = strtoull(text, &end, 10);
	if (errno || strcmp(end, "\n") != 0)
		return false;
	*bytes = value;
	return true;
}

bool md_cgroup_folder_count_memory(int folder)
{
	return write_file(folder, "cgroup.subtree_control", "+memory");
}

/* ---- removing ---- */

/* A folder in that one. False: there is none. */
static bool find_folder(int fd, char name[NAME_MAX + 1])
{
	struct dirent *entry;
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = copy >= 0 ? fdopendir(copy) : NULL;
	if (!folder && copy >= 0)
		close(copy);
	if (!folder)
		return false;
	do
		entry = readdir(folder);
	while (entry && (entry->d_type != DT_DIR || !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")));
	if (entry)
		snprintf(name, NAME_MAX + 1, "%s", entry->d_name);
	closedir(folder);
	return entry;
}

/* Goes down into that folder, which has become the parent, to one in it. False: there is none, or it is gone. */
static bool go_down(int *parent, const char *path, char name[NAME_MAX + 1])
{
	int fd = openat(*parent >= 0 ? *parent : AT_FDCWD, *parent >= 0 ? name : path,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (*parent >= 0)
		close(*parent);
	*parent = fd;
	return fd >= 0 && find_folder(fd, name);
}

/*
 * In one that was busy there is neither a process nor a folder any more: the keeper, which removes it too, was faster. 0: look again; -1 and
 * errno: it is busy for another reason.
 */
static int look_again(int fd, unsigned *vanished)
{
	if (fd < 0 && errno != ENOENT)
		return -1;
	if ((fd < 0 || !md_cgroup_folder_is_populated(fd)) && --*vanished)
		return 0;
	errno = EBUSY;
	return -1;
}

/*
 * Removes the first one on the way down that has none in it. Two descriptors are enough for any depth. 1: that was the folder itself; 0: it was
 * another one, or somebody else removed one; -1 and errno: it cannot be removed.
 */
static int remove_lowest(const char *path, unsigned *steps, unsigned *vanished)
{
	MD_AUTO_FD int parent = -1;
	char name[NAME_MAX + 1] = "";
	while (unlinkat(parent >= 0 ? parent : AT_FDCWD, parent >= 0 ? name : path, AT_REMOVEDIR)) {
		if (errno == ENOENT)
			break;
		if (errno != EBUSY)
			return -1;
		if (!--*steps) {
			errno = ENOTEMPTY;
			return -1;
		}
		if (!go_down(&parent, path, name))
			return look_again(parent, vanished);
	}
	*vanished = VANISHED_MAX;
	return parent < 0;
}

/* The files in a cgroup vanish with it. */
bool md_cgroup_folder_remove(const char *path)
{
	unsigned steps = STEPS_MAX, vanished = VANISHED_MAX;
	int removed;
	while (!(removed = remove_lowest(path, &steps, &vanished)))
		;
	return removed > 0;
}
