/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper's process, and what a daemon tells it: messages of a SOCK_SEQPACKET socket. */
#ifndef MD_WORKER_ENGINE_KEEPER_PROCESS_H
#define MD_WORKER_ENGINE_KEEPER_PROCESS_H

#include <limits.h>
#include <stdint.h>

#define MD_KEEPER_NAME "medusa-keeper" /* of the process */

enum md_keeper_word {
	MD_KEEPER_ENGINE = 1, /* a process group that begins, or that a daemon has adopted */
	MD_KEEPER_HELPER,     /* the same of a process that ends by itself, whatever the next daemon adopts */
	MD_KEEPER_REMOVE,     /* a group that has ended */
	MD_KEEPER_SERVES,     /* ms that engines wait for the next daemon; engines that were not adopted end */
	MD_KEEPER_END,        /* the daemon ends: all groups are killed */
	MD_KEEPER_CGROUP,     /* a group that was named has this cgroup, too: md_keeper_cgroup */
};

struct md_keeper_message {
	int32_t word, value;
};

/* As much of the path as there is; a keeper that knows no such word ignores it. */
struct md_keeper_cgroup {
	struct md_keeper_message message; /* value: the group */
	char path[PATH_MAX];              /* without a NUL */
};

/* To a daemon that has connected, with the descriptor of the lock. */
struct md_keeper_greeting {
	int32_t version;
};
#define MD_KEEPER_VERSION 1

/* Descriptors; -1: none. */
struct md_keeper_start {
	int line;     /* to the first daemon */
	int place;    /* the folder */
	int lock;     /* in the folder: held while there is a daemon or a keeper */
	int listener; /* for the next daemon */
};

/* In a process that was just forked: keeps nothing else open, and leaves the daemon's session. */
_Noreturn void md_keeper_process_run(const struct md_keeper_start *start);

#endif
