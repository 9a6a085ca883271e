/* SPDX-License-Identifier: Apache-2.0 */
/* Calls to an engine that are about its adapters. */
#ifndef MD_WORKER_CORE_ADAPTER_CALL_H
#define MD_WORKER_CORE_ADAPTER_CALL_H

#include <stddef.h>

#include "http/call.h"

struct md_buf;
struct md_model;

#define MD_ADAPTER_UNLOAD_S 60u
#define MD_ADAPTER_UNLOADS_MAX 3u /* so often an engine is told to unload one that it does not unload */

void md_adapter_keep_answer(struct md_buf *answer, const char *bytes, size_t size); /* up to a limit */
/* body: JSON, or NULL. The answer has to end within answer_s. NULL: out of memory. */
struct md_http_call *md_adapter_call(struct md_model *model, const char *method, const char *path, const char *body,
				     unsigned answer_s, const struct md_http_call_events *events, void *context);

#endif
