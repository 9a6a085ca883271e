/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/relay.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HELD_MAX 65536u /* bytes of a line, or of JSON, that are held back; what is longer is passed on as it comes */

/* ---- the head ---- */

static bool is_type(const struct md_http_head *head, const char *type)
{
	const char *given = md_http_head_find(head, "Content-Type");
	size_t size = strlen(type);
	return given && !strncasecmp(given, type, size) && strchr("; \t", given[size]);
}

static void pass_headers(struct md_worker_job *job, const struct md_http_head *head)
{
	for (uint32_t i = 0; i < head->count; i++) {
		const char *name = md_http_head_name(head, i);
		bool ours = !strcasecmp(name, "Date") || (!strcasecmp(name, "Access-Control-Allow-Origin") &&
							  md_http_exchange_is_shared(job->exchange));
		if (!ours && !md_http_head_is_hop(head, name))
			md_http_answer_header(job->exchange, name, md_http_head_value(head, i));
	}
	/* a proxy before us must not collect the events of a stream */
	if (job->events || job->stream)
		md_http_answer_header(job->exchange, "X-Accel-Buffering", "no");
}

void md_relay_head(struct md_worker_job *job, const struct md_http_head *head)
{
	job->events = is_type(head, "text/event-stream");
	if (is_type(head, "application/json") && !job->stream)
		md_http_answer_hold(job->exchange);
	/* a stream of events has room for one more, which says that it has failed */
	md_http_answer_begin(job->exchange, head->status, job->events ? -1 : head->length);
	pass_headers(job, head);
	md_http_answer_body(job->exchange);
}

/* ---- the body ---- */

/* The part of a stream's piece that ends with a line is sent, with what was held before it; the rest is held. */
static size_t pass_lines(struct md_worker_job *job, const char *bytes, size_t size)
{
	const char *line = memrchr(bytes, '\n', size);
	size_t whole = line ? (size_t)(line - bytes) + 1 : 0;
	if (job->line.size + size - whole > HELD_MAX || job->line.failed)
		whole = size; /* too long to be held */
	if (whole) {
		md_http_answer_write(job->exchange, job->line.data, job->line.size);
		md_buf_clear(&job->line);
		job->torn = bytes[whole - 1] != '\n';
	}
	md_buf_put(&job->line, bytes + whole, size - whole);
	return md_http_answer_write(job->exchange, bytes, whole);
}

size_t md_relay_body(struct md_worker_job *job, const char *bytes, size_t size)
{
	if (!size)
		return 0;
	if (job->events || job->head_made)
		return pass_lines(job, bytes, size);
	size_t unsent = md_http_answer_write(job->exchange, bytes, size);
	if (unsent > HELD_MAX)
		md_http_answer_release(job->exchange);
	return unsent;
}

void md_relay_end(struct md_worker_job *job)
{
	md_http_answer_write(job->exchange, job->line.data, job->line.size);
	md_http_answer_release(job->exchange);
}

void md_relay_finish(struct md_worker_job *job)
{
	md_buf_finish(&job->line);
}

/* ---- failures ---- */

/* The rest of a line that was held is dropped: no client could read it. */
static void send_event(struct md_http_exchange *exchange, bool torn, const char *code, const char *message)
{
	json_t *event = json_pack("{s:{s:s, s:s, s:n, s:s}}", "error", "message", message, "type", "server_error",
				  "param", "code", code);
	char *line = event ? json_dumps(event, JSON_COMPACT) : NULL;
	json_decref(event);
	if (!line) {
		md_http_answer_abort(exchange);
		return;
	}
	md_http_answer_write(exchange, "\n\n", torn ? 2 : 1); /* the event before it ends */
	md_http_answer_write(exchange, "data: ", 6);
	md_http_answer_write(exchange, line, strlen(line));
	md_http_answer_write(exchange, "\n\n", 2);
	md_http_answer_end(exchange);
	free(line);
}

void md_relay_fail(struct md_worker_job *job, enum md_reply_error error, const char *code, const char *message)
{
	struct md_http_exchange *exchange = job->exchange;
	job->exchange = NULL;
	if (!exchange)
		return;
	if ((!job->head_sent && !job->head_made) || md_http_answer_retract(exchange))
		md_reply_error(exchange, error, code, "%s", message);
	else if (job->events || job->head_made)
		send_event(exchange, job->torn, code ? code : "bad_gateway", message);
	else
		md_http_answer_abort(exchange);
}
