/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "worker/engine/keeper.h"
#include "worker/engine/process_spawn.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define KEEPER_AGAIN_S 1u /* until one is forked again that has ended soon, or could not be */
#define KILLED_MS 5000    /* until a process that got SIGKILL is gone */
#define LOOK_MS 5u
#define LOOKS_MAX 2000u /* at what is left of a process group; then nothing is waited for any more */

struct md_engine_process {
	struct md_engine_processes *processes;
	struct md_engine_process *next;
	pid_t pid;
	bool helper;        /* see md_engine_keeper_add */
	int pidfd;          /* -1: a child */
	struct event *gone; /* of the pidfd; NULL: a child */
	struct event *look; /* at the rest of its group, when it has ended itself; NULL: not yet */
	unsigned looks;
	int status; /* then */
	void (*ended)(void *context, int status);
	void *context;
};

struct md_engine_processes {
	struct event *child_ended;
	struct md_engine_keeper *keeper;           /* NULL: there could be none */
	struct event *keeper_ended, *keeper_again; /* NULL: the same */
	uint64_t keeper_began;                     /* md_clock_ns() */
	struct md_engine_process *first;
};

/* ---- those that have ended ---- */

/* Out of the list; NULL: none has this ID. */
static struct md_engine_process *take(struct md_engine_processes *processes, pid_t pid)
{
	struct md_engine_process **at = &processes->first;
	while (*at && (*at)->pid != pid)
		at = &(*at)->next;
	struct md_engine_process *process = *at;
	if (process)
		*at = process->next;
	return process;
}

static struct md_engine_process *find(const struct md_engine_processes *processes, pid_t pid)
{
	struct md_engine_process *process = processes->first;
	while (process && process->pid != pid)
		process = process->next;
	return process;
}

static void free_process(struct md_engine_process *process)
{
	if (process->look)
		event_free(process->look);
	if (process->gone)
		event_free(process->gone);
	if (process->pidfd >= 0)
		close(process->pidfd);
	free(process);
}

static void tell_ended(struct md_engine_process *process, int status)
{
	take(process->processes, process->pid);
	md_engine_keeper_remove(process->processes->keeper, process->pid);
	process->ended(process->context, status);
	free_process(process);
}

static void on_look(evutil_socket_t fd, short what, void *context);

/*
 * A child counts as ended when nothing is left of its group: what got SIGKILL a moment ago still has its memory of the
 * GPU, and the next engine would find no room.
 */
static void look_at_rest(struct md_engine_process *process)
{
	struct timeval wait = {.tv_usec = LOOK_MS * 1000};
	while (waitpid(-process->pid, NULL, WNOHANG) > 0)
		;
	if (kill(-process->pid, 0) || process->looks++ >= LOOKS_MAX) {
		tell_ended(process, process->status);
		return;
	}
	if (!process->look)
		process->look = evtimer_new(event_get_base(process->processes->child_ended), on_look, process);
	if (!process->look || event_add(process->look, &wait))
		tell_ended(process, process->status);
}

static void on_look(evutil_socket_t fd, short what, void *context)
{
	(void)fd, (void)what;
	look_at_rest(context);
}

/* A child that has ended, which is there until it is waited for, so that nobody else has its ID; 0: none. */
static pid_t find_ended(void)
{
	siginfo_t child = {0};
	return waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) ? 0 : child.si_pid;
}

/* Others than those of the list are processes that an engine has left behind, which have become children here. */
static void on_child(evutil_socket_t signal, short what, void *context)
{
	struct md_engine_processes *made = context;
	pid_t pid;
	int status;
	(void)signal, (void)what;
	while ((pid = find_ended()) > 0) {
		struct md_engine_process *process = find(made, pid);
		if (process)
			kill(-pid, SIGKILL); /* what it has left behind of its group */
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
		if (!process)
			continue;
		process->status = status;
		look_at_rest(process);
	}
}

static void on_gone(evutil_socket_t pidfd, short what, void *context)
{
	struct md_engine_process *process = context;
	(void)pidfd, (void)what;
	kill(-process->pid, SIGKILL);
	tell_ended(process, MD_ENGINE_STATUS_UNKNOWN);
}

/* ---- the keeper ---- */

static void on_keeper_ended(evutil_socket_t fd, short what, void *context);

static bool watch_keeper(struct md_engine_processes *made)
{
	int line = md_engine_keeper_line(made->keeper);
	made->keeper_began = md_clock_ns();
	return line < 0 || (!event_assign(made->keeper_ended, event_get_base(made->child_ended), line,
					  EV_READ | EV_PERSIST, on_keeper_ended, made) &&
			    !event_add(made->keeper_ended, NULL));
}

/* Another one is told of all groups. */
static void on_keeper_again(evutil_socket_t fd, short what, void *context)
{
	struct timeval wait = {.tv_sec = KEEPER_AGAIN_S};
	struct md_engine_processes *made = context;
	(void)fd, (void)what;
	if (!md_engine_keeper_renew(made->keeper) || !watch_keeper(made)) {
		md_error_log("engines outlive this daemon if it is killed: starting their keeper: %s", strerror(errno));
		event_add(made->keeper_again, &wait);
		return;
	}
	for (const struct md_engine_process *at = made->first; at; at = at->next)
		md_engine_keeper_add(made->keeper, at->pid, at->helper);
	md_engine_keeper_serves_again(made->keeper);
}

