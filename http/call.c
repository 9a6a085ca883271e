/* SPDX-License-Identifier: Apache-2.0 */
#include "http/call.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/util.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "http/reader.h"
#include "http/text.h"
#include "http/wire_watch.h"

#define AT_ONCE 65536u /* bytes of an answer that are read before they are handed on */
#define CONNECT_S 30u
#define INTERIMS_MAX 1024u /* so many times an engine may say that its answer is still to come */

struct md_http_call {
	struct bufferevent *wire;
	struct evbuffer *request;
	struct md_http_address address;
	struct md_http_way way;
	struct md_http_reader reader;
	char why[240]; /* of the reader */
	const struct md_http_call_events *events;
	void *context;
	struct event *begin;  /* connects outside of the caller's call */
	struct event *late;   /* it must be connected by then */
	struct event *bound;  /* of the whole; NULL: it may take any time */
	struct event *silent; /* until the head of the answer is there; NULL: the same */
	unsigned bound_s;
	unsigned connect_s, answer_s;
	unsigned interims;
	bool connected, paused;
	bool incomplete;    /* the request: there was no memory for some of it, so it must not be sent */
	struct event *over; /* the connection is over, and what has come by it is looked at; NULL: not yet */
	bool closed;        /* by its other end; else it is broken: */
	char broken[240];
};

static void free_call(struct md_http_call *call)
{
	if (call->wire)
		bufferevent_free(call->wire);
	if (call->request)
		evbuffer_free(call->request);
	if (call->begin)
		event_free(call->begin);
	if (call->late)
		event_free(call->late);
	if (call->bound)
		event_free(call->bound);
	if (call->silent)
		event_free(call->silent);
	if (call->over)
		event_free(call->over);
	md_http_reader_finish(&call->reader);
	free(call);
}

static void fail(struct md_http_call *call, const char *why)
{
	const struct md_http_call_events *events = call->events;
	void *context = call->context;
	char text[240];
	snprintf(text, sizeof(text), "%s", why);
	free_call(call);
	events->failed(context, text);
}

/* Nothing was sent, for want of memory or descriptors here. */
static void lack(struct md_http_call *call, const char *why)
{
	const struct md_http_call_events *events = call->events;
	void *context = call->context;
	char text[240];
	snprintf(text, sizeof(text), "%s", why);
	free_call(call);
	(events->lacking ? events->lacking : events->failed)(context, text);
}

static void fail_for(struct md_http_call *call, const char *what)
{
	char why[160];
	snprintf(why, sizeof(why), "the %s %s", call->way.whom, what);
	fail(call, why);
}

/* ---- the answer ---- */

/* 1xx: the answer itself follows. */
static bool is_interim(const struct md_http_call *call)
{
	return call->reader.head.status < 200;
}

static bool refuse(struct md_http_call *call, const char *what)
{
	snprintf(call->why, sizeof(call->why), "the %s %s", call->way.whom, what);
	return md_http_reader_refuse(&call->reader, 502, call->why);
}

static bool on_head(void *context, const struct md_http_head *head)
{
	struct md_http_call *call = context;
	if (head->status == 101)
		return refuse(call, "wants to change the protocol");
	if (head->status < 100)
		return refuse(call, "answers with a status below 100");
	if (is_interim(call) && ++call->interims > INTERIMS_MAX)
		return refuse(call, "has sent more than 1,024 interim answers");
	if (is_interim(call))
		return true;
	if (call->silent)
		event_del(call->silent);
	call->events->head(call->context, head);
	return true;
}

static bool on_body(void *context, const char *bytes, size_t size)
{
	struct md_http_call *call = context;
	call->events->body(call->context, bytes, size);
	return true;
}

static void on_end(void *context)
{
	struct md_http_call *call = context;
	if (is_interim(call))
		md_http_reader_next(&call->reader);
}

static const struct md_http_reader_events reading = {.head = on_head, .body = on_body, .end = on_end};

/* What has come of the answer so far; its pause is obeyed, unless `all` of it is wanted. */
static void read_input(struct md_http_call *call, bool all)
{
	struct evbuffer *input = bufferevent_get_input(call->wire);
	size_t size;
	while (!call->reader.status && !call->reader.ended && (!call->paused || all) &&
	       (size = evbuffer_get_contiguous_space(input)) > 0)
		evbuffer_drain(input,
			       md_http_reader_feed(&call->reader, (char *)evbuffer_pullup(input, (ssize_t)size), size));
}

/* The answer is whole, and the call is gone on return. */
static void end(struct md_http_call *call)
{
	const struct md_http_call_events *events = call->events;
	void *context = call->context;
	free_call(call);
	events->end(context);
}

/* The call may be gone on return. */
static void take(struct md_http_call *call, bool closed)
{
	read_input(call, closed);
	if (closed)
		md_http_reader_close(&call->reader);
	if (call->reader.ended)
		end(call);
	else if (call->reader.status)
		fail(call, call->reader.why);
	else if (closed)
		fail_for(call, "closed the connection without an answer");
	else if (!call->paused) /* reading begins again by itself when input was taken */
		md_http_wire_watch(call->wire, EV_READ);
}

