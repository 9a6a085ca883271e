/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process beside medusa-swap run that asks the driver for checkpoints: it has the driver initialized, without a context,
 * and when medusa-swap run ends, it brings back what is checkpointed.
 */
#ifndef MD_TOOLS_SWAP_DRIVER_H
#define MD_TOOLS_SWAP_DRIVER_H

#include <stdbool.h>

#include "base/status.h"
#include "tools/swap_server.h"

#define MD_SWAP_DRIVER_WORD "driver-of-run" /* what medusa-swap is told to be it by */

/* The main() of that process, which is asked over descriptor 3. Returns the exit code. */
int md_swap_driver_main(void);

/* ---- for medusa-swap run ---- */

/*
 * Asks it to take all processes of the engine (out), or to bring them back, on the GPU that the wish names. Starts it if it
 * does not run, or has just ended. The answer comes as a message of s->driver. False: it was not asked; s->why says why.
 */
bool md_swap_driver_ask(struct md_swap_server *s, bool out);

#endif
