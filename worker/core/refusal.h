/* SPDX-License-Identifier: Apache-2.0 */
/* What a client is told when the scheduler refuses its request. */
#ifndef MD_WORKER_CORE_REFUSAL_H
#define MD_WORKER_CORE_REFUSAL_H

#include "medusa/scheduler.h"
#include "worker/core/reply.h"
#include "worker/core/tenants.h"

struct md_refusal {
	enum md_reply_error error;
	const char *code;
	char message[400];
};

/* failure: how the model's engine failed last, "" if it did not. */
void md_refusal_make(enum medusa_sched_reason reason, const char *model, const char *failure,
		     struct md_refusal *refusal);
/* The request's tenant has as many that wait as it may. */
void md_refusal_make_quota(const char *model, const struct md_tenant_entry *tenant, struct md_refusal *refusal);
/* The request has waited too long, because others have the memory: md_gpu_memory_lacks. */
void md_refusal_make_no_room(const char *model, const char *lack, struct md_refusal *refusal);
/* The daemon takes no more work. */
void md_refusal_make_drained(const char *model, struct md_refusal *refusal);

#endif
