/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a cgroup of version 2: who is in it, and the end of all who are. */
#ifndef MD_WORKER_ENGINE_CGROUP_FOLDER_H
#define MD_WORKER_ENGINE_CGROUP_FOLDER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A descriptor of the folder; -1 and errno: there is none, or it is no cgroup of version 2. */
int md_cgroup_folder_open(const char *path);
/* SIGKILL to all processes in it and below it, also those that are being forked (cgroup.kill, Linux 5.14). */
bool md_cgroup_folder_kill(int folder);
/* Whether any process lives in it or below it. One that was removed has none. */
bool md_cgroup_folder_is_populated(int folder);
/*
 * As fork(2), and the child is in the cgroup from its beginning; this process waits until it ends or runs another program.
 * The child calls what a handler of signals may call, and nothing else. -1: errno says why.
 */
pid_t md_cgroup_folder_fork(int folder);
/*
 * The same without a copy of this process's memory, which takes long where that is large: as vfork(2), the child runs `run`, which does
 * not return, in the memory of the parent, and ends or runs another program before the parent goes on.
 */
pid_t md_cgroup_folder_spawn(int folder, void (*run)(void *context), void *context);
bool md_cgroup_folder_take(int folder, pid_t pid); /* moves the process into it; false: errno says why not */
/* Host memory that it uses, with the page cache of what it reads. False: it is not counted. */
bool md_cgroup_folder_memory(int folder, uint64_t *bytes);
bool md_cgroup_folder_count_memory(int folder); /* from now on, of the folders in it */
/* Also the folders that its processes have made in it. True: it is not there any more; false: a process lives in it. */
bool md_cgroup_folder_remove(const char *path);

#endif
