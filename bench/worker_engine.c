/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fast engine that computes nothing, for bench/worker.sh: worker_engine PORT. A request's body says what it streams:
 * "max_tokens": events, "gap_us": microseconds between two (0: as fast as the client takes them).
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "http/front.h"

#define TICK_US 500
#define AHEAD 65536u /* bytes that wait for a client before a burst pauses */

/* As long as those of vLLM. */
static const char event_text[] =
    "data: {\"id\":\"chatcmpl-6f1d3c2a9b8e4f70\",\"object\":\"chat.completion.chunk\",\"created\":1795450000,"
    "\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" token\"},\"logprobs\":null,"
    "\"finish_reason\":null}]}\n\n";

struct stream {
	struct stream *next, **at;
	struct md_http_exchange *exchange;
	uint64_t left, gap_ns, due;
};

static struct stream *streams; /* those that wait for a time */

static uint64_t number(const char *body, const char *key, uint64_t otherwise)
{
	const char *found = strstr(body, key);
	return found ? strtoull(found + strlen(key), NULL, 10) : otherwise;
}

static void take_out(struct stream *stream)
{
	if (stream->at && (*stream->at = stream->next))
		stream->next->at = stream->at;
	stream->at = NULL;
}

static void finish(struct stream *stream)
{
	take_out(stream);
	md_http_answer_write(stream->exchange, "data: [DONE]\n\n", 14);
	md_http_answer_end(stream->exchange);
	free(stream);
}

static void burst(struct stream *stream)
{
	while (stream->left) {
		stream->left--;
		if (md_http_answer_write(stream->exchange, event_text, sizeof(event_text) - 1) > AHEAD)
			return; /* on_drained goes on */
	}
	finish(stream);
}

static void on_gone(void *context)
{
	take_out(context);
	free(context);
}

static void on_drained(void *context)
{
	struct stream *stream = context;
	if (!stream->gap_ns)
		burst(stream);
}

static const struct md_http_exchange_events events = {.gone = on_gone, .drained = on_drained};

static void begin(struct md_http_exchange *exchange, const char *body)
{
	struct stream *stream = calloc(1, sizeof(*stream));
	if (!stream)
		abort();
	stream->exchange = exchange;
	stream->left = number(body, "\"max_tokens\":", 16);
	stream->gap_ns = number(body, "\"gap_us\":", 0) * 1000;
	md_http_answer_begin(exchange, 200, -1);
	md_http_answer_header(exchange, "Content-Type", "text/event-stream");
	md_http_answer_body(exchange);
	md_http_exchange_watch(exchange, &events, stream);
	if (!stream->gap_ns) {
		burst(stream);
		return;
	}
	stream->due = md_clock_ns();
	stream->at = &streams;
	stream->next = streams;
	if (streams)
		streams->at = &stream->next;
	streams = stream;
}

static void on_request(void *context, struct md_http_exchange *exchange)
{
	size_t size;
	const char *body = md_http_exchange_body(exchange, &size);
	(void)context;
	if (!strcmp(md_http_head_target(md_http_exchange_head(exchange)), "/health")) {
		md_http_answer_begin(exchange, 200, 0);
		md_http_answer_body(exchange);
		md_http_answer_end(exchange);
	} else {
		begin(exchange, body);
	}
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
	uint64_t now = md_clock_ns();
	(void)fd, (void)what, (void)context;
	for (struct stream *next, *stream = streams; stream; stream = next) {
		next = stream->next;
		if (stream->due > now)
			continue;
		stream->due += stream->gap_ns;
		if (!stream->left--)
			finish(stream);
		else
			md_http_answer_write(stream->exchange, event_text, sizeof(event_text) - 1);
	}
}

int main(int argc, char **argv)
{
	static const struct md_http_front_events front_events = {.request = on_request};
	struct md_http_limits limits = {.connections = 20000};
	struct timeval tick_time = {.tv_usec = TICK_US};
	struct md_http_front *front;
	struct md_error err;
	char listen[32];
	if (argc != 2)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	struct event_base *base = event_base_new();
	struct event *tick = event_new(base, -1, EV_PERSIST, on_tick, NULL);
	snprintf(listen, sizeof(listen), "127.0.0.1:%s", argv[1]);
	if (md_http_front_create(base, listen, &limits, &front_events, NULL, &front, &err) != MD_OK) {
		fprintf(stderr, "worker_engine: %s\n", err.message);
		return 1;
	}
	event_add(tick, &tick_time);
	return event_base_dispatch(base);
}
