/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which engines have the same constant memory once (`share: auto`), as medusa-backbone says: the scheduler counts it once. An
 * engine that wants memory of its own in the place of it has to wait until the scheduler has room for that.
 */
#ifndef MD_WORKER_CORE_SHARERS_H
#define MD_WORKER_CORE_SHARERS_H

#include "base/status.h"

struct md_model;
struct md_worker;

/* Watches the daemon's medusa-backbone, which serves at this socket (borrowed) and may be started anew. */
enum md_status md_sharers_begin(struct md_worker *worker, const char *socket, struct md_error *err);
void md_sharers_end(struct md_worker *worker);
/* The scheduler knows that the engine's memory is on its GPU: it is told what of it is shared. */
void md_sharers_are_there(struct md_model *model);
/* The engine has no memory any more. */
void md_sharers_are_gone(struct md_model *model);
/* All events have been told to the scheduler: engines that wait for room are answered. */
void md_sharers_look(struct md_worker *worker);

#endif
