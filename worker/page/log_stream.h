/* SPDX-License-Identifier: Apache-2.0 */
/* GET /logs/stream and /logs/stream/NAME: what engines print, as they print it. */
#ifndef MD_WORKER_PAGE_LOG_STREAM_H
#define MD_WORKER_PAGE_LOG_STREAM_H

#include "worker/core/worker.h"

/* The last 100 KiB (not with ?no-history), and then what comes; without NAME: of all models. False: another path. */
bool md_log_stream_take(struct md_worker *worker, struct md_http_exchange *exchange, const char *path);

#endif
