/* SPDX-License-Identifier: Apache-2.0 */
#include "http/connection.h"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/wire_watch.h"

/* ---- the list of the front ---- */

static void link_connection(struct md_http_front *front, struct md_http_exchange *x)
{
	x->older = front->newest;
	if (x->older)
		x->older->newer = x;
	else
		front->oldest = x;
	front->newest = x;
	front->count++;
}

static void unlink_connection(struct md_http_exchange *x)
{
	struct md_http_front *front = x->front;
	*(x->older ? &x->older->newer : &front->oldest) = x->newer;
	*(x->newer ? &x->newer->older : &front->newest) = x->older;
	front->count--;
}

/* ---- states ---- */

size_t md_http_connection_unsent(const struct md_http_exchange *x)
{
	return evbuffer_get_length(bufferevent_get_output(x->wire));
}

static bool has_input(const struct md_http_exchange *x)
{
	return evbuffer_get_length(bufferevent_get_input(x->wire)) != 0;
}

void md_http_connection_drop_body(struct md_http_exchange *x)
{
	x->front->bodies -= x->body.size;
	md_buf_clear(&x->body);
	if (x->body.capacity > MD_HTTP_AHEAD)
		md_buf_finish(&x->body);
}

static void on_output(struct evbuffer *output, const struct evbuffer_cb_info *info, void *context);

/* What the wire still drains, of which libevent's TLS has a part in hand when it says that the connection has broken, concerns nobody. */
void md_http_connection_close(struct md_http_exchange *x)
{
	const struct md_http_exchange_events *events = x->state == MD_HTTP_ANSWERING ? x->events : NULL;
	x->events = NULL;
	unlink_connection(x);
	evbuffer_remove_cb(bufferevent_get_output(x->wire), on_output, x);
	bufferevent_free(x->wire);
	md_http_reader_finish(&x->reader);
	md_http_connection_drop_body(x);
	md_buf_finish(&x->body);
	if (events)
		events->gone(x->context);
	free(x);
}

void md_http_connection_enter(struct md_http_exchange *x, enum md_http_state state)
{
	x->state = state;
	x->since = md_clock_ns();
}

void md_http_connection_end_is_reset(struct md_http_exchange *x, bool reset)
{
	struct linger how = {.l_onoff = reset, .l_linger = 0};
	if (x->until_close != reset)
		setsockopt(bufferevent_getfd(x->wire), SOL_SOCKET, SO_LINGER, &how, sizeof(how));
	x->until_close = reset;
}

/*
 * The system has all of the answer. The connection is no longer there on return if the client has said already that it sends
 * no more.
 */
static void linger(struct md_http_exchange *x)
{
	md_http_connection_end_is_reset(x, false);
	if (x->half_closed) {
		md_http_connection_close(x);
		return;
	}
	md_http_connection_enter(x, MD_HTTP_LINGERING);
	if (x->tls)
		x->tls->close(x->wire);
	shutdown(bufferevent_getfd(x->wire), SHUT_WR);
}

void md_http_connection_close_when_sent(struct md_http_exchange *x)
{
	md_http_connection_drop_body(x);
	md_http_connection_enter(x, MD_HTTP_CLOSING);
	if (!md_http_connection_unsent(x))
		linger(x);
}

void md_http_connection_leave(struct md_http_exchange *x)
{
	if (md_http_connection_unsent(x))
		md_http_connection_close_when_sent(x);
	else
		md_http_connection_close(x);
}

void md_http_connection_next(struct md_http_exchange *x)
{
	md_http_connection_drop_body(x);
	x->head_read = x->shared = x->begun = false;
	x->events = NULL;
	md_http_connection_enter(x, MD_HTTP_WAITING);
	md_http_reader_next(&x->reader);
	if (x->front->draining || x->outdated || (x->half_closed && !has_input(x)))
		md_http_connection_close_when_sent(x);
	else if (has_input(x))
		bufferevent_trigger(x->wire, EV_READ, BEV_TRIG_DEFER_CALLBACKS); /* outside of the caller's call */
}

/* ---- clients that send no more ---- */

bool md_http_connection_is_gone(const struct md_http_exchange *x)
{
	struct pollfd wire = {.fd = bufferevent_getfd(x->wire)};
	return poll(&wire, 1, 0) != 0 && (wire.revents & (POLLHUP | POLLERR | POLLNVAL));
}

/*
 * A client may end its direction and still wait for the answer (RFC 9112, section 9.6), or may be gone. HTTP/1.1 has
 * interim answers, which make the system of one that is gone say so. False: it is gone, or it speaks HTTP/1.0, in which
 * none can be sent.
 */
