/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/adapter_call.h"

#include <stdio.h>
#include <string.h>

#include "worker/core/worker.h"

#define ANSWER_MAX (1u << 20) /* bytes of an engine's answer that are read */

void md_adapter_keep_answer(struct md_buf *answer, const char *bytes, size_t size)
{
	if (answer->size + size <= ANSWER_MAX)
		md_buf_put(answer, bytes, size);
}

struct md_http_call *md_adapter_call(struct md_model *model, const char *method, const char *path, const char *body,
				     unsigned answer_s, const struct md_http_call_events *events, void *context)
{
	char target[sizeof(model->prefix) + 64];
	snprintf(target, sizeof(target), "%s%s", model->prefix, path);
	struct md_http_call *call =
	    md_http_call_begin(model->worker->base, &model->settings.address, method, target, events, context);
	if (!call)
		return NULL;
	md_http_call_header(call, "Host", model->settings.host);
	md_http_call_header(call, "Accept-Encoding", "identity");
	if (body)
		md_http_call_header(call, "Content-Type", "application/json");
	md_http_call_send(call, body ? body : "", body ? strlen(body) : 0, model->connect_s, answer_s);
	md_http_call_bound(call, answer_s);
	return call;
}
