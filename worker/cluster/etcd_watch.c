/* SPDX-License-Identifier: Apache-2.0 */
/* One streaming answer of etcd, whose lines are events. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "json/tree_text.h"
#include "worker/cluster/etcd_parts.h"

#define WAITING_MAX (4u << 20)     /* bytes that wait to be read here before etcd is made to wait */
#define LINE_MAX_BYTES (64u << 20) /* of events that etcd hands out at once */
#define TURN_NS UINT64_C(2000000)

/*
 * A call can't be cancelled while its body comes, and whoever sees an event may want to end the watch: lines are read in a turn
 * of the loop of their own.
 */
struct md_etcd_watch {
	struct md_etcd *etcd;
	unsigned endpoint;
	struct md_http_call *http; /* NULL: it has ended */
	struct md_buf waiting;
	size_t read; /* of `waiting` */
	struct event *turn;
	uint64_t counted; /* tokens that had been given when it began */
	char why[200];    /* it has ended; "": it goes on */
	bool *ended;      /* of a call of `changed` that is under way */
	const struct md_etcd_watch_events *events;
	void *context;
};

static void free_watch(struct md_etcd_watch *watch)
{
	if (watch->ended)
		*watch->ended = true;
	md_http_call_cancel(watch->http);
	if (watch->turn)
		event_free(watch->turn);
	md_buf_finish(&watch->waiting);
	free(watch);
}

void md_etcd_watch_end(struct md_etcd_watch *watch)
{
	if (watch)
		free_watch(watch);
}

/* etcd says of a token that it does not know no more than that permission is denied. */
static void doubt_token(const struct md_etcd_watch *watch, const char *why)
{
	if (strstr(why, "denied") || strstr(why, "token") || strstr(why, "status 4"))
		md_etcd_auth_doubt(watch->etcd->auth, watch->counted);
}

static void end(struct md_etcd_watch *watch, const char *why)
{
	const struct md_etcd_watch_events *events = watch->events;
	void *context = watch->context;
	char text[200];
	snprintf(text, sizeof(text), "%s", why);
	doubt_token(watch, text);
	free_watch(watch);
	events->ended(context, text);
}

/* ---- lines ---- */

/* False: the watch is no longer there. */
static bool take(struct md_etcd_watch *watch, const char *line, size_t size)
{
	json_error_t error;
	json_t *answer = md_jansson_parse(line, size, 0, &error);
	const json_t *result = json_object_get(answer, "result"), *changes = json_object_get(result, "events");
	int64_t compacted = md_etcd_number(result, "compact_revision");
	char why[120];
	bool gone = true;
	if (!result) {
		end(watch, answer ? "etcd has ended the watch" : "a line of the watch is no JSON");
	} else if (json_is_true(json_object_get(result, "canceled"))) {
		const char *reason = json_string_value(json_object_get(result, "cancel_reason"));
		snprintf(why, sizeof(why), "the revision was compacted (up to %" PRId64 ")", compacted);
		end(watch, compacted ? why : reason ? reason : "etcd has ended the watch");
	} else {
		gone = false;
		watch->ended = &gone;
		if (json_array_size(changes))
			watch->events->changed(watch->context, changes);
		if (!gone)
			watch->ended = NULL;
	}
	json_decref(answer);
	return !gone;
}

/* What was read makes room. */
static void move_up(struct md_etcd_watch *watch)
{
	struct md_buf *waiting = &watch->waiting;
	memmove(waiting->data, waiting->data + watch->read, waiting->size - watch->read);
	waiting->size -= watch->read;
	watch->read = 0;
	if (watch->http && waiting->size < WAITING_MAX)
		md_http_call_pause(watch->http, false);
}

static void on_turn(evutil_socket_t fd, short what, void *context)
{
	struct md_etcd_watch *watch = context;
	uint64_t until = md_clock_ns() + TURN_NS;
	(void)fd, (void)what;
	for (;;) {
		char *line = (char *)watch->waiting.data + watch->read;
		size_t left = watch->waiting.size - watch->read;
		const char *stop = left ? memchr(line, '\n', left) : NULL;
		if (!stop)
			break;
		size_t size = (size_t)(stop - line);
		watch->read += size + 1;
		if (size && !take(watch, line, size))
			return;
		if (md_clock_ns() > until) {
			event_active(watch->turn, EV_TIMEOUT, 0);
			break;
		}
	}
	if (watch->read)
		move_up(watch);
	if (watch->waiting.failed)
		end(watch, "out of memory for its events");
	else if (watch->waiting.size > LINE_MAX_BYTES)
		end(watch, "events have too many bytes");
	else if (*watch->why && !event_pending(watch->turn, EV_TIMEOUT, NULL))
		end(watch, watch->why);
}

/* ---- the answer ---- */

static void on_head(void *context, const struct md_http_head *head)
{
	struct md_etcd_watch *watch = context;
	if (head->status != 200)
		snprintf(watch->why, sizeof(watch->why), "etcd answers with status %u", head->status);
}

static void on_body(void *context, const char *bytes, size_t size)
{
	struct md_etcd_watch *watch = context;
	if (!*watch->why)
		md_buf_put(&watch->waiting, bytes, size);
	if (watch->waiting.size > WAITING_MAX && memchr(watch->waiting.data, '\n', watch->waiting.size))
		md_http_call_pause(watch->http, true);
	event_active(watch->turn, EV_TIMEOUT, 0);
}

static void stop(struct md_etcd_watch *watch, const char *why)
{
	watch->http = NULL;
	if (!*watch->why)
		snprintf(watch->why, sizeof(watch->why), "%s", why);
	event_active(watch->turn, EV_TIMEOUT, 0);
}

static void on_end(void *context)
{
	stop(context, "etcd has ended the stream");
}

static void on_failed(void *context, const char *why)
{
	stop(context, why);
}

static const struct md_http_call_events calling = {
    .head = on_head, .body = on_body, .end = on_end, .failed = on_failed};

/* ---- beginning ---- */

static bool begin(struct md_etcd_watch *watch, const char *prefix, int64_t revision)
{
	json_t *question =
	    json_pack("{s:{s:o, s:o, s:I}}", "create_request", "key", md_etcd_base64(prefix, strlen(prefix)),
		      "range_end", md_etcd_behind(prefix), "start_revision", (json_int_t)revision);
	MD_AUTO_FREE char *text = question ? md_jansson_print(question, JSON_COMPACT) : NULL;
	json_decref(question);
	watch->turn = event_new(watch->etcd->base, -1, 0, on_turn, watch);
	if (text && watch->turn)
		watch->http =
		    md_etcd_post(watch->etcd, watch->endpoint, "/v3/watch", text, MD_ETCD_ANSWER_S, &calling, watch);
	return watch->http;
}

struct md_etcd_watch *md_etcd_watch_begin(struct md_etcd *etcd, const char *prefix, int64_t revision,
					  const struct md_etcd_watch_events *events, void *context)
{
	struct md_etcd_watch *watch = calloc(1, sizeof(*watch));
	if (!watch)
		return NULL;
	*watch = (struct md_etcd_watch){.etcd = etcd,
					.endpoint = etcd->current,
					.counted = md_etcd_auth_counted(etcd->auth),
					.events = events,
					.context = context};
	if (begin(watch, prefix, revision))
		return watch;
	free_watch(watch);
	return NULL;
}
