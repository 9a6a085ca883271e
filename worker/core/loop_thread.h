/* SPDX-License-Identifier: Apache-2.0 */
/* Work that may wait, such as reading files, on a thread of its own. */
#ifndef MD_WORKER_CORE_LOOP_THREAD_H
#define MD_WORKER_CORE_LOOP_THREAD_H

#include <event2/event.h>

#include "base/status.h"

struct md_loop_thread;

/* `work` runs on another thread; then `done` is called from the loop, and the work is no longer there. */
enum md_status md_loop_thread_start(struct event_base *base, void (*work)(void *context), void (*done)(void *context),
				    void *context, struct md_loop_thread **background, struct md_error *err);
/* Waits until `work` has ended; `done` is not called. For the end of the daemon; NULL is fine. */
void md_loop_thread_destroy(struct md_loop_thread *background);

#endif
