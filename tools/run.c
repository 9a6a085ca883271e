/* SPDX-License-Identifier: Apache-2.0 */
/* Starting a command under a preloaded library, and waiting for it as a shell does. */
#include "tools/run.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"

/* The build puts another definition into the commands when LIBDIR is another one. */
__attribute__((weak)) const char md_run_libdir[] = "../lib";

static enum md_status find_library(const char *name, char path[PATH_MAX], struct md_error *err)
{
	char program[PATH_MAX], tried[PATH_MAX + 256];
	ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 1);
	const char *const places[] = {md_run_libdir, "../lib"}; /* installed, and in the build folder */
	char *slash;
	bool found = false;

	if (size < 0)
		return md_error_set(err, MD_ERR_IO, "/proc/self/exe: %s", strerror(errno));
	program[size] = '\0';
	slash = strrchr(program, '/');
	if (slash)
		*slash = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && !found; i++) {
		snprintf(tried, sizeof(tried), "%s/%s/%s", program, places[i], name);
		found = realpath(tried, path) != NULL;
	}
	if (!found)
		return md_error_set(err, MD_ERR_NOT_FOUND, "%s: %s; build or install the libraries beside the commands",
				    tried, strerror(errno));
	/* The dynamic linker splits LD_PRELOAD at these, with no way of quoting. */
	if (strpbrk(path, " :"))
		return md_error_set(err, MD_ERR_INVALID, "%s: a path with a space or colon cannot be preloaded", path);
	return MD_OK;
}

#ifdef __SANITIZE_THREAD__
#define RUNTIME_INIT __tsan_init
#define RUNTIME_NAME "tsan"
#else
#define RUNTIME_INIT __asan_init
#define RUNTIME_NAME "asan"
#endif

#ifdef MD_SANITIZED
extern void RUNTIME_INIT(void);

/* An uninstrumented command needs the sanitizer's runtime before our instrumented library. */
static const char *runtime_path(void)
{
	Dl_info info;

	setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 0);
	return dladdr((void *)RUNTIME_INIT, &info) && strstr(info.dli_fname, RUNTIME_NAME) ? info.dli_fname : NULL;
}
#else
static const char *runtime_path(void)
{
	return NULL;
}
#endif

static enum md_status set_preload(const char *name, struct md_error *err)
{
	const char *before = secure_getenv("LD_PRELOAD"), *runtime = runtime_path();
	MD_AUTO_FREE char *value = NULL;
	char path[PATH_MAX];

	MD_FORWARD(find_library(name, path, err));
	if (asprintf(&value, "%s%s%s%s%s", runtime ? runtime : "", runtime ? ":" : "", path,
		     before && *before ? ":" : "", before ? before : "") < 0) {
		value = NULL;
		return md_error_set(err, MD_ERR_NO_MEMORY, "LD_PRELOAD: out of memory");
	}
	if (setenv("LD_PRELOAD", value, 1))
		return md_error_set(err, MD_ERR_NO_MEMORY, "LD_PRELOAD: %s", strerror(errno));
	return MD_OK;
}

static enum md_status set_variable(const char *assignment, struct md_error *err)
{
	const char *equals = strchr(assignment, '=');
	MD_AUTO_FREE char *name = equals ? strndup(assignment, (size_t)(equals - assignment)) : NULL;

	if (!name || setenv(name, equals + 1, 1))
		return md_error_set(err, MD_ERR_INVALID, "\"%s\" cannot be set in the environment", assignment);
	return MD_OK;
}

enum md_status md_run_exec(const struct md_run *run, struct md_error *err)
{
	int failure;

	for (size_t i = 0; i < run->env_count; i++)
		MD_FORWARD(set_variable(run->env[i], err));
	if (run->preload)
		MD_FORWARD(set_preload(run->preload, err));
	execvp(run->argv[0], run->argv);
	failure = errno;
	return md_error_set(err, failure == ENOENT ? MD_ERR_NOT_FOUND : MD_ERR_IO, "cannot run %s: %s", run->argv[0],
			    strerror(failure));
}

