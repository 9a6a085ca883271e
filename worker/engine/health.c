/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/health.h"

#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/util.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/call.h"

#define LEAST_MS 5u
#define MOST_MS 250u
#define PART 16u /* of the time that has been waited so far: what is ready is found so soon after, in proportion */
#define ANSWER_S 5u

struct md_engine_health {
	struct event_base *base;
	struct event *again;
	struct md_http_call *call;
	struct bufferevent *touch; /* a connection without a question */
	struct md_http_address address;
	char *host, *target;
	bool (*healthy)(void *context, char *why, size_t size);
	void *context;
	unsigned waited_ms, status;
	char last[160];
};

static void ask_later(struct md_engine_health *health)
{
	unsigned part = health->waited_ms / PART, wait_ms = part < LEAST_MS  ? LEAST_MS
							    : part < MOST_MS ? part
									     : MOST_MS;
	struct timeval wait = {.tv_usec = wait_ms * 1000};
	if (wait_ms < MOST_MS)
		health->waited_ms += wait_ms;
	event_add(health->again, &wait);
}

/* The health is gone on return, or asks again. */
static void tell_healthy(struct md_engine_health *health)
{
	char why[sizeof(health->last)];
	if (health->healthy(health->context, why, sizeof(why)))
		return;
	memcpy(health->last, why, sizeof(why));
	ask_later(health);
}

static void on_head(void *context, const struct md_http_head *head)
{
	struct md_engine_health *health = context;
	health->status = head->status;
}

static void on_body(void *context, const char *bytes, size_t size)
{
	(void)context, (void)bytes, (void)size;
}

static void on_end(void *context)
{
	struct md_engine_health *health = context;
	health->call = NULL;
	snprintf(health->last, sizeof(health->last), "answered %s with %u", health->target, health->status);
	if (health->status != 200)
		ask_later(health);
	else
		tell_healthy(health);
}

static void on_failed(void *context, const char *why)
{
	struct md_engine_health *health = context;
	health->call = NULL;
	snprintf(health->last, sizeof(health->last), "%s", why);
	ask_later(health);
}

static const struct md_http_call_events events = {.head = on_head, .body = on_body, .end = on_end, .failed = on_failed};

static void on_touched(struct bufferevent *wire, short what, void *context)
{
	struct md_engine_health *health = context;
	if (!(what & BEV_EVENT_CONNECTED))
		snprintf(health->last, sizeof(health->last), "connecting: %s",
			 what & BEV_EVENT_TIMEOUT ? "nobody has answered"
						  : evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()));
	bufferevent_free(wire);
	health->touch = NULL;
	if (what & BEV_EVENT_CONNECTED)
		tell_healthy(health);
	else
		ask_later(health);
}

static void touch(struct md_engine_health *health)
{
	struct timeval most = {.tv_sec = ANSWER_S};
	health->touch = bufferevent_socket_new(health->base, -1, BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
	if (!health->touch) {
		ask_later(health);
		return;
	}
	bufferevent_setcb(health->touch, NULL, NULL, on_touched, health);
	bufferevent_set_timeouts(health->touch, NULL, &most);
	if (!bufferevent_socket_connect(health->touch, &health->address.any, (int)health->address.size))
		return;
	bufferevent_free(health->touch);
	health->touch = NULL;
	ask_later(health);
}

static void ask(evutil_socket_t fd, short what, void *context)
{
	struct md_engine_health *health = context;
	(void)fd, (void)what;
	if (!health->target) {
		touch(health);
		return;
	}
	health->call = md_http_call_begin(health->base, &health->address, "GET", health->target, &events, health);
	if (!health->call) {
		ask_later(health);
		return;
	}
	md_http_call_header(health->call, "Host", health->host);
	md_http_call_send(health->call, "", 0, ANSWER_S, ANSWER_S);
	md_http_call_bound(health->call, ANSWER_S);
}

struct md_engine_health *md_engine_health_start(struct event_base *base, const struct md_http_address *address,
						const char *host, const char *target,
						bool (*healthy)(void *context, char *why, size_t size), void *context)
{
	struct md_engine_health *health = calloc(1, sizeof(*health));
	if (!health)
		return NULL;
	*health = (struct md_engine_health){.base = base,
					    .again = evtimer_new(base, ask, health),
					    .address = *address,
					    .host = strdup(host),
					    .target = target ? strdup(target) : NULL,
					    .healthy = healthy,
					    .context = context,
					    .last = "was not asked yet"};
	if (!health->again || !health->host || (target && !health->target)) {
		md_engine_health_stop(health);
		return NULL;
	}
	event_add(health->again, &(struct timeval){0});
	return health;
}

void md_engine_health_doubt(struct md_engine_health *health, const char *why)
{
	snprintf(health->last, sizeof(health->last), "%s", why);
	ask_later(health);
}

const char *md_engine_health_last(const struct md_engine_health *health)
{
	return health->last;
}

void md_engine_health_stop(struct md_engine_health *health)
{
	if (!health)
		return;
	md_http_call_cancel(health->call);
	if (health->touch)
		bufferevent_free(health->touch);
	if (health->again)
		event_free(health->again);
	free(health->host);
	free(health->target);
	free(health);
}
