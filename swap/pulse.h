/* SPDX-License-Identifier: Apache-2.0 */
/* Says to medusa-swap run, each second, that work which it has asked for has begun and goes on. */
#ifndef MD_SWAP_PULSE_H
#define MD_SWAP_PULSE_H

#include <stdint.h>

#include "base/descriptor.h"

/*
 * Sends {"id": ID, "pulse": true, "steps": N} at once, and each second from then on, by a thread of its own, until
 * md_swap_pulse_end. So a process that is stopped is told from one that works for long; and a process whose call of the
 * driver does not return, by the number of steps, which stays the same. One piece of work at a time.
 */
void md_swap_pulse_begin(const struct md_descriptor *connection, uint64_t id);
/* No line is sent after this has returned. */
void md_swap_pulse_end(void);
/* A call of the driver, or another part of the work, is done. From any thread; costs next to nothing. */
void md_swap_pulse_step(void);

#endif
