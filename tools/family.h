/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of a command, by /proc: who started whom, and how to end them all. */
#ifndef MD_TOOLS_FAMILY_H
#define MD_TOOLS_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The command that this program started and that the process belongs to; the process itself, if it has detached. */
pid_t md_family_command_of(pid_t pid);
/*
 * The process and all that it has started, itself first; processes that have detached are not found. Returns how many
 * there are, which may be more than `room`; 0: there is no such process.
 */
size_t md_family_tree(pid_t pid, pid_t *pids, size_t room);
/* Processes of this name (of 15 characters at most), without those that another one of them has started; likewise. */
size_t md_family_named(const char *name, pid_t *pids, size_t room);
/*
 * Sends SIGTERM to both, and SIGKILL after three seconds, also to everything they have started, or start meanwhile. False: some have
 * not ended three seconds later.
 */
bool md_family_end(pid_t command, pid_t other);
/*
 * The command was told to end, and has ended: what it left behind gets the same signal (0: a terminal has sent it
 * already), and SIGKILL three seconds later, until a look finds nobody more, or 15 s have passed; who does not end is said on
 * stderr. Daemons, which have a session of their own, go on. Finds all if this program takes in orphans (PR_SET_CHILD_SUBREAPER).
 */
void md_family_end_left(int number);
/* The same for everything that this program has started, daemons too. */
void md_family_end_all(int number);

/* Sleeps between two checks of a process. */
void md_family_wait_ms(long ms);

#endif
