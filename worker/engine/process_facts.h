/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of a process: when it began, whose it is, and a variable of its environment. */
#ifndef MD_WORKER_ENGINE_PROCESS_FACTS_H
#define MD_WORKER_ENGINE_PROCESS_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Clock ticks since the machine began (field 22 of /proc/PID/stat): with the ID, this names one process. 0: unknown. */
uint64_t md_process_began(pid_t pid);
/* Whether its effective user is that of this process. */
bool md_process_is_ending(pid_t pid); /* it has ended, or is about to: the system takes away what it has */
bool md_process_is_own(pid_t pid);
/*
 * Whether a process of this group has not ended. One that has ended, and that its parent does not wait for, is of no
 * account: what it had is free. True if that cannot be found out. Looks at all processes of the machine, so it is for other
 * threads than the loop's (search_thread.h).
 */
bool md_process_group_lives(pid_t group);
/* Whether it is a child of this process, also if it has ended and was not waited for. */
bool md_process_is_child(pid_t pid);
/* A variable as it was when the process began its program. "": it has none, or it may not be read. */
void md_process_variable(pid_t pid, const char *name, char *value, size_t size);
/* A descriptor that can be read when the process has ended (pidfd_open(2)). -1 and errno on failure. */
int md_process_open(pid_t pid);
/* This boot of the machine, which process IDs and ticks belong to. "": unknown. */
void md_process_boot(char *id, size_t size);

#endif
