/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of what runs or is under way that the scheduler asks for, because nobody wants it or its end does not come. */
#ifndef MD_SCHEDULER_CORE_ABORT_H
#define MD_SCHEDULER_CORE_ABORT_H

#include "scheduler/core/state.h"

/*
 * What is on a GPU when an end does not come? Perhaps the event was lost and the memory is free; perhaps the engine
 * hangs and still uses it. So the request goes on without it (it waits again, or is rejected), and a *stray* of it stays
 * in the batch with the KV memory and the pins, until the node says that this has stopped. Likewise a late transfer keeps
 * its bytes. The node is asked again and again.
 */

/* Asks the node to stop a running request. These functions return false when out of memory: nothing has changed. */
bool md_abort_request(struct medusa_sched *s, uint32_t request, enum medusa_sched_reason reason);
bool md_run_lost(struct medusa_sched *s, uint32_t request); /* its end does not come */
bool md_stray_ask(struct medusa_sched *s, uint32_t stray);
bool md_transfer_lost(struct medusa_sched *s, uint32_t transfer); /* likewise; also when asked again */
/*
 * Asks the node to end a copy in, whose source or place has failed: nothing new counts on it, and it stays in the books
 * until the node says what became of it. The runs that wait for it go on if it arrives all the same.
 */
bool md_transfer_end(struct medusa_sched *s, uint32_t transfer);
/* The node says that this request of the batch has stopped: ends its stray, if it has one there. */
void md_stray_done(struct medusa_sched *s, uint32_t batch, uint64_t id);

#endif
