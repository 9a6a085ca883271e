/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/refusal.h"

#include <stdio.h>

struct known {
	enum medusa_sched_reason reason;
	enum md_reply_error error;
	const char *code, *form; /* with the model's name */
};

static const struct known known[] = {
    {MEDUSA_SCHED_REASON_NEVER_FITS, MD_REPLY_UNAVAILABLE, "never_fits",
     "model %.100s needs more memory than any GPU has"},
    {MEDUSA_SCHED_REASON_QUEUE_FULL, MD_REPLY_BUSY, "queue_full", "model %.100s has too many waiting requests"},
    {MEDUSA_SCHED_REASON_WAITED_TOO_LONG, MD_REPLY_TIMEOUT, "waited_too_long", "model %.100s was not free in time"},
    {MEDUSA_SCHED_REASON_DEADLINE, MD_REPLY_TIMEOUT, "deadline", "model %.100s did not answer before its deadline"},
    {MEDUSA_SCHED_REASON_UNREGISTERED, MD_REPLY_NOT_FOUND, "model_not_found", "model %.100s is no longer configured"},
    {MEDUSA_SCHED_REASON_CANCELLED, MD_REPLY_UNAVAILABLE, "cancelled", "the request for model %.100s was cancelled"},
};

void md_refusal_make(enum medusa_sched_reason reason, const char *model, const char *failure,
		     struct md_refusal *refusal)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		if (known[i].reason != reason)
			continue;
		refusal->error = known[i].error;
		refusal->code = known[i].code;
		snprintf(refusal->message, sizeof(refusal->message), known[i].form, model);
		return;
	}
	if (reason == MEDUSA_SCHED_REASON_FAILED || reason == MEDUSA_SCHED_REASON_LOAD_FAILED) {
		refusal->error = MD_REPLY_UPSTREAM;
		refusal->code = "engine_failed";
		snprintf(refusal->message, sizeof(refusal->message), "model %.100s: its engine %.250s", model,
			 *failure ? failure : "failed");
		return;
	}
	refusal->error = MD_REPLY_UNAVAILABLE;
	refusal->code = "refused";
	snprintf(refusal->message, sizeof(refusal->message), "model %.100s: the request was refused (%s)", model,
		 medusa_sched_reason_name(reason));
}

void md_refusal_make_quota(const char *model, const struct md_tenant_entry *tenant, struct md_refusal *refusal)
{
	bool shared = tenant->told.takes_none || tenant->told.max_waiting != tenant->stated.max_waiting;
	refusal->error = MD_REPLY_BUSY;
	refusal->code = "quota";
	snprintf(refusal->message, sizeof(refusal->message),
		 "the request for model %.100s was not taken: %u requests of tenant %.100s wait, which is all that may "
		 "(%s)",
		 model, tenant->told.takes_none ? 0 : tenant->told.max_waiting, tenant->name,
		 shared ? "on this node, as its share of medusa.tenants.cluster_max_waiting"
			: "medusa.tenants.max_waiting");
}

void md_refusal_make_no_room(const char *model, const char *lack, struct md_refusal *refusal)
{
	refusal->error = MD_REPLY_TIMEOUT;
	refusal->code = "waited_too_long";
	snprintf(refusal->message, sizeof(refusal->message), "model %.100s found no room in time: %.200s", model, lack);
}

void md_refusal_make_drained(const char *model, struct md_refusal *refusal)
{
	refusal->error = MD_REPLY_UNAVAILABLE;
	refusal->code = "draining";
	snprintf(refusal->message, sizeof(refusal->message),
		 "the request for model %.100s was not begun: the daemon takes no more requests", model);
}
