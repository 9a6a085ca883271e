/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The carrier: a process beside medusa-swap run that has contexts on neighbours of the engine's GPU, and copies a part of the
 * engine's memory over their links. The engine tells it what to copy, over a connection for each time (swap/carry_wire.h).
 */
#ifndef MD_TOOLS_SWAP_CARRIER_H
#define MD_TOOLS_SWAP_CARRIER_H

#include "tools/swap_server.h"

#define MD_SWAP_CARRIER_WORD "carrier-of-run" /* what medusa-swap is told to be it by */

/* The main() of that process. Returns the exit code. */
int md_swap_carrier_main(void);

/* ---- for medusa-swap run ---- */

/* Starts it if it does not run, and has it get ready for an engine on this GPU. Without it, memory comes over one link. */
void md_swap_carrier_prepare(struct md_swap_server *s, const char *gpu);
/*
 * A connection to it for this engine, whose memory is to come in: a descriptor to be sent and closed; so is *lenders, through
 * which connections to other engines come (-1: none do). -1: the command does not ask for it, another process of the engine
 * gets it, or it cannot be started.
 */
int md_swap_carrier_give(struct md_swap_server *s, const struct md_swap_client *engine, int *lenders);
/* What it says of its neighbours. */
void md_swap_carrier_hear(struct md_swap_server *s, const struct md_swap_message *message);
/* Kills it. Memory of the engine that it has mapped is free once it has ended. */
void md_swap_carrier_end(struct md_swap_server *s);

#endif
