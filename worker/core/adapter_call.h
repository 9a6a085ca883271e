/* SPDX-License-Identifier: Apache-2.0 */
/* Calls to an engine that are about its adapters. */
#ifndef MD_WORKER_CORE_ADAPTER_CALL_H
#define MD_WORKER_CORE_ADAPTER_CALL_H

#include <stdbool.h>

#include "base/buf.h"

struct md_http_call;
struct md_model;

#define MD_ADAPTER_UNLOAD_S 60u
#define MD_ADAPTER_UNLOADS_MAX 3u /* so often an engine is told to unload one that it does not unload */

struct md_adapter_answer {
	const char *why; /* the engine was not reached, or broke off; NULL: it has answered */
	unsigned status; /* 0 unless it has answered */
	const struct md_buf *body;
};

/* All zero: none is under way. */
struct md_adapter_call {
	struct md_http_call *http; /* NULL: none is under way */
	unsigned status;
	struct md_buf body;
	void (*ended)(void *context, const struct md_adapter_answer *answer);
	void *context;
};

/*
 * body: JSON, or NULL. The answer has to end within answer_s. `ended` is called later, and the call is no longer under way
 * then. False: out of memory, and it is not called.
 */
bool md_adapter_call_begin(struct md_adapter_call *call, struct md_model *model, const char *path, const char *body,
			   unsigned answer_s, void (*ended)(void *context, const struct md_adapter_answer *answer),
			   void *context);
void md_adapter_call_cancel(struct md_adapter_call *call); /* `ended` is not called */

#endif
