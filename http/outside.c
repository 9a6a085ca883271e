/* SPDX-License-Identifier: Apache-2.0 */
#include "http/outside.h"

#include <event2/dns.h>
#include <event2/util.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct md_http_outside {
	struct event_base *base;
	struct evdns_base *names;
	struct md_http_trust *trust; /* NULL: TLS is not spoken */
	struct lookup *lookups;
	bool destroyed;                    /* when the last lookup has ended */
	const struct bufferevent *unnamed; /* whose lookup has just failed, with name_error; NULL: none's */
	int name_error;
};

/*
 * A name that is looked up for a wire. libevent's own way (bufferevent_socket_connect_hostname) can't be cancelled: the lookup
 * would keep a wire that was freed, and for ever if its evdns_base is freed before it ends.
 */
struct lookup {
	struct md_http_outside *outside;
	struct lookup *next, **at;
	struct bufferevent *wire;                  /* a reference; its callbacks are gone when the call is */
	struct evdns_getaddrinfo_request *request; /* NULL: not begun */
};

enum md_status md_http_outside_create(struct event_base *base, struct md_http_trust *trust,
				      struct md_http_outside **made, struct md_error *err)
{
	struct md_http_outside *outside = calloc(1, sizeof(*outside));
	struct evdns_base *names = outside ? evdns_base_new(base, EVDNS_BASE_DISABLE_WHEN_INACTIVE) : NULL;
	if (!names) {
		free(outside);
		md_http_trust_destroy(trust);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for looking up names");
	}
	/* without that file, this machine's own name server is asked */
	evdns_base_resolv_conf_parse(names, DNS_OPTIONS_ALL, "/etc/resolv.conf");
	*outside = (struct md_http_outside){.base = base, .names = names, .trust = trust};
	*made = outside;
	return MD_OK;
}

void md_http_outside_trust(struct md_http_outside *outside, struct md_http_trust *trust)
{
	md_http_trust_destroy(outside->trust);
	outside->trust = trust;
}

static void free_outside(struct md_http_outside *outside)
{
	evdns_base_free(outside->names, 0);
	md_http_trust_destroy(outside->trust);
	free(outside);
}

static void on_unused(evutil_socket_t fd, short what, void *context)
{
	(void)fd, (void)what;
	free_outside(context);
}

void md_http_outside_destroy(struct md_http_outside *outside)
{
	if (!outside)
		return;
	outside->destroyed = true;
	for (struct lookup *at = outside->lookups; at; at = at->next)
		if (at->request)
			evdns_getaddrinfo_cancel(at->request);
	if (!outside->lookups)
		free_outside(outside);
}

/* ---- a URL ---- */

/* Takes the port off the end of "host:port" or "[address]:port"; false: what stands there is no port. */
static bool take_port(char *host, uint16_t *port)
{
	char *colon = strrchr(host, ':'), *end;
	if (!colon || strchr(colon, ']'))
		return true;
	unsigned long value = strtoul(colon + 1, &end, 10);
	if (strspn(colon + 1, "0123456789") != strlen(colon + 1) || *end || !value || value > UINT16_MAX)
		return false;
	*port = (uint16_t)value;
	*colon = '\0';
	return true;
}

bool md_http_remote_read(const char *url, struct md_http_remote *remote, char prefix[256], char named[272])
{
	bool tls = !strncasecmp(url, "https://", 8);
	const char *rest = url + (tls ? 8 : 7);
	size_t size = strcspn(rest, "/");
	if ((!tls && strncasecmp(url, "http://", 7) != 0) || !size || size >= sizeof(remote->host) ||
	    strlen(rest + size) >= 256 || strpbrk(rest, "?#@"))
		return false;
	snprintf(named, 272, "%.*s", (int)size, rest);
	snprintf(prefix, 256, "%s", rest + size);
	for (size_t end = strlen(prefix); end && prefix[end - 1] == '/';)
		prefix[--end] = '\0';
	snprintf(remote->host, sizeof(remote->host), "%s", named);
	remote->tls = tls;
	remote->port = tls ? 443 : 80;
	if (!take_port(remote->host, &remote->port))
		return false;
	size = strlen(remote->host);
	if (remote->host[0] == '[' && remote->host[size - 1] == ']') {
		memmove(remote->host, remote->host + 1, size - 2);
		remote->host[size - 2] = '\0';
	}
	return *remote->host != '\0';
}

