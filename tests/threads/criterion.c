// SPDX-License-Identifier: Apache-2.0
/* Runs unit tests in builds with the thread sanitizer: one after the other, each in a process of its own (criterion/criterion.h). */
#include "criterion/criterion.h"
#include "criterion/redirect.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 1024
#define SKIPPED 77
/* The sanitizer makes everything several times slower. */
#define TIMES_AS_LONG 10

const struct cr_named *criterion_current_suite, *criterion_current_test;
static const struct cr_entry *entries[MOST];
static size_t count;
static atomic_int failures; /* threads of a test may judge, too */
static int own_stderr = STDERR_FILENO;

void cr_add(const struct cr_entry *entry)
{
	if (count == MOST)
		abort();
	entries[count++] = entry;
}

static void say(const char *head, const char *format, va_list values)
{
	char text[4096];
	vsnprintf(text, sizeof(text), format, values);
	dprintf(own_stderr, "%s%s\n", head, text);
}

static void blame(const char *file, int line, const char *claim, const char *format, va_list values)
{
	char head[1024];
	snprintf(head, sizeof(head), "%s:%d: not so: %s:", file, line, claim);
	say(head, format, values);
	atomic_fetch_add(&failures, 1);
}

void cr_blame(const char *file, int line, const char *claim, const char *format, ...)
{
	va_list values;
	va_start(values, format);
	blame(file, line, claim, format, values);
	va_end(values);
}

_Noreturn void cr_end(const char *file, int line, const char *claim, const char *format, ...)
{
	va_list values;
	va_start(values, format);
	blame(file, line, claim, format, values);
	va_end(values);
	_exit(1);
}

_Noreturn void cr_leave(const char *format, ...)
{
	va_list values;
	va_start(values, format);
	say("skipped:", format, values);
	va_end(values);
	_exit(SKIPPED);
}

void cr_note(const char *format, ...)
{
	va_list values;
	va_start(values, format);
	say("", format, values);
	va_end(values);
}

static void redirect(int fd)
{
	int to = memfd_create("redirected", MFD_CLOEXEC);
	if (fd == STDERR_FILENO)
		own_stderr = fcntl(fd, F_DUPFD_CLOEXEC, 100);
	if (to < 0 || dup2(to, fd) < 0)
		abort();
	close(to);
}

static FILE *written(int fd)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return fopen(path, "re");
}

void cr_redirect_stdout(void)
{
	redirect(STDOUT_FILENO);
}

void cr_redirect_stderr(void)
{
	redirect(STDERR_FILENO);
}

FILE *cr_get_redirected_stdout(void)
{
	return written(STDOUT_FILENO);
}

FILE *cr_get_redirected_stderr(void)
{
	return written(STDERR_FILENO);
}

/* The test, with what its suite says where itself says nothing. */
static struct cr_entry whole(const struct cr_entry *test)
{
	struct cr_entry all = *test;
	for (size_t i = 0; i < count; i++) {
		if (entries[i]->run || strcmp(entries[i]->suite, test->suite) != 0)
			continue;
		all.init = all.init ? all.init : entries[i]->init;
		all.fini = all.fini ? all.fini : entries[i]->fini;
		all.timeout = all.timeout > 0 ? all.timeout : entries[i]->timeout;
	}
	return all;
}

static _Noreturn void run(const struct cr_entry *test)
{
	struct cr_named suite = {test->suite}, name = {test->name};
	criterion_current_suite = &suite;
	criterion_current_test = &name;
	if (test->timeout > 0)
		alarm((unsigned)(test->timeout * TIMES_AS_LONG) + 1);
	if (test->init)
		test->init();
	test->run();
	if (test->fini)
		test->fini();
	exit(atomic_load(&failures) ? 1 : 0);
}

static int run_apart(const struct cr_entry *test)
{
	int status = 0;
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0)
		run(test);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return pid < 0 ? -1 : status;
}

/* The word behind the option, "" if it is the last one, NULL if it is not there. */
static const char *option(int argc, char **argv, const char *name)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], name) == 0)
			return i + 1 < argc ? argv[i + 1] : "";
	}
	return NULL;
}

int main(int argc, char **argv)
{
	const char *filter = option(argc, argv, "--filter");
	bool list = option(argc, argv, "--list");
	int ran = 0, failed = 0, skipped = 0;
	for (size_t i = 0; i < count; i++) {
		char name[256];
		if (!entries[i]->run)
			continue;
		snprintf(name, sizeof(name), "%s/%s", entries[i]->suite, entries[i]->name);
		if (filter && fnmatch(filter, name, FNM_EXTMATCH) != 0)
			continue;
		if (list && ++ran && puts(name) >= 0)
			continue;
		struct cr_entry test = whole(entries[i]);
		int status = run_apart(&test);
		ran++;
		skipped += WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED;
		if (status == 0 || (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED))
			continue;
		failed++;
		fprintf(stderr, "failed: %s, %s %d\n", name, WIFSIGNALED(status) ? "signal" : "exit code",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	}
	fprintf(stderr, "[====] Synthesis: Tested: %d | Passing: %d | Failing: %d | Skipped: %d\n", ran,
		ran - failed - skipped, failed, skipped);
	return failed || ran == 0;
}
