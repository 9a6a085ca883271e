/* SPDX-License-Identifier: Apache-2.0 */
/* The current context, and the sticky errors of contexts. */
#ifndef HOSTCUDA_CONTEXT_H
#define HOSTCUDA_CONTEXT_H

#include "hostcuda/device_state.h"

struct hc_context *hc_context_current(void); /* NULL for none */
struct hc_context *hc_context_home(void);    /* whose memory and modules the current one uses */
/* home: whose memory it uses, and which is charged for it; NULL: it has its own. */
CUresult hc_context_make(struct hc_device *device, unsigned flags, struct hc_context *home,
			 struct hc_context **made) HC_STATE_HELD;
/* Waits for the work, then destroys everything that lives in the context. The caller does not hold the state lock. */
void hc_context_free(struct hc_context *context);
void hc_context_fail(struct hc_context *context, CUresult result);
CUresult hc_context_sticky(const struct hc_context *context);
CUresult hc_context_drain(struct hc_context *context); /* waits for all work; no state lock held */
void hc_context_drain_all(void);

#endif
