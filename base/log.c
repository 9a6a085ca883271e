/* SPDX-License-Identifier: Apache-2.0 */
/* Logging: one line is one write, so that lines of several threads and processes do not mix. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_once_t log_once = PTHREAD_ONCE_INIT;
static enum md_log_level log_level = MD_LOG_WARN;
static int log_fd = STDERR_FILENO;

static void write_line(int fd, const char *line, size_t size)
{
	while (size) {
		ssize_t wrote = write(fd, line, size);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0)
			return;
		line += wrote;
		size -= (size_t)wrote;
	}
}

static void read_environment(void)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};
	const char *level = getenv("MEDUSA_LOG");
	const char *path = getenv("MEDUSA_LOG_FILE");

	for (size_t i = 0; level && i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(level, names[i]))
			log_level = (enum md_log_level)i;
	if (path && *path) {
		int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
		if (fd >= 0)
			log_fd = fd;
	}
}

int md_log_enabled(enum md_log_level level)
{
	pthread_once(&log_once, read_environment);
	return level <= log_level;
}

void md_log(enum md_log_level level, const char *domain, const char *format, ...)
{
	char line[1024];
	int saved = errno; /* logging must not change what the caller is about to report */
	size_t size;
	va_list args;

	if (!md_log_enabled(level))
		return;
	snprintf(line, sizeof(line) - 1, "medusa %s: ", domain);
	size = strlen(line);
	va_start(args, format);
	errno = saved;
	vsnprintf(line + size, sizeof(line) - 1 - size, format, args);
	va_end(args);
	size = strlen(line);
	line[size++] = '\n';
	write_line(log_fd, line, size);
	errno = saved;
}
