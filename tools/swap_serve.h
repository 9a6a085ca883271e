/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-swap run, beside the engine: knows the engine's processes, hands out the pool, and carries out commands. */
#ifndef MD_TOOLS_SWAP_SERVE_H
#define MD_TOOLS_SWAP_SERVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

struct md_swap_server;

/* Which pool the engine uses. */
struct md_swap_serve_pool {
	int fd;               /* of one that several engines share, taken over; -1: one of its own is made */
	uint64_t bytes;       /* of its own */
	bool stays_out;       /* what is out when this process is killed or told to end does not come back */
	bool share_constant;  /* constant memory may be one that other engines have (swap/merge.h) */
	bool neighbours;      /* the carrier (tools/swap_carrier.h) is started with the engine */
	bool peers;           /* the same; and the engine lends its memory to engines on other GPUs */
	bool populated;       /* its own: all pages get memory at once. Else twice as many as the engine has */
	int spill_fd;         /* of the shared pool's spill file, taken over; -1: none */
	const char *spill;    /* folder for the spill file of its own; NULL: none */
	uint64_t spill_bytes; /* at most; 0: half of what is free there */
};

/*
 * Makes or opens the pool, and listens under the name; *path, the socket, belongs to the server. From then on a thread
 * serves, and another one gives the pool's pages memory.
 */
enum md_status md_swap_serve_start(const char *name, const struct md_swap_serve_pool *pool,
				   struct md_swap_server **server, const char **path, struct md_error *err);
/* True while a process of the engine is connected; *pid is one of them. */
bool md_swap_serve_has_engine(struct md_swap_server *server, pid_t *pid);
/* Ends the threads, and removes the socket. NULL is allowed. */
void md_swap_serve_stop(struct md_swap_server *server);

#endif
