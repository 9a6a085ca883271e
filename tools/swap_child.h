/* SPDX-License-Identifier: Apache-2.0 */
/* Processes beside medusa-swap run that are medusa-swap itself, with a connection to it. */
#ifndef MD_TOOLS_SWAP_CHILD_H
#define MD_TOOLS_SWAP_CHILD_H

#include "tools/swap_server.h"

/* Descriptors in the process. */
#define MD_SWAP_CHILD_CONNECTION 3
#define MD_SWAP_CHILD_BESIDE 4

/*
 * Starts medusa-swap with the word as its only argument, in a session of its own; beside: a descriptor that it also gets, or
 * -1. The new client of the server has the role.
 */
enum md_status md_swap_child_start(struct md_swap_server *s, const char *word, enum md_swap_role role, int beside,
				   struct md_swap_client **made, struct md_error *err);
/* Called when such a process has ended, or was killed: it is reaped now or by one of the next calls. */
void md_swap_child_reap(struct md_swap_server *s, pid_t pid);
void md_swap_child_reap_all(struct md_swap_server *s);

#endif
