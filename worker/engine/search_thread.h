/* SPDX-License-Identifier: Apache-2.0 */
/* A question to the system that takes long, such as one about all processes, asked on a thread. */
#ifndef MD_WORKER_ENGINE_SEARCH_THREAD_H
#define MD_WORKER_ENGINE_SEARCH_THREAD_H

#include <event2/event.h>

struct md_search_thread;

/*
 * `search` is called on a thread with `state`, which is from malloc and taken over; then `found` from the loop with both, and the
 * search is no longer there after that. NULL: it could not be begun, for want of memory, a descriptor or a thread, and state was freed.
 */
struct md_search_thread *md_search_thread_begin(struct event_base *base, void (*search)(void *state), void *state,
						void (*found)(void *context, const void *state), void *context);
void md_search_thread_forget(struct md_search_thread *search); /* `found` is not called; nobody waits. NULL is fine */

#endif
