/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "worker/engine/keeper.h"

#define MD_LOG_DOMAIN "worker"
#include "base/log.h"

extern char **environ;

struct md_engine_process {
	struct md_engine_processes *processes;
	struct md_engine_process *next;
	pid_t pid;
	void (*ended)(void *context, int status);
	void *context;
};

struct md_engine_processes {
	struct event *child_ended;
	struct md_engine_keeper *keeper; /* NULL: there could be none */
	struct md_engine_process *first;
};

/* ---- those that have ended ---- */

static struct md_engine_process *take_ended(struct md_engine_processes *processes, int *status)
{
	for (struct md_engine_process **at = &processes->first; *at; at = &(*at)->next) {
		struct md_engine_process *process = *at;
		if (waitpid(process->pid, status, WNOHANG) == process->pid) {
			*at = process->next;
			return process;
		}
	}
	return NULL;
}

static void on_child(evutil_socket_t signal, short what, void *context)
{
	struct md_engine_processes *made = context;
	struct md_engine_process *process;
	int status;
	(void)signal, (void)what;
	while ((process = take_ended(made, &status))) {
		kill(-process->pid, SIGKILL); /* what it has left behind of its group */
		md_engine_keeper_remove(made->keeper, process->pid);
		process->ended(process->context, status);
		free(process);
	}
}

struct md_engine_processes *md_engine_processes_create(struct event_base *base)
{
	struct md_engine_processes *made = calloc(1, sizeof(*made));
	if (!made)
		return NULL;
	made->keeper = md_engine_keeper_create();
	if (!made->keeper)
		md_warn("engines outlive this daemon if it is killed: starting their keeper: %s", strerror(errno));
	made->child_ended = evsignal_new(base, SIGCHLD, on_child, made);
	if (made->child_ended && !event_add(made->child_ended, NULL))
		return made;
	md_engine_processes_destroy(made);
	return NULL;
}

void md_engine_processes_destroy(struct md_engine_processes *processes)
{
	if (!processes)
		return;
	for (struct md_engine_process *next, *at = processes->first; at; at = next) {
		next = at->next;
		free(at);
	}
	if (processes->child_ended)
		event_free(processes->child_ended);
	md_engine_keeper_destroy(processes->keeper);
	free(processes);
}

/* ---- starting ---- */

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

/* This process's environment, with what `extra` adds and replaces; the entries are borrowed. */
static const char **make_environment(const char *const *extra)
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

static int spawn(const struct md_engine_command *command, char *const *environment, pid_t *pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, all;
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attributes);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, command->output, STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&actions, command->output, STDERR_FILENO);
	posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
	posix_spawnattr_setpgroup(&attributes, 0);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	int failure = posix_spawnp(pid, command->argv[0], &actions, &attributes, command->argv, environment);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	return failure;
}

enum md_status md_engine_process_start(struct md_engine_processes *processes, const struct md_engine_command *command,
				       void (*ended)(void *context, int status), void *context,
				       struct md_engine_process **process, struct md_error *err)
{
	MD_AUTO_FREE struct md_engine_process *made = calloc(1, sizeof(*made));
	MD_AUTO_FREE const char **environment = make_environment(command->extra);
	if (!made || !environment)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a process");
	int failure = spawn(command, (char *const *)environment, &made->pid);
	if (failure)
		return md_error_set(err, failure == ENOMEM ? MD_ERR_NO_MEMORY : MD_ERR_NOT_FOUND,
				    "could not be started: %.200s: %s", command->argv[0], strerror(failure));
	md_engine_keeper_add(processes->keeper, made->pid);
	made->processes = processes;
	made->next = processes->first;
	made->ended = ended;
	made->context = context;
	*process = processes->first = md_steal_ptr(&made);
	return MD_OK;
}

pid_t md_engine_process_id(const struct md_engine_process *process)
{
	return process->pid;
}

void md_engine_process_signal(const struct md_engine_process *process, int signal)
{
	kill(-process->pid, signal);
}

void md_engine_process_kill(struct md_engine_process *process)
{
	struct md_engine_process **at = &process->processes->first;
	kill(-process->pid, SIGKILL);
	waitpid(process->pid, NULL, 0);
	md_engine_keeper_remove(process->processes->keeper, process->pid);
	while (*at != process)
		at = &(*at)->next;
	*at = process->next;
	free(process);
}

void md_engine_process_describe(int status, char *text, size_t size)
{
	if (WIFSIGNALED(status))
		snprintf(text, size, "was killed by SIG%s (%s)", sigabbrev_np(WTERMSIG(status)),
			 strsignal(WTERMSIG(status)));
	else
		snprintf(text, size, "ended with exit code %d", WEXITSTATUS(status));
}
