/* SPDX-License-Identifier: Apache-2.0 */
/* A command in a process group of its own, and in a cgroup if it is an engine: started, told to end, and seen to end. */
#ifndef MD_WORKER_ENGINE_PROCESS_H
#define MD_WORKER_ENGINE_PROCESS_H

#include <event2/event.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

struct md_cgroup;
struct md_cgroups;
struct md_engine_process;

/* Of all processes of one loop. */
struct md_engine_processes;

/*
 * Has a keeper (keeper.h; place: its folder, or NULL): call it while there is one thread. From now on, processes whose
 * parent has ended become children of this process, which is how it learns of the end of those that a template forks.
 * NULL: out of memory.
 */
struct md_engine_processes *md_engine_processes_create(struct event_base *base, const char *place);
/* The keeper kills the processes that still run, if the daemon has served. NULL is fine. */
void md_engine_processes_destroy(struct md_engine_processes *processes);
struct md_engine_keeper *md_engine_processes_keeper(const struct md_engine_processes *processes); /* may be NULL */
/* Where cgroups of engines are made from now on; taken over. NULL: nowhere. */
void md_engine_processes_use_cgroups(struct md_engine_processes *processes, struct md_cgroups *cgroups);
/* The inode of the socket at which this daemon itself listens, so that no engine can; 0: of none. */
void md_engine_processes_listen(struct md_engine_processes *processes, uint64_t inode);
uint64_t md_engine_processes_listens(const struct md_engine_processes *processes);
/*
 * Kills what lives in cgroups of this daemon's place that no process here has: an earlier daemon has left it. md_engine_processes_has_left
 * says whether some still lives; `ended` is called from the loop when none does any more.
 */
void md_engine_processes_clear(struct md_engine_processes *processes, void (*ended)(void *context), void *context);
/* The cgroup at that path, which a daemon of this place has made; the caller's. NULL: err says why not. */
struct md_cgroup *md_engine_processes_find_cgroup(const struct md_engine_processes *processes, const char *path,
						  struct md_error *err);
bool md_engine_processes_has_left(const struct md_engine_processes *processes);

struct md_engine_command {
	char *const *argv; /* argv[0] is looked up in PATH */
	const char *const
	    *extra;        /* "NAME=VALUE", in addition to this process's environment; ends with NULL. NULL: none */
	int output;        /* gets stdout and stderr; borrowed. -1: /dev/null does */
	bool helper;       /* see md_engine_keeper_add */
	const char *model; /* whose engine it is: it gets a cgroup, if there are any; NULL: none */
	const int *
	    inherits; /* descriptors, which are MD_ENGINE_INHERITED and, unless the second one is -1, MD_ENGINE_INHERITED_TOO there. NULL: none */
};
#define MD_ENGINE_INHERITED "3"
#define MD_ENGINE_INHERITED_TOO "4"

/*
 * Starts a command: stdin is empty, signals are as at a login, no descriptor but the ones above is open in it. `ended` is called from
 * the loop when its first process has ended, and nothing is left of its group and cgroup, with the status of waitpid(2) of its first process; the
 * process is no longer there then.
 */
enum md_status md_engine_process_start(struct md_engine_processes *processes, const struct md_engine_command *command,
				       void (*ended)(void *context, int status), void *context,
				       struct md_engine_process **process, struct md_error *err);
/*
 * A process that somebody else has started, and that leads a process group. pidfd: of md_process_open, taken over if it
 * succeeds; -1: it is or becomes a child of this process. Else `ended` gets MD_ENGINE_STATUS_UNKNOWN.
 */
enum md_status md_engine_process_adopt(struct md_engine_processes *processes, pid_t pid, int pidfd,
				       void (*ended)(void *context, int status), void *context,
				       struct md_engine_process **process, struct md_error *err);
#define MD_ENGINE_STATUS_UNKNOWN (-1)
/* Puts such a process into a cgroup for this model's engine, if there are any, before it has begun to be that. */
void md_engine_process_enclose(struct md_engine_process *process, const char *model);
/* The cgroup that it is in already is the process's from now on; taken over. */
void md_engine_process_keep_cgroup(struct md_engine_process *process, struct md_cgroup *cgroup);
const struct md_cgroup *md_engine_process_cgroup(const struct md_engine_process *process); /* NULL: none */
pid_t md_engine_process_id(const struct md_engine_process *process);
/* To the whole group; SIGKILL: to all of the cgroup as well. */
void md_engine_process_signal(const struct md_engine_process *process, int signal);
/* Kills the whole group and cgroup; `ended` is not called any more, and the process is no longer there. */
void md_engine_process_kill(struct md_engine_process *process);
/* A sentence without its end: "ended with exit code 1", "was killed by SIGKILL (Killed)". */
void md_engine_process_describe(int status, char *text, size_t size);

#endif
