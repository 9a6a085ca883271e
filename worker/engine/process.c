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
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "worker/engine/cgroup.h"
#include "worker/engine/cgroup_folder.h"
#include "worker/engine/keeper.h"
#include "worker/engine/process_facts.h"
#include "worker/engine/process_spawn.h"
#include "worker/engine/search_thread.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define KEEPER_AGAIN_S 1u /* until one is forked again that has ended soon, or could not be */
#define KILLED_MS 5000    /* until a process that got SIGKILL is gone */
#define LOOK_MS 5u
#define LOOKS_MAX 2000u    /* at what is left of a process group; then the group is not waited for any more */
#define RARELY 32u         /* looks from one list of all processes to the next */
#define LOOK_LATER_MS 100u /* at a cgroup, from then on */

struct md_engine_process {
	struct md_engine_processes *processes;
	struct md_engine_process *next;
	pid_t pid;
	bool helper;              /* see md_engine_keeper_add */
	struct md_cgroup *cgroup; /* NULL: none */
	int pidfd;                /* -1: a child */
	struct event *gone;       /* of the pidfd; NULL: a child */
	struct event *look;       /* at what is left of it, when its first process has ended; NULL: not yet */
	unsigned looks;
	struct md_search_thread *search; /* for those of its group that live; NULL: none is under way */
	int status;                      /* then */
	bool vanished;                   /* nothing is left of its group, and its ID may be another process's */
	void (*ended)(void *context, int status);
	void *context;
};

/* A cgroup whose engine is nobody's. */
struct left {
	struct left *next;
	struct md_cgroup *cgroup;
};

struct md_engine_processes {
	struct event *child_ended;
	struct md_engine_keeper *keeper;           /* NULL: there could be none */
	struct event *keeper_ended, *keeper_again; /* NULL: the same */
	uint64_t keeper_began;                     /* md_clock_ns() */
	struct md_engine_process *first;
	struct md_cgroups *cgroups; /* NULL: none are made */
	uint64_t listens;           /* an inode; 0: none */
	struct left *left;          /* cgroups of an earlier daemon in which something lives */
	struct event *left_look;    /* at them; NULL: there were none */
	void (*left_ended)(void *context);
	void *left_context;
};

/* ---- those that have ended ---- */

/* All that is left of it, which has had its chance to end by itself. */
static void kill_all(const struct md_engine_process *process)
{
	if (!process->vanished)
		kill(-process->pid, SIGKILL);
	if (process->cgroup)
		md_cgroup_folder_kill(md_cgroup_folder(process->cgroup));
}

static bool is_populated(const struct md_engine_process *process)
{
	return process->cgroup && md_cgroup_folder_is_populated(md_cgroup_folder(process->cgroup));
}

static void remove_cgroup(struct md_engine_process *process)
{
	md_cgroup_remove(process->cgroup);
	process->cgroup = NULL;
}

static void take(struct md_engine_process *process)
{
	struct md_engine_process **at = &process->processes->first;
	while (*at != process)
		at = &(*at)->next;
	*at = process->next;
}

/* NULL: none has this ID. */
static struct md_engine_process *find(const struct md_engine_processes *processes, pid_t pid)
{
	struct md_engine_process *process = processes->first;
	while (process && (process->pid != pid || process->vanished))
		process = process->next;
	return process;
}

/* Out of the list, and out of the keeper's. */
static void leave(struct md_engine_process *process)
{
	take(process);
	remove_cgroup(process);
	if (!find(process->processes, process->pid))
		md_engine_keeper_remove(process->processes->keeper, process->pid);
}

static void free_process(struct md_engine_process *process)
{
	md_search_thread_forget(process->search);
	if (process->look)
		event_free(process->look);
	if (process->gone)
		event_free(process->gone);
	if (process->pidfd >= 0)
		close(process->pidfd);
	md_cgroup_close(process->cgroup);
	free(process);
}

