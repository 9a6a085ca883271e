/* SPDX-License-Identifier: Apache-2.0 */
/* The pages and answers that are long where there are many models: each is made by a printer. */
#ifndef MD_WORKER_CORE_LONG_PAGES_H
#define MD_WORKER_CORE_LONG_PAGES_H

#include "worker/core/printer.h"

enum md_page {
	MD_PAGE_METRICS,
	MD_PAGE_MODEL_LIST,
	MD_PAGE_UPSTREAMS,
	MD_PAGE_RUNNING,
	MD_PAGE_STATE,        /* /api/status */
	MD_PAGE_STATE_EVENT,  /* the same as an event */
	MD_PAGE_MODELS_EVENT, /* llama-swap's list of models as one */
	MD_PAGE_LOGS,
	MD_PAGE_CONTROL_STATUS, /* results for the control socket */
	MD_PAGE_CONTROL_MODELS,
	MD_PAGE_CONTROL_TRACE,
	MD_PAGE_CLUSTER_MODELS,
	MD_PAGES,
};

struct md_pages;

struct md_pages *md_long_pages_create(struct md_worker *worker); /* NULL: out of memory */
void md_long_pages_destroy(struct md_pages *pages);              /* nothing is ordered any more; NULL is fine */
struct md_printer *md_long_pages_get(struct md_pages *pages, enum md_page page);
void md_long_pages_answer(struct md_pages *pages, enum md_page page, struct md_http_exchange *exchange);

#endif
