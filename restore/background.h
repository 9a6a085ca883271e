/* SPDX-License-Identifier: Apache-2.0 */
/* The background thread, from its start to its end, and how others wait for it. */
#ifndef MD_RESTORE_BACKGROUND_H
#define MD_RESTORE_BACKGROUND_H

#include "restore/restore.h"

/* Reads the environment once. */
void md_restore_init(void);
/* Called in a child: makes the locks of the hooks anew. */
void md_restore_hooks_renew(void);
/* Starts restoring in context (which exists); later calls do nothing. */
void md_restore_start(CUcontext context);
/* Stops the background and takes everything down; the context is still alive. reason says why graphs are gone. */
void md_restore_stop(const char *reason);
/* Gives back to the device what no ready graph uses. */
void md_restore_settle(struct md_restore *r) MD_REQUIRES(md_restore_work);
/* Waits until the artifact is open or failed; false when deadline_ns passed. */
bool md_restore_wait_open(struct md_restore *r, uint64_t deadline_ns) MD_REQUIRES(md_restore_lock);
/* A thread begins (+1) or ends (-1) a piece of work. */
void md_restore_busy(struct md_restore *r, int change) MD_REQUIRES(md_restore_lock);
/* Waits for a change; false when deadline_ns (CLOCK_MONOTONIC, UINT64_MAX never) passed. */
bool md_restore_wait(struct md_restore *r, uint64_t deadline_ns) MD_REQUIRES(md_restore_lock);

/* On a thread of ours. False: it has no context, or would break captures of the engine; it must do nothing then. */
bool md_restore_thread_enter(struct md_restore *r, const char *name);

#endif