static void on_keeper_ended(evutil_socket_t fd, short what, void *context)
{
	struct md_engine_processes *made = context;
	struct timeval wait = {0};
	(void)fd, (void)what;
	if (!md_engine_keeper_has_ended(made->keeper))
		return;
	if (md_clock_ns() - made->keeper_began < KEEPER_AGAIN_S * UINT64_C(1000000000))
		wait.tv_sec = KEEPER_AGAIN_S;
	md_warn("medusa-keeper, which ends engines if this daemon is killed, has ended, and another one follows");
	event_del(made->keeper_ended);
	event_add(made->keeper_again, &wait);
}

static bool begin_keeper(struct md_engine_processes *made, struct event_base *base)
{
	if (!made->keeper)
		return true;
	made->keeper_ended = event_new(base, -1, EV_READ, on_keeper_ended, made);
	made->keeper_again = evtimer_new(base, on_keeper_again, made);
	return made->keeper_ended && made->keeper_again && watch_keeper(made);
}

/* ---- beginning and end ---- */

struct md_engine_processes *md_engine_processes_create(struct event_base *base, const char *place)
{
	struct md_engine_processes *made = calloc(1, sizeof(*made));
	if (!made)
		return NULL;
	made->keeper = md_engine_keeper_create(place);
	if (!made->keeper)
		md_warn("engines outlive this daemon if it is killed: starting their keeper: %s", strerror(errno));
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	made->child_ended = evsignal_new(base, SIGCHLD, on_child, made);
	if (made->child_ended && !event_add(made->child_ended, NULL) && begin_keeper(made, base))
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
		free_process(at);
	}
	if (processes->keeper_ended)
		event_free(processes->keeper_ended);
	if (processes->keeper_again)
		event_free(processes->keeper_again);
	if (processes->child_ended)
		event_free(processes->child_ended);
	md_engine_keeper_destroy(processes->keeper);
	free(processes);
}

struct md_engine_keeper *md_engine_processes_keeper(const struct md_engine_processes *processes)
{
	return processes->keeper;
}

/* ---- starting ---- */

static void enter(struct md_engine_processes *processes, struct md_engine_process *made, bool helper,
		  void (*ended)(void *context, int status), void *context)
{
	md_engine_keeper_add(processes->keeper, made->pid, helper);
	made->helper = helper;
	made->processes = processes;
	made->next = processes->first;
	made->ended = ended;
	made->context = context;
	processes->first = made;
}

enum md_status md_engine_process_start(struct md_engine_processes *processes, const struct md_engine_command *command,
				       void (*ended)(void *context, int status), void *context,
				       struct md_engine_process **process, struct md_error *err)
{
	MD_AUTO_FREE struct md_engine_process *made = calloc(1, sizeof(*made));
	MD_AUTO_FREE const char **environment = md_process_environment(command->extra);
	if (!made || !environment)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a process");
	made->pidfd = -1;
	int failure = md_process_spawn(command, (char *const *)environment, &made->pid);
	if (failure)
		return md_error_set(err, failure == ENOMEM ? MD_ERR_NO_MEMORY : MD_ERR_NOT_FOUND,
				    "could not be started: %.200s: %s", command->argv[0], strerror(failure));
	enter(processes, made, command->helper, ended, context);
	*process = md_steal_ptr(&made);
	return MD_OK;
}

enum md_status md_engine_process_adopt(struct md_engine_processes *processes, pid_t pid, int pidfd,
				       void (*ended)(void *context, int status), void *context,
				       struct md_engine_process **process, struct md_error *err)
{
	for (const struct md_engine_process *at = processes->first; at; at = at->next)
		if (at->pid == pid)
			return md_error_set(err, MD_ERR_INVALID, "process %d is there already", (int)pid);
	struct md_engine_process *made = calloc(1, sizeof(*made));
	if (made && pidfd >= 0)
		made->gone = event_new(event_get_base(processes->child_ended), pidfd, EV_READ, on_gone, made);
	if (!made || (pidfd >= 0 && (!made->gone || event_add(made->gone, NULL)))) {
		if (made && made->gone)
			event_free(made->gone);
		free(made);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a process");
	}
	made->pid = pid;
	made->pidfd = pidfd;
	enter(processes, made, false, ended, context);
	*process = made;
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
	struct pollfd gone = {.fd = process->pidfd, .events = POLLIN};
	kill(-process->pid, SIGKILL);
	if (process->pidfd < 0)
		waitpid(process->pid, NULL, 0);
	else
		poll(&gone, 1, KILLED_MS);
	md_engine_keeper_remove(process->processes->keeper, process->pid);
	free_process(take(process->processes, process->pid));
}

void md_engine_process_describe(int status, char *text, size_t size)
{
	if (status == MD_ENGINE_STATUS_UNKNOWN)
		snprintf(text, size,
			 "has ended (its exit code is not known, because an earlier daemon had started it)");
	else if (WIFSIGNALED(status))
		snprintf(text, size, "was killed by SIG%s (%s)", sigabbrev_np(WTERMSIG(status)),
			 strsignal(WTERMSIG(status)));
	else
		snprintf(text, size, "ended with exit code %d", WEXITSTATUS(status));
}
