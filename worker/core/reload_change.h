/* SPDX-License-Identifier: Apache-2.0 */
/* Makes models what a configuration says that was read anew, in turns of the loop that are short however many there are. */
#ifndef MD_WORKER_CORE_RELOAD_CHANGE_H
#define MD_WORKER_CORE_RELOAD_CHANGE_H

#include "worker/core/worker.h"

struct md_reload_change;

/*
 * config and urls (of all its models) stay until `done`, and config as long as the worker serves by it; peers are taken over. `done` is called
 * later, outside of this call, and the change is no longer there then. NULL: out of memory.
 */
struct md_reload_change *md_reload_change_begin(struct md_worker *worker, const struct md_worker_config *config,
						const struct md_engine_url *urls, struct md_peers *peers,
						void (*done)(void *context, const struct md_reload_result *result),
						void *context);
void md_reload_change_destroy(struct md_reload_change *change);     /* for the end of the daemon; NULL is fine */
bool md_reload_change_joins(const struct md_reload_change *change); /* see md_reload_changes */

#endif
