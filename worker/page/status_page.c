/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/page/status_page.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "worker/core/reply.h"
#include "worker/page/log_stream.h"
#include "worker/page/page_events.h"
#include "worker/page/page_orders.h"

/* ---- the page ---- */

/* The hash by which a policy allows the text between two tags of the page. */
static void hash_between(const char *begin, const char *end, char out[64])
{
	unsigned char hash[crypto_hash_sha256_BYTES];
	const char *from = strstr(md_page_bytes, begin) + strlen(begin), *to = strstr(from, end);
	crypto_hash_sha256(hash, (const unsigned char *)from, (unsigned long long)(to - from));
	sodium_bin2base64(out, 64, hash, sizeof(hash), sodium_base64_VARIANT_ORIGINAL);
}

/* Nothing is loaded from elsewhere, and no script but the page's own runs, whatever a model's name may hold. */
static void make_policy(char *policy, size_t size)
{
	char script[64], style[64];
	hash_between("<script>", "</script>", script);
	hash_between("<style>", "</style>", style);
	snprintf(
	    policy, size,
	    "default-src 'none'; script-src 'sha256-%s'; style-src 'sha256-%s'; img-src data:; connect-src 'self'; "
	    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	    script, style);
}

static void answer_page(struct md_http_exchange *exchange)
{
	char policy[400];
	size_t size = strlen(md_page_bytes);
	make_policy(policy, sizeof(policy));
	md_http_answer_begin(exchange, 200, (int64_t)size);
	md_http_answer_header(exchange, "Content-Type", "text/html; charset=utf-8");
	md_http_answer_header(exchange, "Content-Security-Policy", policy);
	md_http_answer_header(exchange, "X-Content-Type-Options", "nosniff");
	md_http_answer_header(exchange, "Referrer-Policy", "no-referrer");
	md_http_answer_header(exchange, "Cache-Control", "no-cache");
	md_http_answer_body(exchange);
	md_http_answer_write(exchange, md_page_bytes, size);
	md_http_answer_end(exchange);
}

bool md_page_is_open(const char *path)
{
	return !strcmp(path, "/") || !strcmp(path, "/ui");
}

/* ---- by path ---- */

bool md_page_take(struct md_worker *worker, struct md_http_exchange *exchange, const char *path)
{
	const char *method = md_http_exchange_head(exchange)->method;
	if (!strcmp(method, "POST"))
		return md_page_orders_take(worker, exchange, path);
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return false;
	if (md_page_is_open(path))
		answer_page(exchange);
	else if (!strcmp(path, "/api/events"))
		md_page_events_take(worker, exchange);
	else if (!strcmp(path, "/api/status"))
		md_reply_json(exchange, 200, md_page_events_state(worker));
	else
		return md_log_stream_take(worker, exchange, path);
	return true;
}
