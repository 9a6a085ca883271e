/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/reply.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json/tree_text.h"

struct kind {
	unsigned status;
	const char *type, *code;
	const char *retry_s; /* Retry-After; NULL: none */
};

static const struct kind kinds[] = {
    [MD_REPLY_BAD_REQUEST] = {400, "invalid_request_error", "bad_request", NULL},
    [MD_REPLY_UNAUTHORIZED] = {401, "authentication_error", "unauthorized", NULL},
    [MD_REPLY_FORBIDDEN] = {403, "permission_error", "forbidden", NULL},
    [MD_REPLY_NOT_FOUND] = {404, "invalid_request_error", "not_found", NULL},
    [MD_REPLY_METHOD] = {405, "invalid_request_error", "method_not_allowed", NULL},
    [MD_REPLY_CONFLICT] = {409, "invalid_request_error", "conflict", NULL},
    [MD_REPLY_BUSY] = {429, "rate_limit_error", "rate_limit", "1"},
    [MD_REPLY_INTERNAL] = {500, "server_error", "internal_error", NULL},
    [MD_REPLY_UPSTREAM] = {502, "server_error", "bad_gateway", NULL},
    [MD_REPLY_RESTING] = {502, "server_error", "engine_failed", "1"},
    [MD_REPLY_UNAVAILABLE] = {503, "server_error", "unavailable", "5"},
    [MD_REPLY_TIMEOUT] = {504, "server_error", "timeout", NULL},
    [MD_REPLY_LOOP] = {508, "server_error", "loop", NULL},
};

static void send_whole(struct md_http_exchange *exchange, const char *type, const char *text, size_t size)
{
	md_http_answer_header(exchange, "Content-Type", type);
	md_http_answer_body(exchange);
	md_http_answer_write(exchange, text, size);
	md_http_answer_end(exchange);
}

void md_reply_text(struct md_http_exchange *exchange, unsigned status, const char *type, const char *text)
{
	size_t size = strlen(text);
	md_http_answer_begin(exchange, status, (int64_t)size);
	send_whole(exchange, type, text, size);
}

static void send_json(struct md_http_exchange *exchange, unsigned status, json_t *value, const char *retry_s,
		      const char *code)
{
	char *text = value ? md_jansson_print(value, JSON_COMPACT) : NULL;
	const char *sent =
	    text ? text : "{\"error\":{\"message\":\"out of memory for the answer\",\"type\":\"server_error\"}}";
	md_http_answer_begin(exchange, text ? status : 500, (int64_t)strlen(sent));
	if (retry_s)
		md_http_answer_header(exchange, "Retry-After", retry_s);
	if (code)
		md_http_answer_header(exchange, MD_REPLY_CODE_HEADER, code);
	if (status == 401)
		md_http_answer_header(exchange, "WWW-Authenticate", "Basic realm=\"medusa-worker\"");
	send_whole(exchange, "application/json", sent, strlen(sent));
	free(text);
	json_decref(value);
}

void md_reply_json(struct md_http_exchange *exchange, unsigned status, json_t *value)
{
	send_json(exchange, status, value, NULL, NULL);
}

static void send_error(struct md_http_exchange *exchange, const struct kind *kind, const char *code,
		       const char *message)
{
	/* what a request names in it may be no UTF-8, or was cut */
	json_t *value = json_pack("{s:s, s:{s:o, s:s, s:n, s:s}}", "src", "medusa-worker", "error", "message",
				  md_jansson_text(message), "type", kind->type, "param", "code", code);
	send_json(exchange, kind->status, value, kind->retry_s, code);
}

void md_reply_error(struct md_http_exchange *exchange, enum md_reply_error error, const char *code, const char *format,
		    ...)
{
	const struct kind *kind = &kinds[error];
	char message[512];
	va_list list;
	va_start(list, format);
	vsnprintf(message, sizeof(message), format, list);
	va_end(list);
	send_error(exchange, kind, code ? code : kind->code, message);
}

/* ---- requests that are not read to their end ---- */

static const struct kind refusals[] = {
    {400, "invalid_request_error", "bad_request", NULL},
    {401, "authentication_error", "unauthorized", NULL},
    {403, "permission_error", "forbidden", NULL},
    {408, "invalid_request_error", "request_timeout", NULL},
    {413, "invalid_request_error", "request_too_large", NULL},
    {414, "invalid_request_error", "target_too_long", NULL},
    {417, "invalid_request_error", "expectation_failed", NULL},
    {431, "invalid_request_error", "head_too_large", NULL},
    {501, "invalid_request_error", "not_implemented", NULL},
    {503, "server_error", "overloaded", "5"},
    {505, "invalid_request_error", "http_version", NULL},
};

void md_reply_refused(struct md_http_exchange *exchange, unsigned status, const char *why)
{
	for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++)
		if (refusals[i].status == status) {
			send_error(exchange, &refusals[i], refusals[i].code, why);
			return;
		}
	send_error(exchange, &(struct kind){.status = status, .type = "server_error"}, "internal_error", why);
}
