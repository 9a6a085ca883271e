/* SPDX-License-Identifier: Apache-2.0 */
#include "http/front.h"

#include <event2/buffer.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/address.h"
#include "http/connection.h"
#include "http/wire_watch.h"

#define SECOND UINT64_C(1000000000)
#define LINGER_S 2u
#define TICK_S 1u

/* ---- reading ---- */

static void answer_refused(struct md_http_exchange *x, unsigned status, const char *why)
{
	char text[256];
	int size = snprintf(text, sizeof(text), "%s\n", why);
	md_http_answer_begin(x, status, size);
	md_http_answer_header(x, "Content-Type", "text/plain; charset=utf-8");
	md_http_answer_body(x);
	md_http_answer_write(x, text, (size_t)size);
	md_http_answer_end(x);
}

/* The rest of the request is not read: the connection ends with this answer. */
static void refuse(struct md_http_exchange *x, unsigned status, const char *why)
{
	char kept[sizeof(x->reader.why)];
	snprintf(kept, sizeof(kept), "%s", why);
	md_http_connection_drop_body(x);
	md_http_connection_enter(x, MD_HTTP_ANSWERING);
	if (!x->head_read)
		md_http_reader_drop_head(&x->reader);
	x->events = NULL;
	x->keep_alive = false;
	x->no_body = x->head_read && !strcmp(x->reader.head.method, "HEAD");
	if (x->front->events->refused)
		x->front->events->refused(x->front->context, x, status, kept);
	else
		answer_refused(x, status, kept);
}

static bool on_head(void *context, const struct md_http_head *head)
{
	struct md_http_exchange *x = context;
	const struct md_http_front *front = x->front;
	const char *why = "";
	x->head_read = true;
	x->reader.head.certificate = x->tls ? x->tls->certificate(x->wire) : NULL;
	x->since = md_clock_ns();
	unsigned status = front->events->admit ? front->events->admit(front->context, head, &why) : 0;
	if (status)
		return md_http_reader_refuse(&x->reader, status, why);
	if (head->length > (int64_t)front->limits.body_bytes)
		return md_http_reader_refuse(&x->reader, 413, "the body of the request is too large");
	if (md_http_head_find(head, "Expect")) {
		if (!md_http_head_says(head, "Expect", "100-continue"))
			return md_http_reader_refuse(&x->reader, 417, "only 100-continue can be expected");
		if (head->minor)
			bufferevent_write(x->wire, "HTTP/1.1 100 Continue\r\n\r\n", 25);
	}
	return true;
}

static bool on_body(void *context, const char *bytes, size_t size)
{
	struct md_http_exchange *x = context;
	struct md_http_front *front = x->front;
	size_t before = x->body.size;
	if (front->bodies > front->limits.bodies_bytes || size > front->limits.bodies_bytes - front->bodies)
		return md_http_reader_refuse(&x->reader, 503, "too many large requests are here: try again later");
	md_buf_put(&x->body, bytes, size);
	front->bodies += x->body.size - before;
	if (x->body.failed)
		return md_http_reader_refuse(&x->reader, 503, "out of memory for the body of the request");
	return true;
}

static void on_end(void *context)
{
	struct md_http_exchange *x = context;
	md_buf_put_u8(&x->body, 0);
	x->front->bodies += !x->body.failed;
	if (x->body.failed)
		md_http_reader_refuse(&x->reader, 503, "out of memory for the body of the request");
}

static const struct md_http_reader_events reading = {.head = on_head, .body = on_body, .end = on_end};

/* A request is whole. */
static void hand_over(struct md_http_exchange *x)
{
	const struct md_http_head *head = &x->reader.head;
	md_http_connection_enter(x, MD_HTTP_ANSWERING);
	x->keep_alive = head->keep_alive && !x->front->draining && !x->outdated;
	x->served = true;
	x->no_body = !strcmp(head->method, "HEAD");
	x->front->events->request(x->front->context, x);
}

static bool is_reading(const struct md_http_exchange *x)
{
	return x->state == MD_HTTP_WAITING || x->state == MD_HTTP_READING;
}

