/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into a process under test: a thread that begins a text in memory (open_memstream), or prints JSON (jansson), other than the
 * first thread, makes the file HOLD.held and waits as long as the file HOLD is there; one that sorts at least SORTED_MANY things does so with
 * HOLD_SORT. Names that are not set, or files that are not there, hold nobody.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/export.h"

static void hold(const char *file)
{
	char held[4096];
	snprintf(held, sizeof(held), "%s.held", file);
	int fd = open(held, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
	while (!access(file, F_OK))
		usleep(2000);
}

#define SORTED_MANY 5000

static void hold_other_threads(const char *name)
{
	const char *file = getenv(name);
	if (file && syscall(SYS_gettid) != getpid() && !access(file, F_OK))
		hold(file);
}

MD_EXPORT FILE *open_memstream(char **bytes, size_t *size)
{
	FILE *(*next)(char **, size_t *) = (FILE * (*)(char **, size_t *)) dlsym(RTLD_NEXT, "open_memstream");
	hold_other_threads("HOLD");
	return next(bytes, size);
}

typedef int put(const char *bytes, size_t size, void *context);
int json_dump_callback(const void *value, put *callback, void *context, size_t flags);

MD_EXPORT int json_dump_callback(const void *value, put *callback, void *context, size_t flags)
{
	int (*next)(const void *, put *, void *, size_t) =
	    (int (*)(const void *, put *, void *, size_t))dlsym(RTLD_NEXT, "json_dump_callback");
	hold_other_threads("HOLD");
	return next(value, callback, context, flags);
}

MD_EXPORT void qsort(void *items, size_t count, size_t size, int (*compare)(const void *, const void *))
{
	void (*next)(void *, size_t, size_t, int (*)(const void *, const void *)) =
	    (void (*)(void *, size_t, size_t, int (*)(const void *, const void *)))dlsym(RTLD_NEXT, "qsort");
	if (count >= SORTED_MANY)
		hold_other_threads("HOLD_SORT");
	next(items, count, size, compare);
}
