/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a command under a preloaded library, and waits for it as a shell does. */
#include "tools/run.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/environment.h"
#include "tools/family.h"
#include "tools/preload.h"
#include "tools/stop.h"

#define LOOK_MS 50
#define LEFT_MS 20
#define STOP_NS 10000000000u
#define KILL_NS 10000000000u /* behind STOP_NS; md_family_end() waits for up to 6 s of it */
#define UNKNOWN_NS 60000000000u

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

static enum md_status set_preload(const char *path, struct md_error *err)
{
	const char *before = secure_getenv("LD_PRELOAD"), *runtime = runtime_path();
	MD_AUTO_FREE char *value = NULL;
	if (asprintf(&value, "%s%s%s%s%s", runtime ? runtime : "", runtime ? ":" : "", path,
		     before && *before ? ":" : "", before ? before : "") < 0) {
		value = NULL;
		return md_error_set(err, MD_ERR_NO_MEMORY, "LD_PRELOAD: out of memory for its value");
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

/*
 * Makes the path in a variable absolute, because the command may be a script that changes its folder before it starts
 * the engine.
 */
static void make_absolute(const char *name)
{
	char path[PATH_MAX];
	/* the variable may have been removed from the environment since this process started */
	if (secure_getenv(name) && md_environment_path(name, path, sizeof(path)))
		setenv(name, path, 1);
}

static enum md_status become(const struct md_run *run, const char *library, struct md_error *err)
{
	int failure;
	make_absolute("MEDUSA_LOG_FILE");
	make_absolute("MEDUSA_TRUSTED_KEYS");
	for (size_t i = 0; i < run->env_count; i++)
		MD_FORWARD(set_variable(run->env[i], err));
	if (library)
		MD_FORWARD(set_preload(library, err));
	execvp(run->argv[0], run->argv);
	failure = errno;
	return md_error_set(err, failure == ENOENT ? MD_ERR_NOT_FOUND : MD_ERR_IO, "cannot run %s: %s", run->argv[0],
			    strerror(failure));
}

enum md_status md_run_exec(const struct md_run *run, struct md_error *err)
{
	static struct md_preload preload; /* large, and finished at each return */
	if (run->preload)
		MD_FORWARD(md_preload_find(run->preload, false, &preload, err));
	return become(run, run->preload ? preload.path : NULL, err);
}

/* ---- waiting ---- */

/* Where the caller has closed that descriptor, something that nobody can write to has its number (options.c), and the command finds it closed. */
static bool redirect(int output)
{
	int flags = fcntl(output, F_GETFL);
	if (flags >= 0 && flags & O_PATH)
		return !close(STDOUT_FILENO) || errno == EBADF;
	return dup2(output, STDOUT_FILENO) >= 0;
}

/* Becomes the command, or tells the parent through the pipe why not. */
static void be_child(const struct md_run *run, const char *library, int output, int report)
{
	struct md_error error = {0};
	md_stop_in_child();
	if (output >= 0 && !redirect(output))
		md_error_set(&error, MD_ERR_IO, "redirecting the command's output: %s", strerror(errno));
	else
		become(run, library, &error);
	if (write(report, &error, sizeof(error)) < 0)
		_exit(126);
	_exit(127);
}

static enum md_status take_status(pid_t child, int flags, bool *ended, int *exit_code, struct md_error *err)
{
	int status;
	pid_t got;
	while ((got = waitpid(child, &status, flags)) < 0)
		if (errno != EINTR)
			return md_error_set(err, MD_ERR_IO, "waiting for the command: %s", strerror(errno));
	*ended = got == child;
	if (*ended)
		*exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	return MD_OK;
}

/*
 * Until the child ends; kernels before 5.3 leave that to waitpid. A signal ends poll, and its handler runs then. In a waitpid that is
 * begun anew after a signal, the thread sanitizer would hold the signal back until the child has ended.
 */
static void wait_for_end(pid_t child)
{
	int fd = (int)syscall(SYS_pidfd_open, child, 0);
	struct pollfd end = {.fd = fd, .events = POLLIN};
	while (fd >= 0 && poll(&end, 1, -1) < 0 && errno == EINTR)
		;
	if (fd >= 0)
		close(fd);
}

/* Until the child ends, but no longer than this; kernels before 5.3 are asked again and again. */
static void wait_ms_for(pid_t child, int ms)
{
	int fd = (int)syscall(SYS_pidfd_open, child, 0);
	struct pollfd end = {.fd = fd, .events = POLLIN};
	if (fd < 0)
		md_family_wait_ms(ms);
	else
		poll(&end, 1, ms);
	if (fd >= 0)
		close(fd);
}

struct wait {
	const struct md_run *run;
	pid_t child;
	uint64_t started, stopped; /* on a clock that nobody sets; stopped: 0 until the command is told to end */
	bool killed;
};

/* True once; late() has been called then. */
static bool becomes_late(struct wait *wait)
{
	const struct md_run *run = wait->run;
	if (!run->limit_ns || *run->is_late || md_clock_ns() - wait->started < run->limit_ns)
		return false;
	run->late(run->user);
	*run->is_late = true;
	return true;
}

/* The command is asked to end once it has done what it was run for, or too late, and made to end if it does not. */
static void look_on(struct wait *wait)
{
	const struct md_run *run = wait->run;
	if (!wait->stopped && ((run->done && run->done(run->user)) || becomes_late(wait))) {
		wait->stopped = md_clock_ns();
		kill(wait->child, SIGTERM);
	} else if (!wait->stopped && run->look) {
		run->look(run->user);
	} else if (wait->stopped && !wait->killed && md_clock_ns() - wait->stopped >= STOP_NS) {
		wait->killed = true;
		md_family_end(wait->child, wait->child);
	}
}

/* A device driver may hold it up for ever, and nobody may kill a process of another user. */
static enum md_status check_end(const struct wait *wait, struct md_error *err)
{
	if (!wait->killed || md_clock_ns() - wait->stopped < STOP_NS + KILL_NS)
		return MD_OK;
	return md_error_set(err, MD_ERR_IO,
			    "%s (process %d) does not end, although it was told to and killed: end it by hand",
			    wait->run->argv[0], (int)wait->child);
}

static enum md_status wait_watched(struct wait *wait, int *exit_code, struct md_error *err)
{
	bool ended = false;
	while (!ended) {
		look_on(wait);
		MD_FORWARD(check_end(wait, err));
		MD_FORWARD(take_status(wait->child, WNOHANG, &ended, exit_code, err));
		if (!ended)
			wait_ms_for(wait->child, wait->run->pace_ms ? (int)wait->run->pace_ms : LOOK_MS);
	}
	return MD_OK;
}

static enum md_status wait_for(struct wait *wait, int *exit_code, struct md_error *err)
{
	bool ended;
	if (wait->run->done || wait->run->look || wait->run->limit_ns)
		return wait_watched(wait, exit_code, err);
	wait_for_end(wait->child);
	return take_status(wait->child, 0, &ended, exit_code, err);
}

/* True if the command has left processes behind: they became children of this process when their parent ended. */
static bool has_left_any(void)
{
	for (;;) {
		pid_t ended = waitpid(-1, NULL, WNOHANG);
		if (ended <= 0)
			return ended == 0;
	}
}

/* Daemons, too, if they have done what the run was for; other daemons go on. */
static void end_workers(const struct md_run *run)
{
	pid_t pid = 0, before = 0;
	for (; run->left; before = pid) {
		pid = 0;
		run->left(run->user, &pid);
		if (pid <= 0 || pid == before)
			return;
		if (!md_family_end(pid, pid))
			fprintf(stderr, "process %d does not end, although it was told to and killed: end it by hand\n",
				(int)pid);
	}
}

static void wait_for_left(struct wait *wait)
{
	const struct md_run *run = wait->run;
	uint64_t since = md_clock_ns();
	bool said = false;
	while (has_left_any() && !becomes_late(wait)) {
		pid_t pid = 0;
		enum md_run_left left = run->left(run->user, &pid);
		bool done = run->done && run->done(run->user);
		if (done) /* asked for again: the work may have begun after left() */
			end_workers(run);
		if (done || left == MD_RUN_OVER || (left == MD_RUN_UNKNOWN && md_clock_ns() - since >= UNKNOWN_NS))
			return;
		md_stop_child(pid > 0 ? pid : -1);
		if (md_stop_signal() && pid <= 0)
			return;
		if (!said)
			fprintf(stderr, "%s has ended and left processes behind; waiting for them\n", run->argv[0]);
		said = true;
		if (run->look)
			run->look(run->user);
		md_family_wait_ms(LEFT_MS);
	}
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

/* Signals are held; they are let go once the child's id is known. */
static enum md_status start(const struct md_run *run, const char *library, int output, pid_t *child, int *report,
			    struct md_error *err)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC))
		return md_error_set(err, MD_ERR_IO, "pipe: %s", strerror(errno));
	fflush(NULL);
	*child = fork();
	if (*child == 0)
		be_child(run, library, output, ends[1]);
	close(ends[1]);
	*report = ends[0];
	if (*child > 0)
		return MD_OK;
	close(ends[0]);
	return md_error_set(err, MD_ERR_IO, "fork: %s", strerror(errno));
}

