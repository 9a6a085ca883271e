/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes an engine's answer on to the client so that a failure in the middle of it can still be told: of a stream of
 * events whole events, of JSON that is not streamed at first nothing. What is encoded is passed on as it is.
 */
#ifndef MD_WORKER_CORE_RELAY_H
#define MD_WORKER_CORE_RELAY_H

#include "worker/core/reply.h"
#include "worker/core/worker.h"

/* The job has a client in all of these. */
void md_relay_head(struct md_worker_job *job, const struct md_http_head *head);
/* The head that the client has is ours (head_made): whether what this one announces goes on with it; else job->why is set. */
bool md_relay_continues(struct md_worker_job *job, const struct md_http_head *head);
size_t md_relay_body(struct md_worker_job *job, const char *bytes, size_t size); /* bytes that wait to be sent */
void md_relay_end(struct md_worker_job *job); /* all has come: md_http_answer_end is what is missing */
/*
 * The answer fails: as a status of its own if nothing was sent, as an event in a stream of events, else (also within an
 * event of which a part was sent) by the end of the connection. The job has no client any more.
 */
void md_relay_fail(struct md_worker_job *job, enum md_reply_error error, const char *code, const char *message);
void md_relay_finish(struct md_worker_job *job);

#endif
