/* SPDX-License-Identifier: Apache-2.0 */
/* What the worker answers by itself: lists of models, states, health, logs, unloading. */
#ifndef MD_WORKER_CORE_PAGES_H
#define MD_WORKER_CORE_PAGES_H

#include "worker/core/worker.h"

/* False: no page has this path; nothing was answered. */
bool md_pages_take(struct md_worker *worker, struct md_http_exchange *exchange, const char *path);

#endif
