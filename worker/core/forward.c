/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/forward.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "worker/core/target.h"

/*
 * Pages and files that a client reads from an engine itself are the client's own business, and some engines have only compressed
 * ones. All other answers are read here.
 */
static bool is_read_here(const struct md_http_head *head)
{
	char path[MD_TARGET_MAX];
	bool reads = !strcmp(head->method, "GET") || !strcmp(head->method, "HEAD");
	return !reads || !md_target_path(md_http_head_target(head), path, sizeof(path)) ||
	       strncmp(path, "/upstream/", 10) != 0;
}

static bool is_ours(const struct md_forward *how, const char *name, bool plain)
{
	bool has_key = how->key && *how->key;
	bool key = !strcasecmp(name, "Authorization") || !strcasecmp(name, "X-Api-Key");
	return !strcasecmp(name, "Expect") || !strcasecmp(name, "Proxy-Authorization") ||
	       !strcasecmp(name, "X-Forwarded-For") || !strcasecmp(name, MD_FORWARD_NODE) ||
	       !strcasecmp(name, MD_FORWARD_NODE_KEY) || !strcasecmp(name, MD_FORWARD_CLIENT) ||
	       (key && (!how->keys || has_key)) || (plain && !strcasecmp(name, "Accept-Encoding")) ||
	       (how->host_is_theirs && !strcasecmp(name, "Host")) || (how->via && !strcasecmp(name, "Via"));
}

/* What the client has in a list, which may be in several lines, and one more entry. */
static void put_longer(struct md_http_call *call, const struct md_http_head *head, const char *name, const char *last)
{
	char list[1024];
	size_t size = 0;
	for (uint32_t i = 0; i < head->count && size < sizeof(list); i++)
		if (!strcasecmp(md_http_head_name(head, i), name))
			size += (size_t)snprintf(list + size, sizeof(list) - size, "%s, ", md_http_head_value(head, i));
	if (size < sizeof(list))
		size += (size_t)snprintf(list + size, sizeof(list) - size, "%s", last);
	md_http_call_header(call, name, size < sizeof(list) ? list : last);
}

static void put_key(struct md_http_call *call, const char *key)
{
	char text[8192]; /* keys of a configuration are not that long */
	if (snprintf(text, sizeof(text), "Bearer %s", key) < (int)sizeof(text))
		md_http_call_header(call, "Authorization", text);
	md_http_call_header(call, "X-Api-Key", key);
}

void md_forward_headers(struct md_http_call *call, const struct md_http_exchange *exchange,
			const struct md_forward *how)
{
	const struct md_http_head *head = md_http_exchange_head(exchange);
	bool host = false, plain = is_read_here(head);
	for (uint32_t i = 0; i < head->count; i++) {
		const char *name = md_http_head_name(head, i);
		if (md_http_head_is_hop(head, name) || is_ours(how, name, plain))
			continue;
		host = host || !strcasecmp(name, "Host");
		md_http_call_header(call, name, md_http_head_value(head, i));
	}
	if (!host)
		md_http_call_header(call, "Host", how->host);
	if (plain)
		md_http_call_header(call, "Accept-Encoding", "identity");
	if (how->key && *how->key)
		put_key(call, how->key);
	if (how->node)
		md_http_call_header(call, MD_FORWARD_NODE, how->node);
	if (how->node_key)
		md_http_call_header(call, MD_FORWARD_NODE_KEY, how->node_key);
	if (how->client && *how->client)
		md_http_call_header(call, MD_FORWARD_CLIENT, how->client);
	if (how->via)
		put_longer(call, head, "Via", how->via);
	put_longer(call, head, "X-Forwarded-For", md_http_exchange_peer(exchange));
}
