/* SPDX-License-Identifier: Apache-2.0 */
/* URLs of engines and peers. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "worker/config/parts.h"

static bool has_blanks(const char *url)
{
	for (; *url; url++)
		if ((unsigned char)*url <= ' ' || *url == 0x7f)
			return true;
	return false;
}

/* Whether a v6 address, and nothing else, is in brackets, and a colon outside of them is the only one. */
static bool is_host(const char *host, size_t length)
{
	const char *at = memchr(host, '@', length), *end = host + length;
	struct in6_addr address;
	char text[INET6_ADDRSTRLEN];
	host = at ? at + 1 : host; /* a user's name and password may have colons */
	const char *close = memchr(host, ']', (size_t)(end - host));
	const char *colon = memchr(host, ':', (size_t)(end - host));
	if (*host != '[')
		return !close && (!colon || !memchr(colon + 1, ':', (size_t)(end - colon - 1)));
	if (!close || (size_t)(close - host) > sizeof(text) || (close + 1 < end && close[1] != ':'))
		return false;
	snprintf(text, sizeof(text), "%.*s", (int)(close - host - 1), host + 1);
	return inet_pton(AF_INET6, text, &address) == 1;
}

enum md_status md_config_check_url(const struct md_config_build *build, const struct md_tree *node, const char *url)
{
	size_t scheme = !strncasecmp(url, "http://", 7) ? 7 : !strncasecmp(url, "https://", 8) ? 8 : 0;
	const char *host = url + scheme;
	size_t length = strcspn(host, "/?#");
	if (!scheme || !length || *host == ':' || has_blanks(url) || strpbrk(url, "\"<>"))
		return md_tree_refuse(node, build->err, "a URL is wanted, such as http://localhost:8080");
	if (!is_host(host, length))
		return md_tree_refuse(node, build->err, "an IPv6 address stands in brackets: http://[::1]:8080");
	return MD_OK;
}

/* The port behind the last colon of "host:port" or "[address]:port", if there is one. */
static bool is_port(const char *host, size_t length)
{
	size_t at = length, digits;
	while (at && host[at - 1] != ':' && host[at - 1] != ']')
		at--;
	if (!at || host[at - 1] == ']')
		return at == 0 || at == length;
	digits = strspn(host + at, "0123456789");
	unsigned long port = digits == length - at && digits && digits <= 5 ? strtoul(host + at, NULL, 10) : 0;
	return port && port <= UINT16_MAX;
}

enum md_status md_config_check_engine_url(const struct md_config_build *build, const struct md_tree *node,
					  const char *url)
{
	MD_FORWARD(md_config_check_url(build, node, url));
	const char *host = strstr(url, "://") + 3;
	size_t length = strcspn(host, "/");
	if (strncasecmp(url, "http://", 7) != 0)
		return md_tree_refuse(node, build->err, "engines are asked without TLS: http://HOST:PORT is wanted");
	if (length != strcspn(host, "/?#@") || length >= MD_CONFIG_HOST_BYTES || !is_port(host, length))
		return md_tree_refuse(node, build->err,
				      "http://HOST:PORT is wanted, with a port from 1 to 65535, and a path if need be");
	return MD_OK;
}

/* ---- engines that want one port ---- */

struct place {
	const char *host; /* with the port */
	size_t size;
	uint32_t model;
};

static struct place place_of(const char *proxy, uint32_t model)
{
	static const char localhost[] = "localhost", loopback[] = "127.0.0.1";
	const char *host = strstr(proxy, "://") + 3;
	struct place place = {host, strcspn(host, "/?#"), model};
	/* two names of one address, of which the port is left; they are as long as one another */
	if (!strncmp(host, loopback, sizeof(loopback) - 1) || !strncasecmp(host, localhost, sizeof(localhost) - 1)) {
		place.host += sizeof(localhost) - 1;
		place.size -= sizeof(localhost) - 1;
	}
	return place;
}

static int compare_places(const void *a, const void *b)
{
	const struct place *left = a, *right = b;
	size_t shorter = left->size < right->size ? left->size : right->size;
	int order = strncasecmp(left->host, right->host, shorter);
	if (order || left->size != right->size)
		return order ? order : left->size < right->size ? -1 : 1;
	return left->model < right->model ? -1 : 1;
}

static bool is_same(const struct place *a, const struct place *b)
{
	return a->size == b->size && !strncasecmp(a->host, b->host, a->size);
}

enum md_status md_config_note_shared(struct md_config_build *build, const struct md_config_sections *sections)
{
	const struct md_worker_config *config = build->config;
	struct place *places = md_config_take(build, config->model_count, sizeof(*places));
	uint32_t count = 0;
	if (!places)
		return MD_ERR_NO_MEMORY;
	for (uint32_t i = 0; i < config->model_count; i++)
		if (*config->models[i].argv)
			places[count++] = place_of(config->models[i].proxy, i);
	qsort(places, count, sizeof(*places), compare_places);
	for (uint32_t i = 1; i < count; i++)
		if (is_same(&places[i - 1], &places[i]))
			MD_FORWARD(md_config_note(
			    build, sections->model_nodes[places[i].model],
			    "the engine of model %.100s has the same address, %.100s: the two can't "
			    "run at one time; use ${PORT} in cmd",
			    config->models[places[i - 1].model].id, config->models[places[i].model].proxy));
	return MD_OK;
}