static void tell_ended(struct md_engine_process *process)
{
	leave(process);
	process->ended(process->context, process->status);
	free_process(process);
}

static void on_look(evutil_socket_t fd, short what, void *context);

struct group_question {
	pid_t group;
	bool lives;
};

static void search_group(void *state)
{
	struct group_question *question = state;
	question->lives = md_process_group_lives(question->group);
}

static void on_searched(void *context, const void *state)
{
	struct md_engine_process *process = context;
	process->search = NULL;
	process->vanished = !((const struct group_question *)state)->lives;
	if (process->vanished)
		event_active(process->look, EV_TIMEOUT, 0);
}

/*
 * Where this process collects orphans, an end of the group comes. Others, which have what an earlier daemon's engine has left,
 * may wait for them late or never, and kill(2) finds those that have ended as well: then those that live are looked for among all
 * processes, on a thread, and ever more rarely.
 */
static void look_for_group(struct md_engine_process *process)
{
	unsigned looks = process->looks;
	if (process->pidfd < 0 || process->search || !process->look || ((looks & (looks - 1)) && looks % RARELY))
		return;
	struct group_question *question = malloc(sizeof(*question));
	if (!question)
		return; /* later */
	question->group = process->pid;
	process->search =
	    md_search_thread_begin(event_get_base(process->look), search_group, question, on_searched, process);
}

/* Once the group has vanished, its ID may be another process's, while something lives in the cgroup. */
static bool is_group_left(struct md_engine_process *process)
{
	if (process->vanished)
		return false;
	while (waitpid(-process->pid, NULL, WNOHANG) > 0)
		;
	process->vanished = process->looks >= LOOKS_MAX || kill(-process->pid, 0);
	return !process->vanished;
}

static bool is_cgroup_left(struct md_engine_process *process)
{
	bool left = is_populated(process);
	if (left && process->looks % LOOKS_MAX == LOOKS_MAX - 1) {
		md_warn("process %d has ended, but something lives in its cgroup %s, and does not end although it was "
			"killed",
			(int)process->pid, md_cgroup_path(process->cgroup));
		kill_all(process);
	}
	return left;
}

/*
 * A process counts as ended when nothing is left of its group and its cgroup: what got SIGKILL a moment ago still has its
 * memory of the GPU, and the next engine would find no room.
 */
