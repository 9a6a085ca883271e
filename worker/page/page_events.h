/* SPDX-License-Identifier: Apache-2.0 */
/* GET /api/events: what the status page shows, as server-sent events, when it has changed. */
#ifndef MD_WORKER_PAGE_PAGE_EVENTS_H
#define MD_WORKER_PAGE_PAGE_EVENTS_H

#include <jansson.h>

#include "worker/core/model_rows.h"

/*
 * "event:message\ndata:{"type": TYPE, "data": TEXT}\n\n", where TEXT is JSON. Types: "modelStatus", as of llama-swap:
 * [{"id", "name", "description", "state", "unlisted", "peerID", "aliases"}]; "medusa": md_report_status, with "models" of
 * md_report_models.
 */
void md_page_events_take(struct md_worker *worker, struct md_http_exchange *exchange);

/* The contents of modelStatus; the caller owns the reference. */
json_t *md_page_events_models(const struct md_model_rows *rows);
/* An event as a text; takes over the reference. False: out of memory. */
bool md_page_events_print(const char *type, json_t *value, FILE *out);

#endif
