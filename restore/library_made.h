/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What communication libraries make in this process: memory is bound by the names that a capture gives it (driver/maker.h), and
 * events are known by their order. Nothing here happens unless the caller lies in such a library.
 */
#ifndef MD_RESTORE_LIBRARY_MADE_H
#define MD_RESTORE_LIBRARY_MADE_H

#include "restore/restore.h"

/* caller: the return address of the hook. No lock of ours is held. size 0: the driver tells it. */
void md_restore_made(const void *caller, uint64_t address, uint64_t size);
/*
 * What processes share that no library made, if this one is one of several ranks: own, it exports memory; else it has opened another
 * one's. size as above. Mappings are shared by their handles.
 */
void md_restore_made_shared(const void *caller, uint64_t address, uint64_t size, bool own);
/* The device sees host memory at this address. */
void md_restore_made_seen(const void *caller, uint64_t host, uint64_t device);
/* The memory was freed or unmapped; or a handle to it closed, which may be open once more. */
void md_restore_made_gone(uint64_t address, uint64_t size);
void md_restore_made_closed(uint64_t address);

void md_restore_made_event(const void *caller, CUevent event);
void md_restore_made_event_gone(CUevent event);

/* A name of the library with which the graph communicates; NULL: it does not. */
const char *md_restore_made_library(const struct md_restore *r, const struct md_restore_graph *graph);
/* Whether the library has made the same memory as in the capture, as far as the artifact knows it. */
enum md_status md_restore_made_check(const struct md_restore *r, const char *library,
				     struct md_error *err) MD_RESTORE_HELD;
/* The event of a node that records one of the library's. */
enum md_status md_restore_made_event_of(const struct md_restore *r, const struct md_restore_graph *graph,
					const struct md_node *node, CUevent *out, struct md_error *err);

void md_restore_made_renew(void);

#endif
