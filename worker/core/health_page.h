/* SPDX-License-Identifier: Apache-2.0 */
/* /health: whether requests are served, and with ?model=NAME whether the engine of that model answers. */
#ifndef MD_WORKER_CORE_HEALTH_PAGE_H
#define MD_WORKER_CORE_HEALTH_PAGE_H

#include "http/front.h"

struct md_worker;

/* Ends the exchange, with a model later than this call: its engine is asked. No engine is started for it. */
void md_health_page_answer(struct md_worker *worker, struct md_http_exchange *exchange);

#endif
