/* SPDX-License-Identifier: Apache-2.0 */
/* GET /api/events: what the status page shows, as server-sent events, when it has changed. */
#ifndef MD_WORKER_PAGE_PAGE_EVENTS_H
#define MD_WORKER_PAGE_PAGE_EVENTS_H

#include <jansson.h>

#include "worker/core/worker.h"

/*
 * "event:message\ndata:{"type": TYPE, "data": TEXT}\n\n", where TEXT is JSON. Types: "modelStatus", as of llama-swap:
 * [{"id", "name", "description", "state", "unlisted", "peerID", "aliases"}]; "medusa": md_page_events_state.
 */
void md_page_events_take(struct md_worker *worker, struct md_http_exchange *exchange);
/* md_report_status, with "models" of md_report_models. The caller owns the reference; NULL: out of memory. */
json_t *md_page_events_state(const struct md_worker *worker);

#endif
