/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/page/status_page.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "worker/core/long_pages.h"
#include "worker/page/log_stream.h"
#include "worker/page/page_events.h"
#include "worker/page/page_orders.h"
#include "worker/page/performance.h"

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

static bool is_page(const char *path)
{
	return !strcmp(path, "/") || !strcmp(path, "/ui");
}

/* The page's address, from any address below the same folder, so that a proxy may put a folder before all of them. */
static void lead_to_page(struct md_http_exchange *exchange, const char *path)
{
	char location[64] = "";
	size_t used = 0;
	for (const char *at = strchr(path + 1, '/'); at && used + 6 < sizeof(location); at = strchr(at + 1, '/'))
		used += (size_t)snprintf(location + used, sizeof(location) - used, "../");
	snprintf(location + used, sizeof(location) - used, "ui");
	md_http_answer_begin(exchange, 302, 0);
	md_http_answer_header(exchange, "Location", location);
	md_http_answer_body(exchange);
	md_http_answer_end(exchange);
}

/* Of a browser, which shows the page instead of a list. */
static bool wants_page(const struct md_http_head *head, const char *path)
{
	const char *accepted = md_http_head_find(head, "Accept");
	bool listed = !strcmp(path, "/upstream") || !strcmp(path, "/logs");
	return !strncmp(path, "/ui/", 4) || (listed && accepted && strstr(accepted, "text/html"));
}

bool md_page_is_open(const struct md_http_head *head, const char *path)
{
	return is_page(path) || wants_page(head, path);
}

/* ---- by path ---- */

bool md_page_take(struct md_worker *worker, struct md_http_exchange *exchange, const char *path)
{
	const char *method = md_http_exchange_head(exchange)->method;
	if (!strcmp(method, "POST"))
		return md_page_orders_take(worker, exchange, path);
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return false;
	if (is_page(path))
		answer_page(exchange);
	else if (wants_page(md_http_exchange_head(exchange), path))
		lead_to_page(exchange, path);
	else if (!strcmp(path, "/api/events"))
		md_page_events_take(worker, exchange);
	else if (!strcmp(path, "/api/status"))
		md_long_pages_answer(worker->pages, MD_PAGE_STATE, exchange);
	else if (!strcmp(path, "/api/performance"))
		md_performance_answer(worker->performance, exchange);
	else
		return md_log_stream_take(worker, exchange, path);
	return true;
}