static ssize_t read_wire(const struct md_http_call *call, char *bytes, size_t size)
{
	if (call->way.read)
		return call->way.read(call->way.context, call->wire, bytes, size);
	return recv(bufferevent_getfd(call->wire), bytes, size, MSG_DONTWAIT);
}

/* Of a connection that nobody writes into any more. */
static void read_socket(struct md_http_call *call)
{
	char bytes[AT_ONCE];
	ssize_t got = 0;
	while (!call->reader.status && !call->reader.ended && (got = read_wire(call, bytes, sizeof(bytes))) > 0)
		for (size_t fed = 0; fed < (size_t)got && !call->reader.status && !call->reader.ended;)
			fed += md_http_reader_feed(&call->reader, bytes + fed, (size_t)got - fed);
	if (!got && !call->reader.ended && !call->reader.status)
		md_http_reader_close(&call->reader);
}

bool md_http_call_take_rest(struct md_http_call *call)
{
	if (!call->connected)
		return false;
	read_input(call, true);
	read_socket(call);
	bool ended = call->reader.ended && !call->reader.head.until_close;
	if (ended)
		end(call);
	return ended;
}

static void on_read(struct bufferevent *wire, void *context)
{
	(void)wire;
	take(context, false);
}

/* ---- the connection ---- */

static void on_silent(evutil_socket_t fd, short what, void *context)
{
	struct md_http_call *call = context;
	char why[80];
	(void)fd, (void)what;
	snprintf(why, sizeof(why), "the %s did not send %s within %u s", call->way.whom,
		 call->reader.began ? "the head of its answer" : "anything", call->answer_s);
	fail(call, why);
}

/* False: out of memory. */
static bool await_head(struct md_http_call *call)
{
	if (!call->answer_s)
		return true;
	call->silent = evtimer_new(bufferevent_get_base(call->wire), on_silent, call);
	return call->silent && !event_add(call->silent, &(struct timeval){.tv_sec = call->answer_s});
}

static void on_connected(struct md_http_call *call)
{
	call->connected = true;
	event_del(call->late);
	md_http_no_delay(bufferevent_getfd(call->wire));
	md_http_keep_alive(bufferevent_getfd(call->wire));
	if (!await_head(call)) {
		lack(call, "out of memory for a timer");
		return;
	}
	if (bufferevent_write_buffer(call->wire, call->request)) {
		lack(call, "out of memory for the request");
		return;
	}
	md_http_wire_watch(call->wire, EV_READ | EV_WRITE);
}

/* Who refuses a long request may answer before it was sent, and reset the connection then. */
static void on_over(evutil_socket_t fd, short what, void *context)
{
	struct md_http_call *call = context;
	(void)fd, (void)what;
	if (call->closed)
		take(call, true);
	else if (!md_http_call_take_rest(call))
		fail(call, call->broken);
}

/*
 * libevent tells that a connection by TLS is over before it hands out what it has read in the same turn, so the answer is looked at
 * after its call. False: out of memory.
 */
static bool look_on_later(struct md_http_call *call, bool closed)
{
	call->closed = closed;
	if (!call->over)
		call->over = event_new(bufferevent_get_base(call->wire), -1, 0, on_over, call);
	if (call->over)
		event_active(call->over, EV_TIMEOUT, 0);
	return call->over;
}

/* 0: of memory, as connecting says nothing else then. */
static bool is_lack(int failure)
{
	return !failure || failure == EMFILE || failure == ENFILE || failure == ENOMEM || failure == ENOBUFS;
}

static void on_broken(struct md_http_call *call)
{
	char why[240], said[180] = "";
	int failure = EVUTIL_SOCKET_ERROR();
	if (call->way.explain)
		call->way.explain(call->way.context, call->wire, said, sizeof(said));
	if (!*said)
		snprintf(said, sizeof(said), "%s", evutil_socket_error_to_string(failure));
	if (call->connected)
		snprintf(why, sizeof(why), "the connection to the %s broke: %s", call->way.whom, said);
	else
		snprintf(why, sizeof(why), "connecting: %s", said);
	snprintf(call->broken, sizeof(call->broken), "%s", why);
	if (!call->connected && failure && is_lack(failure)) /* where a name was looked up first */
		lack(call, why);
	else if (!call->connected || !look_on_later(call, false))
		fail(call, why);
}

static void on_event(struct bufferevent *wire, short what, void *context)
{
	struct md_http_call *call = context;
	(void)wire;
	if (what & BEV_EVENT_CONNECTED)
		on_connected(call);
	else if (what & BEV_EVENT_EOF && call->way.read && look_on_later(call, true))
		return;
	else if (what & BEV_EVENT_EOF)
		take(call, true);
	else
		on_broken(call);
}

static void on_late(evutil_socket_t fd, short what, void *context)
{
	struct md_http_call *call = context;
	char why[160];
	(void)fd, (void)what;
	snprintf(why, sizeof(why), "the %s did not take the connection within %u s", call->way.whom, call->connect_s);
	fail(call, why);
}