/* Feeds what has come. The connection may be closed on return. */
static void read_on(struct md_http_exchange *x)
{
	struct evbuffer *input = bufferevent_get_input(x->wire);
	while (is_reading(x) && !x->reader.status && !x->reader.ended) {
		size_t size = evbuffer_get_contiguous_space(input);
		if (!size)
			break;
		if (x->state == MD_HTTP_WAITING)
			md_http_connection_enter(x, MD_HTTP_READING);
		evbuffer_drain(input,
			       md_http_reader_feed(&x->reader, (char *)evbuffer_pullup(input, (ssize_t)size), size));
	}
	if (!is_reading(x))
		return;
	if (x->reader.status)
		refuse(x, x->reader.status, x->reader.why);
	else if (x->reader.ended)
		hand_over(x);
	else if (x->half_closed)
		md_http_connection_leave(x); /* the rest does not come any more */
}

static void on_read(struct bufferevent *wire, void *context)
{
	struct md_http_exchange *x = context;
	struct evbuffer *input = bufferevent_get_input(wire);
	if (x->state == MD_HTTP_CLOSING || x->state == MD_HTTP_LINGERING)
		evbuffer_drain(input, evbuffer_get_length(input));
	else
		read_on(x);
}

/* ---- accepting ---- */

/* What a connection gets that is one too many; if there is no room for it, it gets nothing. */
static void turn_away(const struct md_http_front *front, int fd)
{
	static const char body[] =
	    "{\"error\":{\"message\":\"too many connections are open\",\"type\":\"server_error\","
	    "\"param\":null,\"code\":\"too_many_connections\"}}\n";
	char answer[512];
	int size = snprintf(answer, sizeof(answer),
			    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
			    "Content-Length: %zu\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s",
			    sizeof(body) - 1, body);
	ssize_t sent = front->trust ? 0 : send(fd, answer, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL);
	(void)sent;
	shutdown(fd, SHUT_WR);
	close(fd);
}

/* Closes the connection that has waited longest without a request, if that is a second at least. */
static bool make_room(struct md_http_front *front)
{
	struct md_http_exchange *found = NULL;
	for (struct md_http_exchange *x = front->oldest; x; x = x->newer)
		if (x->state == MD_HTTP_WAITING && !md_http_connection_unsent(x) && (!found || x->since < found->since))
			found = x;
	if (!found || md_clock_ns() - found->since < SECOND)
		return false;
	md_http_connection_close(found);
	return true;
}

void md_http_front_accept(void *context, int fd, const struct sockaddr *address)
{
	struct md_http_front *front = context;
	if (front->count >= front->limits.connections && !make_room(front)) {
		turn_away(front, fd);
		return;
	}
	struct md_http_exchange *x = md_http_connection_create(front, fd, address, on_read);
	if (!x)
		return;
	md_http_reader_init(&x->reader, HTTP_REQUEST, &reading, x);
	x->reader.body_most = front->limits.body_bytes;
	md_http_no_delay(fd);
	md_http_wire_watch(x->wire, EV_READ); /* writing is enabled from the start */
}

/* ---- time ---- */

static bool is_late(const struct md_http_exchange *x, uint64_t now)
{
	const struct md_http_limits *limits = &x->front->limits;
	uint64_t most = x->state == MD_HTTP_LINGERING ? LINGER_S
			: !x->proven                  ? limits->tls_s
			: x->state == MD_HTTP_WAITING ? limits->idle_s
			: x->head_read                ? limits->body_s
						      : limits->head_s;
	return x->state != MD_HTTP_ANSWERING && x->state != MD_HTTP_CLOSING && now - x->since > most * SECOND;
}

