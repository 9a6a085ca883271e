/* SPDX-License-Identifier: Apache-2.0 */
/* /metrics: what Prometheus collects, printed on a thread, because it is long where there are many models. */
#ifndef MD_WORKER_CORE_METRICS_PAGE_H
#define MD_WORKER_CORE_METRICS_PAGE_H

struct md_http_exchange;
struct md_metrics_page;
struct md_worker;

struct md_metrics_page *md_metrics_page_create(struct md_worker *worker); /* NULL: out of memory */
void md_metrics_page_destroy(struct md_metrics_page *page);               /* no exchange is left; NULL is fine */
void md_metrics_page_answer(struct md_metrics_page *page, struct md_http_exchange *exchange);

#endif
