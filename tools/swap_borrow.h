/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between two medusa-swap run: one asks all others whether their engines lend memory, for an engine that comes in with
 * --gpu-peers; the other one hands the connection to its engine (swap/lending.h).
 */
#ifndef MD_TOOLS_SWAP_BORROW_H
#define MD_TOOLS_SWAP_BORROW_H

#include "tools/swap_server.h"

/*
 * Asks all others for connections to their engines, which come through a descriptor that is to be sent to the engine, and
 * closed. Never waits. -1: there is none.
 */
int md_swap_borrow_ask(const struct md_swap_server *s);
/* The client is a borrower, and has sent its connection along: that goes to the engine, or is closed. */
void md_swap_borrow_lend(struct md_swap_server *s, struct md_swap_client *client);

#endif
