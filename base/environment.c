/* SPDX-License-Identifier: Apache-2.0 */
/* Settings from the environment, as it was when the process started: an engine may clear it or go to another folder. */
#include "base/environment.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#define PREFIX "MEDUSA_"

static char *remembered; /* "NAME=value" after "NAME=value", each with its NUL, then an empty one; NULL: nothing */
static char started_in[PATH_MAX];
static pid_t loaded_by;

static size_t copy_settings(char *out)
{
	size_t size = 0;
	for (char **at = environ; at && *at; at++) {
		size_t length = strlen(*at) + 1;
		if (strncmp(*at, PREFIX, sizeof(PREFIX) - 1))
			continue;
		if (out)
			memcpy(out + size, *at, length);
		size += length;
	}
	return size;
}

/* Without the allocator: an engine may have its own, which is not ready yet. */
__attribute__((constructor(MD_LOADED_FIRST))) static void remember(void)
{
	size_t size = getauxval(AT_SECURE) ? 0 : copy_settings(NULL);
	loaded_by = getpid();
	void *room =
	    size ? mmap(NULL, size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
	if (!getcwd(started_in, sizeof(started_in)) || *started_in != '/')
		*started_in = 0;
	if (room == MAP_FAILED)
		return;
	copy_settings(room);
	remembered = room;
}

bool md_environment_is_fork(void)
{
	const char *template = secure_getenv("MEDUSA_TEMPLATE");
	return template && strtol(template, NULL, 10) == loaded_by && getpid() != loaded_by;
}

static const char *recall(const char *name)
{
	size_t length = strlen(name);
	if (md_environment_is_fork())
		return NULL;
	for (const char *at = remembered; at && *at; at += strlen(at) + 1)
		if (!strncmp(at, name, length) && at[length] == '=')
			return at + length + 1;
	return NULL;
}

const char *md_environment_get(const char *name)
{
	const char *now = secure_getenv(name);
	return now ? now : recall(name);
}

bool md_environment_path(const char *name, char *out, size_t room)
{
	const char *value = md_environment_get(name);
	bool relative = value && *value != '/' && *started_in && !md_environment_is_fork();
	int size = 0;
	*out = 0;
	if (value && *value)
		size = snprintf(out, room, "%s%s%s", relative ? started_in : "", relative ? "/" : "", value);
	if (size > 0 && (size_t)size < room)
		return true;
	*out = 0;
	return false;
}
