/* SPDX-License-Identifier: Apache-2.0 */
/* Whose process listens at an engine's address, found on a thread: it takes long where many processes have many files. */
#ifndef MD_WORKER_ENGINE_PORT_SEARCH_H
#define MD_WORKER_ENGINE_PORT_SEARCH_H

#include <stdint.h>
#include <sys/types.h>

#include "worker/engine/search_thread.h"

/*
 * inode: of md_port_listener. `found` is called from the loop, and md_port_search_owner of its state is what md_port_foreign_owner
 * returns. NULL: see md_search_thread_begin.
 */
struct md_search_thread *md_port_search_begin(struct event_base *base, uint64_t inode, pid_t group, const char *mark,
					      void (*found)(void *context, const void *state), void *context);
pid_t md_port_search_owner(const void *state);

#endif
