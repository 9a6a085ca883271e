/* SPDX-License-Identifier: Apache-2.0 */
/* The current context, and the sticky errors of contexts. */
#ifndef HOSTCUDA_CONTEXT_H
#define HOSTCUDA_CONTEXT_H

#include "hostcuda/device_state.h"

struct hc_context *hc_context_current(void); /* NULL for none */
void hc_context_fail(struct hc_context *context, CUresult result);
CUresult hc_context_sticky(const struct hc_context *context);
CUresult hc_context_drain(struct hc_context *context); /* waits for all work; no state lock held */
void hc_context_drain_all(void);

#endif
