/* SPDX-License-Identifier: Apache-2.0 */
/* POST /api/models/load/NAME, /api/models/unload and /api/models/unload/NAME; and GET /unload: orders that take time. */
#ifndef MD_WORKER_PAGE_PAGE_ORDERS_H
#define MD_WORKER_PAGE_PAGE_ORDERS_H

#include "worker/core/worker.h"

/* False: it is another path. */
bool md_page_orders_take(struct md_worker *worker, struct md_http_exchange *exchange, const char *path);
/* Unloads a model (NULL: all), and answers when that is done: "OK", or {"msg": "ok"}. */
void md_page_orders_unload(struct md_worker *worker, struct md_http_exchange *exchange, struct md_model *model,
			   bool as_json);

/* True: the request is of another site's page in a browser, and was told that it may not do that: "unload models". */
bool md_page_orders_refuse_other_site(struct md_http_exchange *exchange, const char *what);

#endif