/* ---- waiting ---- */

static volatile sig_atomic_t child_pid;

/* A terminal sends its signals to the child as well; only those that somebody sent to us alone are passed on. */
static void pass_on(int number, siginfo_t *info, void *context)
{
	(void)context;
	if (info->si_code <= 0 && child_pid > 0)
		kill((pid_t)child_pid, number);
}

static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP};
#define PASSED_ON (sizeof(passed_on) / sizeof(passed_on[0]))

static void take_signals(struct sigaction before[PASSED_ON])
{
	struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART};

	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < PASSED_ON; i++) {
		sigaction(passed_on[i], NULL, &before[i]);
		if (before[i].sa_handler != SIG_IGN) /* nohup and the like stay as they are */
			sigaction(passed_on[i], &action, NULL);
	}
}

static void give_signals_back(const struct sigaction before[PASSED_ON])
{
	for (size_t i = 0; i < PASSED_ON; i++)
		sigaction(passed_on[i], &before[i], NULL);
}

/* Becomes the command, or tells the parent through the pipe why not. */
static void be_child(const struct md_run *run, int output, int report, const struct sigaction before[PASSED_ON],
		     const sigset_t *mask)
{
	struct md_error error = {0};

	give_signals_back(before);
	sigprocmask(SIG_SETMASK, mask, NULL);
	if (output >= 0 && dup2(output, STDOUT_FILENO) < 0)
		md_error_set(&error, MD_ERR_IO, "redirecting the command's output: %s", strerror(errno));
	else
		md_run_exec(run, &error);
	if (write(report, &error, sizeof(error)) < 0)
		_exit(126);
	_exit(127);
}

static enum md_status wait_for(pid_t child, int *exit_code, struct md_error *err)
{
	int status;

	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return md_error_set(err, MD_ERR_IO, "waiting for the command: %s", strerror(errno));
	*exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	return MD_OK;
}

/* The pipe closes by itself when the command has been started. */
static bool failed_to_start(int report, struct md_error *why)
{
	ssize_t got;

	do
		got = read(report, why, sizeof(*why));
	while (got < 0 && errno == EINTR);
	return got == (ssize_t)sizeof(*why);
}

static enum md_status run_between_signals(const struct md_run *run, int output, int *exit_code,
					  const struct sigaction before[PASSED_ON], const sigset_t *mask,
					  struct md_error *err)
{
	int ends[2], code = 0;
	struct md_error why;
	enum md_status status;
	bool failed;
	pid_t child;

	if (pipe2(ends, O_CLOEXEC))
		return md_error_set(err, MD_ERR_IO, "pipe: %s", strerror(errno));
	fflush(NULL);
	child = fork();
	if (child == 0)
		be_child(run, output, ends[1], before, mask);
	close(ends[1]);
	if (child < 0) {
		close(ends[0]);
		return md_error_set(err, MD_ERR_IO, "fork: %s", strerror(errno));
	}
	child_pid = child;
	sigprocmask(SIG_SETMASK, mask, NULL);
	failed = failed_to_start(ends[0], &why);
	close(ends[0]);
	status = wait_for(child, &code, err);
	child_pid = 0;
	if (failed)
		return md_error_set(err, why.status, "%s", why.message);
	if (status == MD_OK)
		*exit_code = code;
	return status;
}

enum md_status md_run_child_output(const struct md_run *run, int output, int *exit_code, struct md_error *err)
{
	struct sigaction before[PASSED_ON];
	sigset_t block, mask;
	enum md_status status;

	/* Until the child's id is known, a signal waits. */
	sigemptyset(&block);
	for (size_t i = 0; i < PASSED_ON; i++)
		sigaddset(&block, passed_on[i]);
	sigprocmask(SIG_BLOCK, &block, &mask);
	take_signals(before);
	status = run_between_signals(run, output, exit_code, before, &mask, err);
	give_signals_back(before);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	return status;
}

enum md_status md_run_child(const struct md_run *run, int *exit_code, struct md_error *err)
{
	return md_run_child_output(run, -1, exit_code, err);
}
