/* SPDX-License-Identifier: Apache-2.0 */
/* The status page: one file, which asks for what it shows. */
#ifndef MD_WORKER_PAGE_STATUS_PAGE_H
#define MD_WORKER_PAGE_STATUS_PAGE_H

#include "worker/core/worker.h"

extern const char md_page_bytes[]; /* ends with a NUL */

/* True: it is the path of the status page, of events, of a log's stream or of an order; then it was taken. */
bool md_page_take(struct md_worker *worker, struct md_http_exchange *exchange, const char *path);
/* Whether the path needs no key: the page holds nothing of the daemon's. */
bool md_page_is_open(const struct md_http_head *head, const char *path);

#endif
