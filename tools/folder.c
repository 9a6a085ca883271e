/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes folders of ours, even while other processes still create files in them. Uses only what a signal handler may
 * call.
 */
#include "tools/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TURNS 200 /* in ms: a process that looked the folder up before it was renamed has created its file by then */

struct entry { /* as the system writes it */
	uint64_t inode, offset;
	unsigned short size;
	unsigned char type;
	char name[];
};

static bool is_itself_or_above(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

/* levels: of folders in it that are emptied and removed, too */
static void empty(int at_fd, const char *path, int levels)
{
	_Alignas(struct entry) char entries[4096];
	int fd = openat(at_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	long size = 0;
	while (fd >= 0 && (size = syscall(SYS_getdents64, fd, entries, sizeof(entries))) > 0)
		for (long at = 0; at < size;) {
			const struct entry *entry = (const struct entry *)(entries + at);
			at += entry->size;
			if (is_itself_or_above(entry->name) || !unlinkat(fd, entry->name, 0) || !levels)
				continue;
			empty(fd, entry->name, levels - 1);
			unlinkat(fd, entry->name, AT_REMOVEDIR);
		}
	if (fd >= 0)
		close(fd);
}

static bool remove_named(const char *path)
{
	for (int turn = 0; turn < TURNS; turn++) {
		empty(AT_FDCWD, path, 1);
		if (!rmdir(path) || errno == ENOENT)
			return true;
		if (errno != ENOTEMPTY && errno != EEXIST)
			return false;
		if (turn)
			poll(NULL, 0, 1);
	}
	return false;
}

bool md_folder_remove(const char *path)
{
	char gone[PATH_MAX + sizeof(MD_FOLDER_GONE)];
	size_t length = strlen(path);
	if (length >= PATH_MAX)
		return false;
	memcpy(gone, path, length);
	memcpy(gone + length, MD_FOLDER_GONE, sizeof(MD_FOLDER_GONE));
	/* an empty one would be replaced by the rename, another one would prevent it */
	bool removed = remove_named(gone);
	if (rename(path, gone))
		return errno == ENOENT ? removed : remove_named(path) && removed;
	return remove_named(gone);
}
