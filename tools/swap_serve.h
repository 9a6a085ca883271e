/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-swap run, beside the engine: knows the engine's processes, hands out the pool, and carries out commands. */
#ifndef MD_TOOLS_SWAP_SERVE_H
#define MD_TOOLS_SWAP_SERVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

struct md_swap_server;

/*
 * Makes the pool, and listens under the name; *path, the socket, belongs to the server. From then on a thread serves, and
 * another one gives the pool's pages memory: all pages (populated), or twice as many as the engine has.
 */
enum md_status md_swap_serve_start(const char *name, uint64_t pool_bytes, bool populated,
				   struct md_swap_server **server, const char **path, struct md_error *err);
/* True while a process of the engine is connected; *pid is one of them. */
bool md_swap_serve_has_engine(struct md_swap_server *server, pid_t *pid);
/* Ends the threads, and removes the socket. NULL is allowed. */
void md_swap_serve_stop(struct md_swap_server *server);

#endif
