/* SPDX-License-Identifier: Apache-2.0 */
/* What ends a request, for job.c and job_answer.c alone: others see worker.h. */
#ifndef MD_WORKER_CORE_JOB_STEPS_H
#define MD_WORKER_CORE_JOB_STEPS_H

#include "http/call.h"
#include "worker/core/worker.h"

#define MD_JOB_COUNT(job, member, more) MD_COUNT((job)->model, (job)->tenant, member, more)

void md_job_post(struct md_worker_job *job, enum medusa_sched_event_type type); /* to the scheduler */
/* The scheduler is told that it has ended, and the job is gone on return of these two. */
void md_job_complete(struct md_worker_job *job);                     /* its answer is whole */
void md_job_end_failed(struct md_worker_job *job, const char *code); /* because of job->why; code NULL: bad_gateway */
/* The same, with 503: the daemon had no memory or no descriptor for the request. */
void md_job_end_lacking(struct md_worker_job *job);

extern const struct md_http_call_events md_job_calling; /* of the call to the engine; the context is the job */

#endif
