/* SPDX-License-Identifier: Apache-2.0 */
/* A command in a process group of its own: started, told to end, and seen to end. */
#ifndef MD_WORKER_ENGINE_PROCESS_H
#define MD_WORKER_ENGINE_PROCESS_H

#include <event2/event.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

struct md_engine_process;

/* Of all processes of one loop. */
struct md_engine_processes;

/* Forks a keeper (keeper.h): call it while there is one thread. */
struct md_engine_processes *md_engine_processes_create(struct event_base *base); /* NULL: out of memory */
/* Kills the processes that still run. NULL is fine. */
void md_engine_processes_destroy(struct md_engine_processes *processes);

struct md_engine_command {
	char *const *argv; /* argv[0] is looked up in PATH */
	const char *const
	    *extra; /* "NAME=VALUE", in addition to this process's environment; ends with NULL. NULL: none */
	int output; /* gets stdout and stderr; borrowed */
};

/*
 * Starts a command: stdin is empty, signals are as at a login, no other descriptor is open in it. `ended` is called from
 * the loop when its first process has ended, with the status of waitpid(2); the process is no longer there then.
 */
enum md_status md_engine_process_start(struct md_engine_processes *processes, const struct md_engine_command *command,
				       void (*ended)(void *context, int status), void *context,
				       struct md_engine_process **process, struct md_error *err);
pid_t md_engine_process_id(const struct md_engine_process *process);
/* To the whole group. */
void md_engine_process_signal(const struct md_engine_process *process, int signal);
/* Kills the whole group; `ended` is not called any more, and the process is no longer there. */
void md_engine_process_kill(struct md_engine_process *process);
/* A sentence without its end: "ended with exit code 1", "was killed by SIGKILL (Killed)". */
void md_engine_process_describe(int status, char *text, size_t size);

#endif
