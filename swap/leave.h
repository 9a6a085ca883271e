/* SPDX-License-Identifier: Apache-2.0 */
/* A process that ends while its memory is out, or while that is being changed. */
#ifndef MD_SWAP_LEAVE_H
#define MD_SWAP_LEAVE_H

#include <stdbool.h>

/*
 * exit() runs handlers of the engine and of libraries that call the driver. While the memory is out, these calls would
 * wait at the gate for ever. So a handler of ours is run before theirs: it waits for what our thread is doing, lets it
 * do no more, and abandons the gate if the memory is out (md_swap_gate_abandon). Handlers run in reverse order of
 * registration, so ours is registered each time the memory goes out, and removed when it has come back.
 */
void md_swap_leave_watch(void); /* once in a process: nothing of ours runs while the driver ends */
void md_swap_leave_arm(void);
void md_swap_leave_disarm(void);
/* Around what our thread does; while the process ends, hold does not return. */
void md_swap_leave_hold(void);
void md_swap_leave_release(void);
void md_swap_leave_is_out(bool out);
/* In the child of a fork. */
void md_swap_leave_renew(void);

#endif
