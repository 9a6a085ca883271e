/* SPDX-License-Identifier: Apache-2.0 */
/* Whose process listens at an engine's address, found on a thread: it takes long where many processes have many files. */
#ifndef MD_WORKER_ENGINE_PORT_SEARCH_H
#define MD_WORKER_ENGINE_PORT_SEARCH_H

#include <event2/event.h>
#include <stdint.h>
#include <sys/types.h>

struct md_port_search;

/*
 * inode: of md_port_listener. `found` is called from the loop, with what md_port_foreign_owner returns; the search is no longer
 * there then. NULL: it could not be begun, for want of memory, a descriptor or a thread.
 */
struct md_port_search *md_port_search_begin(struct event_base *base, uint64_t inode, pid_t group, const char *mark,
					    void (*found)(void *context, pid_t owner), void *context);
void md_port_search_forget(struct md_port_search *search); /* `found` is not called; nobody waits. NULL is fine */

#endif
