/* SPDX-License-Identifier: Apache-2.0 */
#include "http/listener.h"

#include <errno.h>
#include <event2/listener.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/address.h"

#define MD_LOG_DOMAIN "http"
#include "base/log.h"

#define BACKLOG 1024
#define SILENT_NS UINT64_C(10000000000) /* between two messages about the same */

struct md_http_listener {
	struct evconnlistener *socket;
	struct event *rest;
	void (*accepted)(void *context, int fd, const struct sockaddr *address);
	void *context;
	unsigned port;
	char *path;      /* of a Unix socket */
	uint64_t silent; /* nothing is said before; ns */
};

static void rest(struct md_http_listener *listener)
{
	struct timeval second = {.tv_sec = 1};
	event_add(listener->rest, &second);
}

static void on_rested(evutil_socket_t fd, short what, void *context)
{
	struct md_http_listener *listener = context;
	(void)fd, (void)what;
	if (evconnlistener_enable(listener->socket))
		rest(listener);
}

static void on_accept(struct evconnlistener *socket, evutil_socket_t fd, struct sockaddr *address, int size,
		      void *context)
{
	struct md_http_listener *listener = context;
	(void)socket, (void)size;
	listener->accepted(listener->context, fd, address);
}

/* The connection stays in the kernel's queue, so without a rest the socket would be reported again at once. */
static void on_error(struct evconnlistener *socket, void *context)
{
	struct md_http_listener *listener = context;
	int why = errno;
	evconnlistener_disable(socket);
	rest(listener);
	if (md_clock_ns() < listener->silent)
		return;
	listener->silent = md_clock_ns() + SILENT_NS;
	md_warn("connections wait, because they can't be accepted: %s", strerror(why));
}

static enum md_status open_socket(struct md_http_listener *made, struct event_base *base, const char *listen,
				  struct md_error *err)
{
	struct md_http_address address;
	MD_FORWARD(md_http_address_parse(listen, &address, err));
	if (address.any.sa_family == AF_UNIX)
		MD_FORWARD(md_http_address_clear(&address, err));
	made->socket = evconnlistener_new_bind(base, on_accept, made,
					       LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE,
					       BACKLOG, &address.any, (int)address.size);
	if (!made->socket)
		return md_error_set(err, errno == EADDRINUSE ? MD_ERR_BUSY : MD_ERR_OUTPUT, "listening on %s: %s",
				    listen, strerror(errno));
	/* made so, it says nothing when the loop does not take it, and would never hear anybody */
	if (evconnlistener_disable(made->socket) || evconnlistener_enable(made->socket))
		return md_error_set(err, MD_ERR_IO, "listening on %s: %s", listen, strerror(errno));
	evconnlistener_set_error_cb(made->socket, on_error);
	made->port = md_http_address_port(evconnlistener_get_fd(made->socket));
	if (address.any.sa_family == AF_UNIX)
		made->path = strdup(address.local.sun_path);
	return MD_OK;
}

enum md_status md_http_listener_create(struct event_base *base, const char *listen,
				       void (*accepted)(void *context, int fd, const struct sockaddr *address),
				       void *context, struct md_http_listener **listener, struct md_error *err)
{
	struct md_http_listener *made = calloc(1, sizeof(*made));
	if (!made)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a listener");
	*made = (struct md_http_listener){.accepted = accepted, .context = context};
	made->rest = evtimer_new(base, on_rested, made);
	enum md_status status = made->rest ? open_socket(made, base, listen, err)
					   : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a listener");
	if (status != MD_OK)
		md_http_listener_destroy(made);
	else
		*listener = made;
	return status;
}

void md_http_listener_destroy(struct md_http_listener *listener)
{
	if (!listener)
		return;
	if (listener->socket)
		evconnlistener_free(listener->socket);
	if (listener->rest)
		event_free(listener->rest);
	if (listener->path)
		unlink(listener->path);
	free(listener->path);
	free(listener);
}

unsigned md_http_listener_port(const struct md_http_listener *listener)
{
	return listener->port;
}

uint64_t md_http_listener_inode(const struct md_http_listener *listener)
{
	struct stat is;
	return fstat(evconnlistener_get_fd(listener->socket), &is) ? 0 : is.st_ino;
}
