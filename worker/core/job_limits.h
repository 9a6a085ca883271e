/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of models.*.medusa on requests that wait: max_queue and max_wait. */
#ifndef MD_WORKER_CORE_JOB_LIMITS_H
#define MD_WORKER_CORE_JOB_LIMITS_H

#include "worker/core/worker.h"

void md_job_limits_begin(struct md_worker_job *job); /* max_wait counts from now on */
void md_job_limits_end(struct md_worker_job *job);
/* The scheduler has learned of this request, and started what it could: what waits may be one too many. */
void md_job_limits_arrived(struct md_worker_job *job);

#endif