/* ---- a call ---- */

static struct bufferevent *open_remote(void *context, struct event_base *base)
{
	const struct md_http_remote *remote = context;
	if (!remote->tls)
		return bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
	return md_http_trust_call(remote->outside->trust, base, remote->host, remote->name);
}

/* The caller may be within evdns, so what it uses is freed by the loop. */
static void end_lookup(struct lookup *lookup)
{
	struct md_http_outside *outside = lookup->outside;
	*lookup->at = lookup->next;
	if (lookup->next)
		lookup->next->at = lookup->at;
	bufferevent_decref(lookup->wire);
	free(lookup);
	if (outside->destroyed && !outside->lookups)
		event_base_once(outside->base, -1, EV_TIMEOUT, on_unused, outside, NULL);
}

static bool is_freed(struct bufferevent *wire)
{
	bufferevent_event_cb event;
	bufferevent_getcb(wire, NULL, NULL, &event, NULL);
	return !event;
}

static void on_looked_up(int error, struct evutil_addrinfo *found, void *context)
{
	struct lookup *lookup = context;
	struct md_http_outside *outside = lookup->outside;
	if (!is_freed(lookup->wire) &&
	    (error || bufferevent_socket_connect(lookup->wire, found->ai_addr, (int)found->ai_addrlen))) {
		outside->unnamed = error ? lookup->wire : NULL;
		outside->name_error = error;
		bufferevent_trigger_event(lookup->wire, BEV_EVENT_ERROR, 0);
		outside->unnamed = NULL;
	}
	if (found)
		evutil_freeaddrinfo(found);
	end_lookup(lookup);
}

static int connect_remote(void *context, struct bufferevent *wire)
{
	const struct md_http_remote *remote = context;
	struct md_http_outside *outside = remote->outside;
	struct evutil_addrinfo wanted = {
	    .ai_family = AF_UNSPEC, .ai_protocol = IPPROTO_TCP, .ai_socktype = SOCK_STREAM};
	char port[8];
	struct lookup *lookup = calloc(1, sizeof(*lookup));
	if (!lookup)
		return -1;
	*lookup = (struct lookup){.outside = outside, .next = outside->lookups, .at = &outside->lookups, .wire = wire};
	if (lookup->next)
		lookup->next->at = &lookup->next;
	outside->lookups = lookup;
	bufferevent_incref(wire);
	snprintf(port, sizeof(port), "%u", (unsigned)remote->port);
	struct evdns_getaddrinfo_request *request =
	    evdns_getaddrinfo(outside->names, remote->host, port, &wanted, on_looked_up, lookup);
	if (request) /* else the lookup has ended */
		lookup->request = request;
	return 0;
}

static void explain(void *context, struct bufferevent *wire, char *why, size_t size)
{
	const struct md_http_remote *remote = context;
	int name = remote->outside->unnamed == wire ? remote->outside->name_error : 0;
	if (name)
		snprintf(why, size, "%.60s: %s", remote->host, evutil_gai_strerror(name));
	else if (remote->tls)
		md_http_trust_explain(wire, why, size);
}

static ssize_t read_remote(void *context, struct bufferevent *wire, char *bytes, size_t size)
{
	const struct md_http_remote *remote = context;
	if (remote->tls)
		return md_http_trust_read(wire, bytes, size);
	return recv(bufferevent_getfd(wire), bytes, size, MSG_DONTWAIT);
}

struct md_http_way md_http_remote_way(struct md_http_remote *remote, const char *whom)
{
	return (struct md_http_way){.whom = whom,
				    .open = open_remote,
				    .connect = connect_remote,
				    .explain = explain,
				    .read = read_remote,
				    .context = remote};
}
