/* SPDX-License-Identifier: Apache-2.0 */
/* What requests and models use, as it happens. */
#ifndef MD_WORKER_ACCOUNTING_ACCOUNT_H
#define MD_WORKER_ACCOUNTING_ACCOUNT_H

#include "worker/core/worker.h"

/* A job is handed to its engine, and leaves it: the engine's time is shared by the jobs that are in it. */
void md_account_begin(struct md_worker_job *job);
void md_account_end(struct md_worker_job *job);
void md_account_head(struct md_worker_job *job, const struct md_http_head *head);
void md_account_body(struct md_worker_job *job, const char *bytes, size_t size); /* of its answer */
bool md_account_is_whole(const struct md_worker_job *job); /* what has come of the answer says so itself */
bool md_account_is_half(const struct md_worker_job *job);  /* what has come says that something is lacking */
void md_account_served(struct md_worker_job *job);         /* its answer has ended */
/* The job is over: what it has used goes to the ledger, if there is one. */
void md_account_close(struct md_worker_job *job);
void md_account_load(struct md_model *model); /* its engine is ready; called before requests go there */

#endif
