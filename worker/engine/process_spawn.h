/* SPDX-License-Identifier: Apache-2.0 */
/* The process of a command: its variables, and two ways to start it: in this process's cgroup, and in another one. */
#ifndef MD_WORKER_ENGINE_PROCESS_SPAWN_H
#define MD_WORKER_ENGINE_PROCESS_SPAWN_H

#include "worker/engine/process.h"

/* This process's variables, with `extra`: texts are borrowed, the list is the caller's. NULL: out of memory. */
const char **md_process_environment(const char *const *extra);
/* 0, or the errno that says why the command could not be run; then there is no process. */
int md_process_spawn(const struct md_engine_command *command, char *const *environment, pid_t *pid);
/* The same; the process begins in that cgroup (cgroup_folder.h). -1 and errno: none could be made there. */
int md_process_spawn_into(int cgroup, const struct md_engine_command *command, char *const *environment, pid_t *pid);

#endif
