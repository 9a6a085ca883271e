/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linked into every test program: what its tests have made by mkdtemp and mkstemp is removed when it ends, also what a
 * test has left that failed or crashed. Criterion runs each test in a process of its own, so the names are in a file.
 */
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETTING "TEST_SCRATCH" /* PID:PATH, of the process that removes them, and of the file of their names */

char *__real_mkdtemp(char *pattern);
int __real_mkstemp(char *pattern);
char *__wrap_mkdtemp(char *pattern);
int __wrap_mkstemp(char *pattern);

/* NULL: nobody collects names. */
static const char *list_of(long *owner)
{
	const char *setting = getenv(SETTING);
	char *end = NULL;
	*owner = setting ? strtol(setting, &end, 10) : 0;
	return end && *end == ':' ? end + 1 : NULL;
}

static void note(const char *path)
{
	char line[PATH_MAX + 1];
	long owner;
	const char *list = list_of(&owner);
	int size = snprintf(line, sizeof(line), "%s\n", path);
	int fd = list && *path == '/' ? open(list, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	if (write(fd, line, (size_t)size) != size)
		perror(list);
	close(fd);
}

char *__wrap_mkdtemp(char *pattern)
{
	char *made = __real_mkdtemp(pattern);
	if (made)
		note(made);
	return made;
}

int __wrap_mkstemp(char *pattern)
{
	int fd = __real_mkstemp(pattern);
	if (fd >= 0)
		note(pattern);
	return fd;
}

static int drop(const char *path, const struct stat *info, int type, struct FTW *place)
{
	(void)info, (void)type, (void)place;
	return remove(path) && 0;
}

/* A test's program may start itself anew (build_folder.c), so the process counts, not the image in it. */
__attribute__((constructor)) static void begin_list(void)
{
	char list[] = "/tmp/test-scratch.XXXXXX", setting[64];
	int fd;
	if (getenv(SETTING) || (fd = __real_mkstemp(list)) < 0)
		return;
	close(fd);
	snprintf(setting, sizeof(setting), "%ld:%s", (long)getpid(), list);
	setenv(SETTING, setting, 1);
}

__attribute__((destructor)) static void drop_listed(void)
{
	char path[PATH_MAX + 1];
	long owner;
	const char *list = list_of(&owner);
	FILE *file = list && owner == (long)getpid() ? fopen(list, "r") : NULL;
	if (!file)
		return;
	while (fgets(path, sizeof(path), file)) {
		path[strcspn(path, "\n")] = '\0';
		nftw(path, drop, 16, FTW_DEPTH | FTW_PHYS);
	}
	fclose(file);
	unlink(list);
}
