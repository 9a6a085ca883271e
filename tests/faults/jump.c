/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into a process under test: its clock of the day is ahead by as many seconds as the file JUMP says (behind, with a minus), from
 * the moment on in which it says so. Other clocks are what they are. JUMP_PROGRAM: only in the program of that name.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "base/export.h"

static long ahead(void)
{
	long seconds = 0;
	const char *path = getenv("JUMP"), *program = getenv("JUMP_PROGRAM");
	FILE *file = path && (!program || !strcmp(program, program_invocation_short_name)) ? fopen(path, "re") : NULL;
	if (file && fscanf(file, "%ld", &seconds) != 1)
		seconds = 0;
	if (file)
		fclose(file);
	return seconds;
}

MD_EXPORT int clock_gettime(clockid_t clock, struct timespec *now)
{
	static int (*real)(clockid_t, struct timespec *);
	if (!real)
		real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	int result = real(clock, now);
	if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += ahead();
	return result;
}

MD_EXPORT time_t time(time_t *out)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (out)
		*out = now.tv_sec;
	return now.tv_sec;
}

MD_EXPORT int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec day;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &day);
	*now = (struct timeval){.tv_sec = day.tv_sec, .tv_usec = day.tv_nsec / 1000};
	return 0;
}
