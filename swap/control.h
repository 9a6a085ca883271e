/* SPDX-License-Identifier: Apache-2.0 */
/* A thread in the engine's process that takes the memory away and gives it back when medusa-swap run says so. */
#ifndef MD_SWAP_CONTROL_H
#define MD_SWAP_CONTROL_H

/*
 * Called when the process has a context, as often as one likes. Starts the thread, once in each process, if
 * MEDUSA_SWAP_CONTROL names the socket of medusa-swap run.
 */
void md_swap_control_start(void);

#endif