static void on_begin(evutil_socket_t fd, short what, void *context)
{
	struct md_http_call *call = context;
	struct timeval most = {.tv_sec = call->connect_s};
	(void)fd, (void)what;
	errno = 0; /* a way that has no memory may set none */
	if (call->incomplete) {
		lack(call, "out of memory for the request");
	} else if (event_add(call->late, &most)) {
		lack(call, "out of memory for a timer");
	} else if (call->way.connect(call->way.context, call->wire)) {
		if (is_lack(errno))
			lack(call, "out of memory for a connection, or of descriptors");
		else
			on_broken(call);
	}
}

/* ---- by a socket's address ---- */

static struct bufferevent *open_socket(void *context, struct event_base *base)
{
	(void)context;
	return bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
}

static int connect_socket(void *context, struct bufferevent *wire)
{
	struct md_http_address *address = context;
	return bufferevent_socket_connect(wire, &address->any, (int)address->size);
}

/* ---- the request ---- */

static bool prepare(struct md_http_call *call, struct event_base *base)
{
	call->request = evbuffer_new();
	call->wire = call->way.open(call->way.context, base);
	call->begin = event_new(base, -1, 0, on_begin, call);
	call->late = evtimer_new(base, on_late, call);
	return call->request && call->wire && call->begin && call->late;
}

static struct md_http_call *begin(struct md_http_call *call, struct event_base *base, const char *method,
				  const char *target, const struct md_http_call_events *events, void *context)
{
	call->events = events;
	call->context = context;
	md_http_reader_init(&call->reader, HTTP_RESPONSE, &reading, call);
	call->reader.no_body = !strcmp(method, "HEAD");
	if (!prepare(call, base)) {
		free_call(call);
		return NULL;
	}
	bufferevent_setcb(call->wire, on_read, NULL, on_event, call);
	bufferevent_setwatermark(call->wire, EV_READ, 0, AT_ONCE);
	call->incomplete = evbuffer_add_printf(call->request, "%s %s HTTP/1.1\r\n", method, target) < 0;
	return call;
}

struct md_http_call *md_http_call_begin(struct event_base *base, const struct md_http_address *address,
					const char *method, const char *target,
					const struct md_http_call_events *events, void *context)
{
	struct md_http_call *call = calloc(1, sizeof(*call));
	if (!call)
		return NULL;
	call->address = *address;
	call->way = (struct md_http_way){
	    .whom = "engine", .open = open_socket, .connect = connect_socket, .context = &call->address};
	return begin(call, base, method, target, events, context);
}

struct md_http_call *md_http_call_begin_by(struct event_base *base, const struct md_http_way *way, const char *method,
					   const char *target, const struct md_http_call_events *events, void *context)
{
	struct md_http_call *call = calloc(1, sizeof(*call));
	if (!call)
		return NULL;
	call->way = *way;
	return begin(call, base, method, target, events, context);
}

void md_http_call_header(struct md_http_call *call, const char *name, const char *value)
{
	if (md_http_is_token(name) && md_http_is_clean(value) &&
	    evbuffer_add_printf(call->request, "%s: %s\r\n", name, value) < 0)
		call->incomplete = true;
}

void md_http_call_send(struct md_http_call *call, const void *body, size_t size, unsigned connect_s, unsigned answer_s)
{
	call->connect_s = connect_s ? connect_s : CONNECT_S;
	call->answer_s = answer_s;
	if (evbuffer_add_printf(call->request, "Connection: close\r\nContent-Length: %zu\r\n\r\n", size) < 0 ||
	    evbuffer_add(call->request, body, size))
		call->incomplete = true;
	event_active(call->begin, EV_TIMEOUT, 0);
}

static void on_bound(evutil_socket_t fd, short what, void *context)
{
	struct md_http_call *call = context;
	char why[80];
	(void)fd, (void)what;
	snprintf(why, sizeof(why), "the %s did not %s within %u s", call->way.whom,
		 call->reader.began ? "end its answer" : "send anything", call->bound_s);
	fail(call, why);
}

void md_http_call_bound(struct md_http_call *call, unsigned seconds)
{
	call->bound_s = seconds;
	call->bound = seconds ? evtimer_new(bufferevent_get_base(call->wire), on_bound, call) : NULL;
	if (call->bound)
		event_add(call->bound, &(struct timeval){.tv_sec = seconds});
}

void md_http_call_pause(struct md_http_call *call, bool paused)
{
	if (call->paused == paused)
		return;
	call->paused = paused;
	if (paused) {
		bufferevent_disable(call->wire, EV_READ);
		return;
	}
	md_http_wire_watch(call->wire, EV_READ);
	if (evbuffer_get_length(bufferevent_get_input(call->wire)))
		bufferevent_trigger(call->wire, EV_READ, BEV_TRIG_DEFER_CALLBACKS);
}

void md_http_call_cancel(struct md_http_call *call)
{
	if (call)
		free_call(call);
}
