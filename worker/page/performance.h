/* SPDX-License-Identifier: Apache-2.0 */
/* GET /api/performance: samples of the machine and of its GPUs, as llama-swap has them. */
#ifndef MD_WORKER_PAGE_PERFORMANCE_H
#define MD_WORKER_PAGE_PERFORMANCE_H

struct md_http_exchange;
struct md_performance;
struct md_worker;

struct md_performance *md_performance_create(struct md_worker *worker); /* NULL: out of memory */
void md_performance_destroy(struct md_performance *performance);        /* NULL is fine */
void md_performance_answer(struct md_performance *performance, struct md_http_exchange *exchange);

#endif
