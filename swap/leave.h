/* SPDX-License-Identifier: Apache-2.0 */
/* What happens when a process ends while its memory is out, or is going out or coming in. */
#ifndef MD_SWAP_LEAVE_H
#define MD_SWAP_LEAVE_H

#include <stdbool.h>

/*
 * exit() runs handlers of the engine and of libraries, which call the driver. While the memory is out, these calls would
 * wait at the gate for ever. Therefore a handler of ours runs before theirs. Our handler waits for the current step of
 * our thread, stops the thread, and abandons the gate if the memory is out (md_swap_gate_abandon). Handlers run in
 * reverse order of registration, so ours is registered each time the memory goes out, and removed when it has come back.
 */
void md_swap_leave_watch(void); /* once in a process: nothing of ours runs while the driver ends */
void md_swap_leave_arm(void);
void md_swap_leave_disarm(void);
/* Called around the steps of our thread. While the process ends, hold does not return. */
void md_swap_leave_hold(void);
void md_swap_leave_release(void);
void md_swap_leave_is_out(bool out);
/* In the child of a fork. */
void md_swap_leave_renew(void);

#endif
