/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/adapter_call.h"

#include <stdio.h>
#include <string.h>

#include "http/call.h"
#include "worker/core/worker.h"

#define ANSWER_MAX (1u << 20) /* bytes of an engine's answer that are read */

static void on_head(void *context, const struct md_http_head *head)
{
	struct md_adapter_call *call = context;
	call->status = head->status;
}

static void on_body(void *context, const char *bytes, size_t size)
{
	struct md_adapter_call *call = context;
	if (call->body.size + size <= ANSWER_MAX)
		md_buf_put(&call->body, bytes, size);
}

/* Whoever is told may begin the next call, or free this one. */
static void end(struct md_adapter_call *call, const char *why)
{
	struct md_buf body = call->body;
	struct md_adapter_answer answer = {.why = why, .status = why ? 0 : call->status, .body = &body};
	call->http = NULL;
	call->ended(call->context, &answer);
	md_buf_finish(&body);
}

static void on_end(void *context)
{
	end(context, NULL);
}

static void on_failed(void *context, const char *why)
{
	end(context, why);
}

bool md_adapter_call_begin(struct md_adapter_call *call, struct md_model *model, const char *path, const char *body,
			   unsigned answer_s, void (*ended)(void *context, const struct md_adapter_answer *answer),
			   void *context)
{
	static const struct md_http_call_events events = {
	    .head = on_head, .body = on_body, .end = on_end, .failed = on_failed};
	char target[sizeof(model->prefix) + 64];
	snprintf(target, sizeof(target), "%s%s", model->prefix, path);
	*call = (struct md_adapter_call){.ended = ended, .context = context};
	md_buf_init(&call->body);
	call->http = md_http_call_begin(model->worker->base, &model->settings.address, body ? "POST" : "GET", target,
					&events, call);
	if (!call->http)
		return false;
	md_http_call_header(call->http, "Host", model->settings.host);
	md_http_call_header(call->http, "Accept-Encoding", "identity");
	if (body)
		md_http_call_header(call->http, "Content-Type", "application/json");
	md_http_call_send(call->http, body ? body : "", body ? strlen(body) : 0, model->connect_s, answer_s);
	md_http_call_bound(call->http, answer_s);
	return true;
}

void md_adapter_call_cancel(struct md_adapter_call *call)
{
	if (!call->http)
		return;
	md_http_call_cancel(call->http);
	call->http = NULL;
	md_buf_finish(&call->body);
}
