/* SPDX-License-Identifier: Apache-2.0 */
/* What clients may take: connections, memory for what they send, and time in which they take nothing of their answers. */
#ifndef MD_WORKER_CORE_CLIENTS_H
#define MD_WORKER_CORE_CLIENTS_H

#include "worker/core/worker.h"

/*
 * The limits of the configuration. Of the descriptors that are left, some are kept back for engines, and of the others
 * each connection may need two; if these are fewer than the configuration allows, the log says so.
 */
void md_clients_limits(const struct md_worker_config *config, struct md_http_limits *limits);
/* Now and then: while requests wait, those whose clients take nothing of their answers end. */
void md_clients_look(struct md_worker *worker);

#endif
