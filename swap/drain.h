/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for the work of all contexts with a deadline, which the driver's own wait does not have. */
#ifndef MD_SWAP_DRAIN_H
#define MD_SWAP_DRAIN_H

#include <stdint.h>

#include "base/status.h"

/*
 * begun: the time from which deadline_ns counts. MD_ERR_TIMEOUT: the work goes on, and a thread of Medusa waits for it;
 * until that thread has returned, every further call fails.
 */
enum md_status md_swap_drain(uint64_t begun, uint64_t deadline_ns, struct md_error *err);

#endif