static enum md_status run_watched(const struct md_run *run, const char *library, int output, int *exit_code,
				  struct md_error *err)
{
	int report = -1, code = 0;
	struct md_error why;
	struct wait wait = {.run = run, .started = md_clock_ns()};
	pid_t child = 0;
	md_stop_hold();
	enum md_status status = start(run, library, output, &child, &report, err);
	if (status == MD_OK)
		md_stop_child(child);
	md_stop_release();
	if (status != MD_OK)
		return status;
	bool failed = failed_to_start(report, &why);
	close(report);
	wait.child = child;
	status = wait_for(&wait, &code, err);
	if (status == MD_OK && !code && !failed && !wait.stopped && run->left)
		wait_for_left(&wait);
	if (run->limit_ns && *run->is_late) {
		md_family_end_all(SIGTERM);
	} else if (wait.stopped) { /* also a daemon, if the command had not ended when all was done */
		md_family_end_left(SIGTERM);
		end_workers(run);
	}
	if (md_stop_signal())
		md_family_end_left(md_stop_came_from_terminal() ? 0 : md_stop_signal());
	md_stop_hold();
	md_stop_child(0);
	md_stop_release();
	if (failed)
		return md_error_set(err, why.status, "%s", why.message);
	if (status == MD_OK)
		*exit_code = code;
	return status;
}

enum md_status md_run_child_output(const struct md_run *run, int output, int *exit_code, struct md_error *err)
{
	static struct md_preload preload; /* large, and finished at each return */
	unsigned limit;
	if (run->preload && md_descriptor_scarce(&limit))
		return md_error_set(err, MD_ERR_IO,
				    "the limit is %u open files (ulimit -n), and Medusa leaves them to the command: at "
				    "least %d are needed",
				    limit, MD_DESCRIPTORS_LEAST);
	if (run->preload)
		MD_FORWARD(md_preload_find(run->preload, true, &preload, err));
	if (run->left)
		prctl(PR_SET_CHILD_SUBREAPER, 1);
	bool mine = md_stop_watch();
	enum md_status status = run_watched(run, run->preload ? preload.path : NULL, output, exit_code, err);
	if (mine)
		md_stop_unwatch();
	md_preload_finish(&preload);
	return status;
}

enum md_status md_run_child(const struct md_run *run, int *exit_code, struct md_error *err)
{
	return md_run_child_output(run, -1, exit_code, err);
}