static bool is_waiting(struct md_http_exchange *x)
{
	static const char probe[] = "HTTP/1.1 100 Continue\r\n\r\n";
	const ssize_t size = sizeof(probe) - 1;
	bool local = !strcmp(x->peer, "unix");
	if (x->tls) /* nodes end no direction alone */
		return false;
	if (!x->begun && !x->reader.head.minor)
		return false;
	if (!x->begun && !local && !md_http_connection_unsent(x) &&
	    send(bufferevent_getfd(x->wire), probe, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL) != size)
		return false;
	return !md_http_connection_is_gone(x);
}

static void on_half_closed(struct md_http_exchange *x)
{
	x->half_closed = true;
	bufferevent_disable(x->wire, EV_READ);
	if (x->state == MD_HTTP_CLOSING || (x->state == MD_HTTP_ANSWERING && is_waiting(x)) ||
	    (x->state == MD_HTTP_WAITING && has_input(x)))
		return;
	if (x->state == MD_HTTP_WAITING || x->state == MD_HTTP_READING)
		md_http_connection_leave(x);
	else
		md_http_connection_close(x);
}

/* ---- the wire ---- */

void md_http_connection_tell_unproven(struct md_http_exchange *x, const char *why)
{
	struct md_http_front *front = x->front;
	char peer[sizeof(x->peer)];
	memcpy(peer, x->peer, sizeof(peer));
	md_http_connection_close(x);
	if (front->events->unproven)
		front->events->unproven(front->context, peer, why);
}

static void on_handshake(struct md_http_exchange *x, bool ended)
{
	char why[180] = "";
	x->proven = ended;
	if (ended) {
		md_http_connection_enter(x, MD_HTTP_WAITING);
		return;
	}
	x->tls->explain(x->wire, why, sizeof(why));
	md_http_connection_tell_unproven(x, *why ? why : "the connection ended before its handshake did");
}

static void on_event(struct bufferevent *wire, short what, void *context)
{
	struct md_http_exchange *x = context;
	(void)wire;
	if (!x->proven)
		on_handshake(x, what & BEV_EVENT_CONNECTED);
	else if (x->tls && what & BEV_EVENT_EOF && x->state != MD_HTTP_CLOSING)
		md_http_connection_close(x);
	else if ((what & BEV_EVENT_EOF) && (what & BEV_EVENT_READING))
		on_half_closed(context);
	else
		md_http_connection_close(context);
}

static void on_write(struct bufferevent *wire, void *context)
{
	struct md_http_exchange *x = context;
	(void)wire;
	if (x->state == MD_HTTP_CLOSING)
		linger(x);
	else if (x->state == MD_HTTP_ANSWERING && x->events && x->events->drained)
		x->events->drained(x->context);
}

static void on_output(struct evbuffer *output, const struct evbuffer_cb_info *info, void *context)
{
	struct md_http_exchange *x = context;
	(void)output;
	x->taken = x->taken || info->n_deleted;
	if (!info->orig_size && info->n_added && (bufferevent_get_enabled(x->wire) & EV_WRITE))
		md_http_wire_watch(x->wire, EV_WRITE);
}

/* ---- the beginning ---- */

static void note_peer(struct md_http_exchange *x, const struct sockaddr *address)
{
	const void *bytes = NULL;
	snprintf(x->peer, sizeof(x->peer), "unix");
	if (address->sa_family == AF_INET)
		bytes = &((const struct sockaddr_in *)address)->sin_addr;
	else if (address->sa_family == AF_INET6)
		bytes = &((const struct sockaddr_in6 *)address)->sin6_addr;
	if (bytes)
		inet_ntop(address->sa_family, bytes, x->peer, sizeof(x->peer));
}

struct md_http_exchange *md_http_connection_create(struct md_http_front *front, int fd, const struct sockaddr *address,
						   bufferevent_data_cb on_read)
{
	struct bufferevent *wire = front->trust ? front->tls->accept(front->trust, front->base, fd)
						: bufferevent_socket_new(front->base, fd, BEV_OPT_CLOSE_ON_FREE);
	struct md_http_exchange *x = wire ? calloc(1, sizeof(*x)) : NULL;
	if (!wire && !front->trust)
		close(fd);
	if (!x || !evbuffer_add_cb(bufferevent_get_output(wire), on_output, x)) {
		if (wire)
			bufferevent_free(wire);
		free(x);
		return NULL;
	}
	x->front = front;
	x->wire = wire;
	x->tls = front->trust ? front->tls : NULL;
	x->proven = !front->trust;
	md_buf_init(&x->body);
	note_peer(x, address);
	link_connection(front, x);
	md_http_connection_enter(x, MD_HTTP_WAITING);
	bufferevent_setcb(wire, on_read, on_write, on_event, x);
	bufferevent_setwatermark(wire, EV_READ, 0, MD_HTTP_AHEAD);
	return x;
}