/* Counts for how long nothing has been taken of what waits. True: for too long, or the client is gone. */
static bool is_lost(struct md_http_exchange *x)
{
	x->stalled_s = md_http_connection_unsent(x) && !x->taken && !x->held ? x->stalled_s + TICK_S : 0;
	x->taken = false;
	return x->stalled_s >= x->front->limits.write_s || (x->half_closed && md_http_connection_is_gone(x));
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
	struct md_http_front *front = context;
	uint64_t now = md_clock_ns();
	(void)fd, (void)what;
	for (struct md_http_exchange *next, *x = front->oldest; x; x = next) {
		next = x->newer;
		bool late = is_late(x, now);
		if (late && x->state == MD_HTTP_READING)
			refuse(x, 408, "the request did not come in time");
		else if (late && !x->proven)
			md_http_connection_tell_unproven(x, "the handshake did not end in time");
		else if (is_lost(x) || late)
			md_http_connection_close(x);
		else /* reading begins again by itself when input was taken */
			md_http_wire_watch(x->wire, bufferevent_get_enabled(x->wire) & EV_READ);
	}
}

/* ---- beginning and end ---- */

static void set_limits(struct md_http_front *front, const struct md_http_limits *limits)
{
	struct md_http_limits *own = &front->limits;
	*own = limits ? *limits : (struct md_http_limits){0};
	own->connections = own->connections ? own->connections : 4096;
	own->body_bytes = own->body_bytes ? own->body_bytes : 64u << 20;
	own->bodies_bytes = own->bodies_bytes ? own->bodies_bytes : 1u << 30;
	if (own->bodies_bytes < own->body_bytes)
		own->bodies_bytes = own->body_bytes;
	own->head_s = own->head_s ? own->head_s : 15;
	own->body_s = own->body_s ? own->body_s : 300;
	own->idle_s = own->idle_s ? own->idle_s : 75;
	own->tls_s = own->tls_s ? own->tls_s : 10;
	own->write_s = own->write_s ? own->write_s : 120;
}

enum md_status md_http_front_create(struct event_base *base, const char *listen, const struct md_http_limits *limits,
				    const struct md_http_front_events *events, void *context,
				    struct md_http_front **front, struct md_error *err)
{
	struct timeval second = {.tv_sec = TICK_S};
	struct md_http_front *made = calloc(1, sizeof(*made));
	if (!made)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a listener");
	made->base = base;
	made->events = events;
	made->context = context;
	set_limits(made, limits);
	made->tick = event_new(base, -1, EV_PERSIST, on_tick, made);
	enum md_status status =
	    made->tick && !event_add(made->tick, &second)
		? md_http_listener_create(base, listen, md_http_front_accept, made, &made->listener, err)
		: md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a listener");
	if (status != MD_OK) {
		md_http_front_destroy(made);
		return status;
	}
	made->port = md_http_listener_port(made->listener);
	*front = made;
	return MD_OK;
}

void md_http_front_destroy(struct md_http_front *front)
{
	if (!front)
		return;
	while (front->oldest)
		md_http_connection_close(front->oldest);
	md_http_listener_destroy(front->listener);
	if (front->trust)
		front->tls->destroy(front->trust);
	if (front->tick)
		event_free(front->tick);
	free(front);
}

void md_http_front_trust(struct md_http_front *front, struct md_http_trust *trust, const struct md_http_trust_ops *ops)
{
	if (front->trust)
		front->tls->destroy(front->trust);
	front->trust = trust;
	front->tls = ops;
	for (struct md_http_exchange *next, *x = front->oldest; x; x = next) {
		next = x->newer;
		x->outdated = true;
		if (x->state == MD_HTTP_WAITING && x->served)
			md_http_connection_leave(x);
	}
}

void md_http_front_drain(struct md_http_front *front)
{
	front->draining = true;
	md_http_listener_destroy(front->listener);
	front->listener = NULL;
	for (struct md_http_exchange *next, *x = front->oldest; x; x = next) {
		next = x->newer;
		if (x->state == MD_HTTP_WAITING)
			md_http_connection_leave(x);
	}
}

unsigned md_http_front_port(const struct md_http_front *front)
{
	return front->port;
}

uint64_t md_http_front_inode(const struct md_http_front *front)
{
	return front->listener ? md_http_listener_inode(front->listener) : 0;
}

unsigned md_http_front_connections(const struct md_http_front *front)
{
	return front->count;
}