static void look_at_rest(struct md_engine_process *process)
{
	struct timeval wait = {.tv_usec = (process->looks < LOOKS_MAX ? LOOK_MS : LOOK_LATER_MS) * 1000};
	bool group = is_group_left(process), cgroup = is_cgroup_left(process);
	process->looks++;
	if (!group && !cgroup) {
		tell_ended(process);
		return;
	}
	if (!process->look)
		process->look = evtimer_new(event_get_base(process->processes->child_ended), on_look, process);
	if (!process->look || event_add(process->look, &wait))
		tell_ended(process);
	else if (group)
		look_for_group(process);
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
			kill_all(process); /* what it has left behind */
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
	kill_all(process);
	process->status = MD_ENGINE_STATUS_UNKNOWN;
	look_at_rest(process);
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

static void tell_keeper(const struct md_engine_process *process)
{
	md_engine_keeper_add(process->processes->keeper, process->pid, process->helper);
	if (process->cgroup)
		md_engine_keeper_add_cgroup(process->processes->keeper, process->pid, md_cgroup_path(process->cgroup));
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
		if (!at->vanished)
			tell_keeper(at);
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

/* ---- what an earlier daemon has left ---- */

/* NULL: nobody has it. An engine whose record did not say where it is gets back what it had. */
static struct md_engine_process *find_owner(const struct md_engine_processes *processes, const struct md_cgroup *cgroup)
{
	struct md_engine_process *at = processes->first;
	while (at && !(at->cgroup ? !strcmp(md_cgroup_path(at->cgroup), md_cgroup_path(cgroup))
				  : md_cgroup_has(cgroup, at->pid)))
		at = at->next;
	return at;
}

static void free_left(struct md_engine_processes *processes)
{
	for (struct left *left; (left = processes->left);) {
		processes->left = left->next;
		md_cgroup_remove(left->cgroup);
		free(left);
	}
	if (processes->left_look)
		event_free(processes->left_look);
	processes->left_look = NULL;
}

static void on_left_look(evutil_socket_t fd, short what, void *context)
{
	struct md_engine_processes *processes = context;
	struct timeval wait = {.tv_usec = LOOK_MS * 1000};
	(void)fd, (void)what;
	for (struct left *left, **at = &processes->left; (left = *at);) {
		if (md_cgroup_folder_is_populated(md_cgroup_folder(left->cgroup))) {
			at = &left->next;
			continue;
		}
		*at = left->next;
		md_cgroup_remove(left->cgroup);
		free(left);
	}
	if (processes->left)
		event_add(processes->left_look, &wait);
	else
		processes->left_ended(processes->left_context);
}

static void end_left(struct md_engine_processes *processes, struct md_cgroup *cgroup)
{
	struct left *left = calloc(1, sizeof(*left));
	md_warn("what an earlier daemon has left in cgroup %s is killed: no engine that is adopted has it",
		md_cgroup_path(cgroup));
	md_cgroup_folder_kill(md_cgroup_folder(cgroup));
	if (!left) {
		md_cgroup_close(cgroup);
		return;
	}
	*left = (struct left){.cgroup = cgroup, .next = processes->left};
	processes->left = left;
}

static void clear_one(void *context, struct md_cgroup *cgroup)
{
	struct md_engine_processes *processes = context;
	struct md_engine_process *owner = find_owner(processes, cgroup);
	if (owner && owner->cgroup)
		md_cgroup_close(cgroup);
	else if (owner)
		md_engine_process_keep_cgroup(owner, cgroup);
	else if (md_cgroup_folder_is_populated(md_cgroup_folder(cgroup)))
		end_left(processes, cgroup);
	else
		md_cgroup_remove(cgroup);
}

void md_engine_processes_clear(struct md_engine_processes *processes, void (*ended)(void *context), void *context)
{
	processes->left_ended = ended;
	processes->left_context = context;
	processes->left_look = evtimer_new(event_get_base(processes->child_ended), on_left_look, processes);
	if (!processes->left_look || !processes->cgroups)
		return;
	md_cgroups_list(processes->cgroups, clear_one, processes);
	if (processes->left)
		event_active(processes->left_look, EV_TIMEOUT, 0);
}

struct md_cgroup *md_engine_processes_find_cgroup(const struct md_engine_processes *processes, const char *path,
						  struct md_error *err)
{
	if (processes->cgroups)
		return md_cgroups_open(processes->cgroups, path, err);
	md_error_set(err, MD_ERR_NOT_FOUND, "%.300s: this daemon makes no cgroups", path);
	return NULL;
}

bool md_engine_processes_has_left(const struct md_engine_processes *processes)
{
	return processes->left;
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
	free_left(processes);
	md_cgroups_destroy(processes->cgroups);
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

void md_engine_processes_use_cgroups(struct md_engine_processes *processes, struct md_cgroups *cgroups)
{
	processes->cgroups = cgroups;
}

void md_engine_processes_listen(struct md_engine_processes *processes, uint64_t inode)
{
	processes->listens = inode;
}

uint64_t md_engine_processes_listens(const struct md_engine_processes *processes)
{
	return processes->listens;
}

/* ---- starting ---- */

static void enter(struct md_engine_processes *processes, struct md_engine_process *made, bool helper,
		  void (*ended)(void *context, int status), void *context)
{
	made->helper = helper;
	made->processes = processes;
	made->next = processes->first;
	made->ended = ended;
	made->context = context;
	processes->first = made;
	tell_keeper(made);
}

static void say_without(const char *model, const char *why)
{
	md_warn("model %s: its engine has no cgroup of its own, and is known by its process group: %s", model, why);
}

/* NULL: there are none, or it is said why it can't be had. */
static struct md_cgroup *make_cgroup(const struct md_engine_processes *processes, const char *model)
{
	struct md_error err;
	struct md_cgroup *made = processes->cgroups && model ? md_cgroup_create(processes->cgroups, model, &err) : NULL;
	if (processes->cgroups && model && !made)
		say_without(model, err.message);
	return made;
}

/* As md_process_spawn; a start never fails for want of a cgroup. */
static int spawn(struct md_engine_process *made, const struct md_engine_command *command, char *const *environment)
{
	made->cgroup = make_cgroup(made->processes, command->model);
	if (made->cgroup) {
		int failure = md_process_spawn_into(md_cgroup_folder(made->cgroup), command, environment, &made->pid);
		if (failure >= 0)
			return failure;
		say_without(command->model, strerror(errno));
		remove_cgroup(made);
	}
	return md_process_spawn(command, environment, &made->pid);
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
	made->processes = processes;
	int failure = spawn(made, command, (char *const *)environment);
	if (failure) {
		remove_cgroup(made);
		return md_error_set(err, failure == ENOMEM ? MD_ERR_NO_MEMORY : MD_ERR_NOT_FOUND,
				    "could not be started: %.200s: %s", command->argv[0], strerror(failure));
	}
	enter(processes, made, command->helper, ended, context);
	*process = md_steal_ptr(&made);
	return MD_OK;
}

enum md_status md_engine_process_adopt(struct md_engine_processes *processes, pid_t pid, int pidfd,
				       void (*ended)(void *context, int status), void *context,
				       struct md_engine_process **process, struct md_error *err)
{
	for (const struct md_engine_process *at = processes->first; at; at = at->next)
		if (at->pid == pid && !at->vanished)
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

void md_engine_process_keep_cgroup(struct md_engine_process *process, struct md_cgroup *cgroup)
{
	process->cgroup = cgroup;
	md_engine_keeper_add_cgroup(process->processes->keeper, process->pid, md_cgroup_path(cgroup));
}

void md_engine_process_enclose(struct md_engine_process *process, const char *model)
{
	struct md_cgroup *made = make_cgroup(process->processes, model);
	if (made && md_cgroup_folder_take(md_cgroup_folder(made), process->pid)) {
		md_engine_process_keep_cgroup(process, made);
	} else if (made) {
		say_without(model, strerror(errno));
		md_cgroup_remove(made);
	}
}

const struct md_cgroup *md_engine_process_cgroup(const struct md_engine_process *process)
{
	return process->cgroup;
}

pid_t md_engine_process_id(const struct md_engine_process *process)
{
	return process->pid;
}

void md_engine_process_signal(const struct md_engine_process *process, int signal)
{
	if (signal == SIGKILL)
		kill_all(process);
	else if (!process->vanished)
		kill(-process->pid, signal);
}

/* The next daemon would start engines beside it. */
static bool is_killed_group_left(const struct md_engine_process *process)
{
	return !process->vanished && md_process_group_lives(process->pid);
}

void md_engine_process_kill(struct md_engine_process *process)
{
	struct pollfd gone = {.fd = process->pidfd, .events = POLLIN};
	struct timespec pause = {.tv_nsec = LOOK_MS * 1000000};
	kill_all(process);
	if (process->pidfd >= 0)
		poll(&gone, 1, KILLED_MS);
	else if (!process->vanished)
		waitpid(process->pid, NULL, 0);
	for (unsigned i = 0; i < KILLED_MS / LOOK_MS && (is_populated(process) || is_killed_group_left(process)); i++)
		nanosleep(&pause, NULL);
	leave(process);
	free_process(process);
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
