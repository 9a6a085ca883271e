/* SPDX-License-Identifier: Apache-2.0 */
/* Logging: one line is one write, so that lines of several threads and processes do not mix. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/child.h"
#include "base/descriptor.h"
#include "base/environment.h"
#include "base/plain.h"

#define LINE_BYTES 1024 /* a pipe with any room takes a line of this size whole */
#define WAIT_MS 100     /* how long the engine waits for a reader that is behind, once */

static pthread_once_t log_once = PTHREAD_ONCE_INIT, fork_once = PTHREAD_ONCE_INIT;
static enum md_log_level log_level = MD_LOG_WARN;
static _Atomic(const char *) unknown; /* what MEDUSA_LOG is, if it is no level, until that has been said */
static pthread_mutex_t file_lock = PTHREAD_MUTEX_INITIALIZER;
static struct md_descriptor file = {.fd = -1};
static struct md_descriptor standard_error = {.fd = -1}; /* the file that it was when we were loaded */
static atomic_uint lost;                                 /* lines that could not be written since the last one */

static void renew(void)
{
	pthread_mutex_init(&file_lock, NULL); /* the lock may have been held by a thread that the child does not have */
}

/* The engine may close standard error later; a file that it opens next gets number 2. */
__attribute__((constructor(MD_LOADED_FIRST))) static void see_standard_error(void)
{
	md_descriptor_keep(&standard_error, STDERR_FILENO);
	static struct md_child_renewal own = {.renew = renew};
	md_child_register(&own);
}

static void read_environment(void)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};
	const char *level = md_environment_get("MEDUSA_LOG");
	unknown = level && *level ? level : NULL;
	for (size_t i = 0; level && i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcasecmp(level, names[i]) != 0)
			continue;
		log_level = (enum md_log_level)i;
		unknown = NULL;
	}
}

static void say_unknown(const char *level)
{
	md_log(MD_LOG_ERROR, "log", "MEDUSA_LOG=%.60s: one of error, warn, info, debug is wanted; warn is used", level);
}

int md_log_enabled(enum md_log_level level)
{
	pthread_once(&log_once, read_environment);
	/* read first: this is called on hot paths, by many threads at once */
	const char *other = atomic_load(&unknown) ? atomic_exchange(&unknown, NULL) : NULL;
	if (other)
		say_unknown(other);
	return level <= log_level;
}

/* ---- where a line goes ---- */

/* The file that MEDUSA_LOG_FILE names: opened for the first line, and again if the engine has closed it. -1: none. */
static int file_descriptor(void)
{
	char path[PATH_MAX];
	md_child_check();
	pthread_mutex_lock(&file_lock);
	if (!md_descriptor_is_ours(&file) && md_environment_path("MEDUSA_LOG_FILE", path, sizeof(path)))
		md_descriptor_keep(&file, md_descriptor_open(path, O_WRONLY | O_CREAT | O_APPEND, 0600));
	int fd = md_descriptor_is_ours(&file) ? file.fd : -1;
	pthread_mutex_unlock(&file_lock);
	return fd;
}

static void see_own_standard_error(void)
{
	md_descriptor_keep(&standard_error, STDERR_FILENO);
}

/*
 * Descriptor 2, as long as it is standard error: the file that it was when this library was loaded, or the file that
 * standard output is now, if the process had a standard error and has redirected its output since. Anything else may be
 * a file or a connection of the engine that happened to get number 2.
 */
static int standard_error_descriptor(void)
{
	struct stat now, output;
	if (md_environment_is_fork())
		pthread_once(&fork_once, see_own_standard_error);
	if (md_descriptor_is_ours(&standard_error))
		return STDERR_FILENO;
	if (standard_error.fd < 0 || fstat(STDERR_FILENO, &now) || fstat(STDOUT_FILENO, &output) ||
	    S_ISSOCK(now.st_mode))
		return -1;
	return now.st_dev == output.st_dev && now.st_ino == output.st_ino ? STDERR_FILENO : -1;
}

/* False when the reader has stopped reading: that must not stop the engine. */
static bool takes_more(int fd)
{
	struct pollfd asked = {.fd = fd, .events = POLLOUT};
	int wait = atomic_load(&lost) ? 0 : WAIT_MS;
	int ready = poll(&asked, 1, wait);
	return ready < 0 || (ready == 1 && asked.revents == POLLOUT); /* below 0: a sandbox forbids poll(2) */
}

static void say_lost(int fd, unsigned count)
{
	char line[128];
	snprintf(line, sizeof(line), "medusa log: %u lines were lost because nobody read them in time\n", count);
	md_descriptor_write(fd, line, strlen(line));
}

static void write_line(const char *line, size_t size)
{
	int fd = file_descriptor();
	if (fd < 0)
		fd = standard_error_descriptor();
	if (fd < 0)
		return;
	if (!takes_more(fd)) {
		atomic_fetch_add(&lost, 1);
		return;
	}
	unsigned before = atomic_exchange(&lost, 0);
	if (before)
		say_lost(fd, before);
	md_descriptor_write(fd, line, size);
}

void md_log(enum md_log_level level, const char *domain, const char *format, ...)
{
	char message[LINE_BYTES], line[LINE_BYTES];
	int saved = errno; /* the caller may be about to report errno */
	size_t size;
	va_list args;
	if (!md_log_enabled(level))
		return;
	va_start(args, format);
	errno = saved;
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	/* a domain that is a command's name stands alone, so that its log has one prefix */
	snprintf(line, sizeof(line) - 1, strncmp(domain, "medusa-", 7) ? "medusa %s: " : "%s: ", domain);
	size = strlen(line);
	size += md_plain_copy(line + size, sizeof(line) - 1 - size, message);
	line[size++] = '\n';
	write_line(line, size);
	errno = saved;
}
