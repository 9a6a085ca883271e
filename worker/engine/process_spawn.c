/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/process_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "worker/engine/cgroup_folder.h"

#define INHERITED (STDERR_FILENO + 1)
#define OUT_OF_THE_WAY 16 /* of descriptors that the command has */
#define EXIT_NOT_RUN 127

extern char **environ;

/* ---- variables ---- */

static size_t count(const char *const *list)
{
	size_t entries = 0;
	while (list && list[entries])
		entries++;
	return entries;
}

static size_t name_size(const char *entry)
{
	return strcspn(entry, "=");
}

static bool is_replaced(const char *entry, const char *const *extra, size_t extras)
{
	for (size_t i = 0; i < extras; i++)
		if (name_size(extra[i]) == name_size(entry) && !strncmp(extra[i], entry, name_size(entry)))
			return true;
	return false;
}

const char **md_process_environment(const char *const *extra)
{
	size_t extras = count(extra), own = count((const char *const *)environ), used = 0;
	const char **made = malloc((own + extras + 1) * sizeof(*made));
	if (!made)
		return NULL;
	for (size_t i = 0; i < own; i++)
		if (!is_replaced(environ[i], extra, extras))
			made[used++] = environ[i];
	for (size_t i = 0; i < extras; i++)
		if (!is_replaced(extra[i], extra + i + 1, extras - i - 1)) /* the last one of a name counts */
			made[used++] = extra[i];
	made[used] = NULL;
	return made;
}

/* ---- descriptors ---- */

static unsigned inherited(const struct md_engine_command *command)
{
	return !command->inherits ? 0 : command->inherits[1] < 0 ? 1 : 2;
}

/* ---- in this process's cgroup ---- */

int md_process_spawn(const struct md_engine_command *command, char *const *environment, pid_t *pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, all;
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attributes);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (command->output >= 0)
		posix_spawn_file_actions_adddup2(&actions, command->output, STDOUT_FILENO);
	else
		posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
	for (unsigned i = 0; i < inherited(command); i++)
		posix_spawn_file_actions_adddup2(&actions, command->inherits[i], INHERITED + (int)i);
	posix_spawn_file_actions_addclosefrom_np(&actions, INHERITED + (int)inherited(command));
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	int failure = posix_spawnp(pid, command->argv[0], &actions, &attributes, command->argv, environment);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	return failure;
}

/* ---- into a cgroup: posix_spawn(3) of older C libraries has no way to say it ---- */

/* The same descriptor is not closed at exec then, which dup2 does not see to. */
static bool put(int fd, int as)
{
	return fd == as ? !fcntl(fd, F_SETFD, 0) : dup2(fd, as) == as;
}

static bool put_file(const char *path, int flags, int as)
{
	int fd = open(path, flags);
	if (fd < 0 || fd == as)
		return fd == as;
	bool done = dup2(fd, as) == as;
	close(fd);
	return done;
}

static bool take_descriptors(const struct md_engine_command *command)
{
	bool done = put_file("/dev/null", O_RDONLY, STDIN_FILENO);
	done = done && (command->output >= 0 ? put(command->output, STDOUT_FILENO)
					     : put_file("/dev/null", O_WRONLY, STDOUT_FILENO));
	done = done && put(STDOUT_FILENO, STDERR_FILENO);
	for (unsigned i = 0; i < inherited(command); i++)
		done = done && put(command->inherits[i], INHERITED + (int)i);
	return done && !close_range(INHERITED + inherited(command), ~0u, CLOSE_RANGE_CLOEXEC);
}

struct start {
	const struct md_engine_command *command;
	char *const *environment;
	int report;
};

/* In the child, which has the memory of the parent; the report gets errno, and is closed when the command runs. */
static void become(void *context)
{
	const struct start *start = context;
	const struct md_engine_command *command = start->command;
	int report = start->report;
	sigset_t none;
	sigemptyset(&none);
	report = fcntl(report, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
	for (int number = 1; number < NSIG; number++)
		signal(number, SIG_DFL);
	if (report >= 0 && setsid() >= 0 && take_descriptors(command) && !sigprocmask(SIG_SETMASK, &none, NULL))
		execvpe(command->argv[0], command->argv, start->environment);
	int failure = errno;
	ssize_t ignored = write(report, &failure, sizeof(failure));
	(void)ignored;
	_exit(EXIT_NOT_RUN);
}

/* 0: it runs. The process waited for the child's exec or end, so all is there that will be. */
static int read_report(int report)
{
	int failure = 0;
	return read(report, &failure, sizeof(failure)) == sizeof(failure) ? failure : 0;
}

int md_process_spawn_into(int cgroup, const struct md_engine_command *command, char *const *environment, pid_t *pid)
{
	int ends[2];
	sigset_t all, before;
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return -1;
	MD_AUTO_FD int heard = ends[0], told = ends[1];
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* no handler of this process runs in the child */
	struct start start = {.command = command, .environment = environment, .report = told};
	pid_t made = md_cgroup_folder_spawn(cgroup, become, &start);
	int why = errno;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (made < 0) {
		errno = why;
		return -1;
	}
	int failure = read_report(heard);
	if (failure)
		while (waitpid(made, NULL, 0) < 0 && errno == EINTR)
			;
	*pid = made;
	return failure;
}
