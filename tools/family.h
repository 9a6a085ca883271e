/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of a command, by /proc: who started whom, and how to end them all. */
#ifndef MD_TOOLS_FAMILY_H
#define MD_TOOLS_FAMILY_H

#include <sys/types.h>

/* The command that we started, of which this process is a part; itself, if it has left us. */
pid_t md_family_command_of(pid_t pid);
/* SIGTERM for both; what they and all they have started make of it in three seconds, then SIGKILL. */
void md_family_end(pid_t command, pid_t other);
/*
 * The command was told to end, and has: what it left behind gets the same signal (0: it has it already, of a
 * terminal), and SIGKILL three seconds later. Daemons, which have made a session of their own, go on.
 */
void md_family_end_left(int number);

/* Sleeps between two looks at a process. */
void md_family_wait_ms(long ms);

#endif
