/* SPDX-License-Identifier: Apache-2.0 */
/* The process of a command: its variables, and its start. */
#ifndef MD_WORKER_ENGINE_PROCESS_SPAWN_H
#define MD_WORKER_ENGINE_PROCESS_SPAWN_H

#include "worker/engine/process.h"

/* This process's variables, with `extra`: texts are borrowed, the list is the caller's. NULL: out of memory. */
const char **md_process_environment(const char *const *extra);
/* 0, or the errno that says why the command could not be run; then there is no process. */
int md_process_spawn(const struct md_engine_command *command, char *const *environment, pid_t *pid);

#endif
