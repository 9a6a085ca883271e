/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's medusa-backbone, which engines of models with `share: on` or `auto` are told of. */
#ifndef MD_WORKER_CORE_NODE_BROKER_H
#define MD_WORKER_CORE_NODE_BROKER_H

#include "base/status.h"

struct md_node_broker;
struct md_worker;

/*
 * Before models are made. folder: where the socket lies, the same for each daemon whose engines this one may adopt; not looked at
 * if the daemon has no such place. medusa-backbone is started when the first model wants it, and ends with the daemon.
 */
enum md_status md_node_broker_begin(struct md_worker *worker, const char *folder, struct md_error *err);
/* Engines have ended, or are left to the next daemon. */
void md_node_broker_end(struct md_worker *worker);
/* "MEDUSA_BACKBONE=...", for the environment of an engine; lives as long as the daemon. Starts medusa-backbone if need be. */
enum md_status md_node_broker_variable(struct md_worker *worker, const char **variable, struct md_error *err);
/* How often medusa-backbone was started; 0: nobody wanted it. */
unsigned md_node_broker_starts(const struct md_worker *worker);

#endif
