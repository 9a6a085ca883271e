/* SPDX-License-Identifier: Apache-2.0 */
#include "http/outside.h"

#include <arpa/inet.h>
#include <event2/bufferevent_ssl.h>
#include <event2/dns.h>
#include <event2/util.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
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

/* OpenSSL's context under a name of our own, so that nobody else needs its headers. */
static SSL_CTX *context_of(struct md_http_trust *trust)
{
	return (SSL_CTX *)trust;
}

/* ---- what calls have in common ---- */

static const char *tls_reason(unsigned long code)
{
	const char *reason = code ? ERR_reason_error_string(code) : NULL;
	if (ERR_SYSTEM_ERROR(code))
		return strerror(ERR_GET_REASON(code));
	return reason ? reason : "for a reason that OpenSSL does not name";
}

static bool is_given(const char *path)
{
	return path && *path;
}

static enum md_status refuse_file(const char *what, const char *path, struct md_error *err)
{
	return md_error_set(err, MD_ERR_IO, "TLS: %s %.200s: %s", what, path, tls_reason(ERR_get_error()));
}

static enum md_status load_files(SSL_CTX *tls, const struct md_http_trust_files *files, struct md_error *err)
{
	const char *key = is_given(files->key) ? files->key : files->certificate;
	if (is_given(files->ca) && !SSL_CTX_load_verify_locations(tls, files->ca, NULL))
		return refuse_file("the certificates that are trusted,", files->ca, err);
	if (!is_given(files->certificate))
		return MD_OK;
	if (SSL_CTX_use_certificate_chain_file(tls, files->certificate) != 1)
		return refuse_file("the certificate", files->certificate, err);
	if (SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) != 1 || !SSL_CTX_check_private_key(tls))
		return refuse_file("the key", key, err);
	return MD_OK;
}

enum md_status md_http_trust_create(const struct md_http_trust_files *files, struct md_http_trust **made,
				    struct md_error *err)
{
	static const struct md_http_trust_files none;
	SSL_CTX *tls = SSL_CTX_new(TLS_client_method());
	enum md_status status = MD_OK;
	files = files ? files : &none;
	if (!tls)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for TLS");
	SSL_CTX_set_verify(tls, SSL_VERIFY_PEER, NULL);
	if (!SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION) ||
	    (!is_given(files->ca) && !SSL_CTX_set_default_verify_paths(tls)))
		status = md_error_set(err, MD_ERR_IO, "TLS: the certificates that are trusted: %s",
				      tls_reason(ERR_get_error()));
	if (status == MD_OK)
		status = load_files(tls, files, err);
	if (status == MD_OK)
		*made = (struct md_http_trust *)tls;
	else
		SSL_CTX_free(tls);
	return status;
}

void md_http_trust_destroy(struct md_http_trust *trust)
{
	SSL_CTX_free(context_of(trust));
}

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

static bool is_address(const char *host)
{
	unsigned char bytes[sizeof(struct in6_addr)];
	return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

/* Whose certificate is wanted; a server of several names is told which one is meant. */
static bool expect_host(SSL *tls, const char *host)
{
	if (is_address(host))
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), host) == 1;
	return SSL_set1_host(tls, host) == 1 && SSL_set_tlsext_host_name(tls, host) == 1;
}

static struct bufferevent *open_remote(void *context, struct event_base *base)
{
	const struct md_http_remote *remote = context;
	if (!remote->tls)
		return bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
	SSL *tls = SSL_new(context_of(remote->outside->trust));
	if (!tls || !expect_host(tls, remote->host)) {
		SSL_free(tls);
		return NULL;
	}
	return bufferevent_openssl_socket_new(base, -1, tls, BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE);
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
	SSL *tls = remote->tls ? bufferevent_openssl_get_ssl(wire) : NULL;
	unsigned long code = tls ? bufferevent_get_openssl_error(wire) : 0;
	long verified = tls ? SSL_get_verify_result(tls) : X509_V_OK;
	if (name)
		snprintf(why, size, "%.60s: %s", remote->host, evutil_gai_strerror(name));
	else if (verified != X509_V_OK)
		snprintf(why, size, "its certificate: %s", X509_verify_cert_error_string(verified));
	else if (code && code != SSL_ERROR_SYSCALL) /* which libevent says instead of the system's reason */
		snprintf(why, size, "TLS: %s", tls_reason(code));
}

/* OpenSSL reads on after a write that has failed, but where TLS itself has. */
static ssize_t read_remote(void *context, struct bufferevent *wire, char *bytes, size_t size)
{
	const struct md_http_remote *remote = context;
	SSL *tls = remote->tls ? bufferevent_openssl_get_ssl(wire) : NULL;
	if (!tls)
		return recv(bufferevent_getfd(wire), bytes, size, MSG_DONTWAIT);
	ERR_clear_error();
	int got = SSL_read(tls, bytes, (int)size);
	bool closed = got <= 0 && SSL_get_error(tls, got) == SSL_ERROR_ZERO_RETURN;
	ERR_clear_error();
	return got > 0 ? got : closed ? 0 : -1;
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
