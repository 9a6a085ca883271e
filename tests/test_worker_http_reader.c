/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1 messages that come in pieces of any size: what is read, and what is refused because it may hide something. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "http/address.h"
#include "http/reader.h"

struct seen {
	struct md_http_reader reader;
	char body[4096];
	size_t size;
	unsigned heads, ends;
};

static bool saw_head(void *context, const struct md_http_head *head)
{
	struct seen *seen = context;
	(void)head;
	seen->heads++;
	return true;
}

static bool saw_body(void *context, const char *bytes, size_t size)
{
	struct seen *seen = context;
	memcpy(seen->body + seen->size, bytes, size);
	seen->size += size;
	return true;
}

static void saw_end(void *context)
{
	struct seen *seen = context;
	seen->ends++;
}

static const struct md_http_reader_events seeing = {.head = saw_head, .body = saw_body, .end = saw_end};

/* Feeds `step` bytes at a time; goes on to the next message by itself. */
static void see(struct seen *seen, enum http_parser_type type, const char *text, size_t size, size_t step)
{
	memset(seen, 0, sizeof(*seen));
	md_http_reader_init(&seen->reader, type, &seeing, seen);
	for (size_t at = 0; at < size && !seen->reader.status;) {
		size_t part = size - at < step ? size - at : step;
		at += md_http_reader_feed(&seen->reader, text + at, part);
		md_http_reader_next(&seen->reader);
	}
}

static const size_t steps[] = {1, 2, 7, 4096};

struct refusal {
	const char *text;
	unsigned status;
	const char *why;
};

#define POST "POST / HTTP/1.1\r\nHost: a\r\n"
#define GET "GET / HTTP/1.1\r\nHost: a\r\n"
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

static const struct refusal refusals[] = {
    /* where the body ends */
    {POST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "beside Transfer-Encoding"},
    {POST "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400, "beside Transfer-Encoding"},
    {POST "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400, "stands there twice"},
    {POST "Content-Length: 3, 3\r\n\r\nabc", 400, "content-length"},
    {POST "Content-Length: -1\r\n\r\n", 400, "content-length"},
    {POST "Content-Length: +1\r\n\r\na", 400, "content-length"},
    {POST "Content-Length: 99999999999999999999999\r\n\r\n", 400, "content-length"},
    {POST "Content-Length: 9223372036854775809\r\n\r\n", 413, "Content-Length is too large"},
    {POST "Transfer-EncodingX: a\r\n\r\n0\r\n\r\n", 400, "begins like Transfer-Encoding"},
    {POST "Content-Length-X: 1\r\n\r\n", 400, "begins like Transfer-Encoding or Content-Length"},
    {POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, "Transfer-Encoding is not chunked"},
    {POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501, "Transfer-Encoding is not chunked"},
    {POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "more than once"},
    {POST "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 501, "not chunked"},
    {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "HTTP/1.0 knows no"},
    {POST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400, ""},
    {POST "Transfer-Encoding: chunked \r\n\r\n0\r\n\r\n", 501, "not chunked"},
    {POST "Transfer-Encoding: chunked\t\r\n\r\n0\r\n\r\n", 501, "not chunked"},
    {POST "Content-Length: 3 3 \r\n\r\nabc", 400, "content-length"},
    {CHUNKED "zz\r\n", 400, "a chunk has no size"},
    {CHUNKED "\r\n", 400, "a chunk has no size"},
    {CHUNKED "0x3\r\nabc\r\n0\r\n\r\n", 400, "something else than hexadecimal digits"},
    {CHUNKED "-3\r\nabc\r\n0\r\n\r\n", 400, "a chunk has no size"},
    {CHUNKED "3 3\r\nabc\r\n0\r\n\r\n", 400, "something else than an extension"},
    {CHUNKED "ffffffffffffffff\r\n", 400, "more than 15 digits"},
    {CHUNKED "0000000000000003\r\nabc\r\n", 400, "more than 15 digits"},
    {CHUNKED "3\nabc\r\n0\r\n\r\n", 400, "something else than hexadecimal digits"},
    {CHUNKED "3\rabc\r\n0\r\n\r\n", 400, "CR without LF"},
    {CHUNKED "3;a\nabc\r\n0\r\n\r\n", 400, "control character"},
    {CHUNKED "3\r\nabcd\r\n0\r\n\r\n", 400, "a chunk is longer than its size"},
    {CHUNKED "3\r\nabc\n0\r\n\r\n", 400, "a chunk is longer than its size"},
    {CHUNKED "3\r\nabc0\r\n\r\n", 400, "a chunk is longer than its size"},
    {CHUNKED "3\r\nabc\rX0\r\n\r\n", 400, "CR without LF"},
    {CHUNKED "0\r\nX: \x01\r\n\r\n", 400, "control character"},
    {CHUNKED "0\r\nX\n\r\n", 400, "control character"},
    {CHUNKED "0\r\n\rX", 400, "CR without LF"},
    /* the head */
    {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505, "HTTP/1"},
    {"GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505, "HTTP/1"},
    {"GET /\r\n\r\n", 505, "HTTP/1"},
    {GET "X: a\x01z\r\n\r\n", 400, ""},
    {GET "X: a\rb\r\n\r\n", 400, "CR LF"},
    {GET "X: a\n\r\n", 400, "CR LF"},
    {"GET / HTTP/1.1\nHost: a\n\n", 400, "CR LF"},
    {GET "X: a\r\n b\r\n\r\n", 400, "goes on in a further line"},
    {GET " X: a\r\n\r\n", 400, "goes on in a further line"},
    {GET ": a\r\n\r\n", 400, ""},
    {GET "X\r\n\r\n", 400, ""},
    {"GET / HTTP/1.1\r\n\r\n", 400, "Host, which is missing"},
    {GET "Host: a\r\n\r\n", 400, "Host stands there more than once"},
    {"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400, "something else than a name"},
    {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, "something else than a name"},
    {"\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n", 400, "blank lines"},
    {"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400, ""},
    {"GET /a\x01 HTTP/1.1\r\nHost: a\r\n\r\n", 400, ""},
    {"hello\r\n\r\n", 400, ""},
    {"\x16\x03\x01\x02", 400, ""},
};

Test(worker_http, what_is_no_request_or_may_hide_one_is_refused)
{
	for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
		const struct refusal *refusal = &refusals[i];
		for (size_t s = 0; s < sizeof(steps) / sizeof(*steps); s++) {
			struct seen seen;
			see(&seen, HTTP_REQUEST, refusal->text, strlen(refusal->text), steps[s]);
			cr_assert_eq(seen.reader.status, refusal->status, "%s: status %u (%s), in steps of %zu",
				     refusal->text, seen.reader.status, seen.reader.why, steps[s]);
			cr_assert(strstr(seen.reader.why, refusal->why), "%s: \"%s\"", refusal->text, seen.reader.why);
			cr_assert_eq(seen.ends, 0, "%s", refusal->text);
			md_http_reader_finish(&seen.reader);
		}
	}
}

Test(worker_http, a_request_is_read_in_pieces_of_any_size)
{
	static const char text[] =
	    "POST /v1/x?model=a HTTP/1.1\r\nHost: b\r\nX-Empty:\r\nAccept: a, b\r\nconnection: close, "
	    "X-Hop\r\nx-hop: 1\r\nTransfer-Encoding: Chunked\r\n\r\n3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: "
	    "no\r\n\r\nGET /next HTTP/1.0\r\n\r\n";
	for (size_t s = 0; s < sizeof(steps) / sizeof(*steps); s++) {
		struct seen seen;
		see(&seen, HTTP_REQUEST, text, sizeof(text) - 1, steps[s]);
		cr_assert_eq(seen.reader.status, 0, "%s", seen.reader.why);
		cr_assert_eq(seen.ends, 2);
		cr_assert_eq(seen.size, 5);
		cr_assert_arr_eq(seen.body, "abcde", 5);
		cr_assert_str_eq(md_http_head_target(&seen.reader.head), "/next");
		cr_assert_eq(seen.reader.head.minor, 0);
		cr_assert_eq(seen.reader.head.count, 0);
		md_http_reader_finish(&seen.reader);
	}
}

Test(worker_http, headers_are_found_and_those_of_a_connection_are_known)
{
	static const char text[] =
	    "GET /a HTTP/1.1\r\nHost: b \t\r\nX-Empty:\r\nAccept: a, b \r\nconnection: close, X-Hop\t\r\n"
	    "x-hop: 1\r\n\r\n";
	struct seen seen;
	see(&seen, HTTP_REQUEST, text, sizeof(text) - 1, 1);
	const struct md_http_head *head = &seen.reader.head;
	cr_assert_str_eq(md_http_head_target(head), "/a");
	cr_assert_str_eq(head->method, "GET");
	cr_assert_str_eq(md_http_head_find(head, "Host"), "b");
	cr_assert_str_eq(md_http_head_find(head, "x-empty"), "");
	cr_assert_str_eq(md_http_head_find(head, "ACCEPT"), "a, b");
	cr_assert_null(md_http_head_find(head, "Accep"));
	cr_assert(md_http_head_says(head, "Accept", "B"));
	cr_assert_not(md_http_head_says(head, "Accept", "a, b"));
	cr_assert(md_http_head_is_hop(head, "X-HOP"));
	cr_assert(md_http_head_is_hop(head, "transfer-encoding"));
	cr_assert_not(md_http_head_is_hop(head, "Accept"));
	md_http_reader_finish(&seen.reader);
}

Test(worker_http, heads_are_bounded)
{
	static char text[200000];
	struct seen seen;
	size_t size = (size_t)sprintf(text, "GET / HTTP/1.1\r\nX: ");
	memset(text + size, 'a', 100000);
	see(&seen, HTTP_REQUEST, text, size + 100000, 4096);
	cr_assert_eq(seen.reader.status, 431, "%u", seen.reader.status);
	md_http_reader_finish(&seen.reader);
	size = (size_t)sprintf(text, "GET / HTTP/1.1\r\n");
	for (int i = 0; i < 129; i++)
		size += (size_t)sprintf(text + size, "X%d: 1\r\n", i);
	size += (size_t)sprintf(text + size, "\r\n");
	see(&seen, HTTP_REQUEST, text, size, 4096);
	cr_assert_eq(seen.reader.status, 431, "%u", seen.reader.status);
	md_http_reader_finish(&seen.reader);
}

Test(worker_http, an_answer_without_a_length_ends_with_its_connection)
{
	static const char text[] = "HTTP/1.1 200 OK\r\nContent-Type: a\r\n\r\nabc";
	struct seen seen;
	see(&seen, HTTP_RESPONSE, text, sizeof(text) - 1, 5);
	cr_assert_eq(seen.ends, 0);
	md_http_reader_close(&seen.reader);
	cr_assert_eq(seen.ends, 1);
	cr_assert_arr_eq(seen.body, "abc", 3);
	md_http_reader_finish(&seen.reader);
	see(&seen, HTTP_RESPONSE, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", 41, 5);
	md_http_reader_close(&seen.reader);
	cr_assert_eq(seen.ends, 0);
	cr_assert_neq(seen.reader.status, 0, "a cut answer counts as whole");
	md_http_reader_finish(&seen.reader);
}

Test(worker_http, the_head_of_an_answer_has_no_cr_but_before_a_lf)
{
	static const char bare[] = "a CR without LF", fold[] = "goes on in a further line";
	static const struct refusal heads[] = {
	    {"HTTP/1.1 200 OK\rX: a\r\nContent-Length: 1\r\n\r\na", 502, bare},
	    {"HTTP/1.1 200 \r\r\nContent-Length: 1\r\n\r\na", 502, bare},
	    {"\rHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", 502, bare},
	    {"HTTP/1.1 200 OK\r\nX: a\rContent-Length: 2\r\nContent-Length: 1\r\n\r\na", 502, bare},
	    {"HTTP/1.1 200 OK\nContent-Length: 1\n\ra\n", 502, bare},
	    {"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 1\r\n\r\na", 400, fold},
	    {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", 0, ""},
	    {"HTTP/1.1 200 OK\r\nContent-Length: 1  \r\n\r\na", 0, ""},
	    {"HTTP/1.1 200 OK\nContent-Length: 1\n\na", 0, ""},
	    {"HTTP/1.1 200 OK\nContent-Length: 1\n\r\na", 0, ""},
	    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\r", 0, ""},
	};
	for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++)
		for (size_t s = 0; s < sizeof(steps) / sizeof(*steps); s++) {
			struct seen seen;
			see(&seen, HTTP_RESPONSE, heads[i].text, strlen(heads[i].text), steps[s]);
			cr_assert_eq(seen.reader.status, heads[i].status, "%s: status %u (%s), in steps of %zu",
				     heads[i].text, seen.reader.status, seen.reader.why, steps[s]);
			cr_assert(strstr(seen.reader.why, heads[i].why), "%s: \"%s\"", heads[i].text, seen.reader.why);
			cr_assert_eq(seen.size, !heads[i].status, "%s: %zu bytes", heads[i].text, seen.size);
			md_http_reader_finish(&seen.reader);
		}
}

Test(worker_http, it_is_known_which_answers_end_with_their_connection)
{
	static const struct {
		const char *text;
		bool until_close;
	} heads[] = {
	    {"HTTP/1.1 200 OK\r\n\r\n", true},
	    {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", true},
	    {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", false},
	    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false},
	    {"HTTP/1.1 204 OK\r\n\r\n", false},
	    {"HTTP/1.1 304 OK\r\n\r\n", false},
	};
	for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++) {
		struct seen seen;
		see(&seen, HTTP_RESPONSE, heads[i].text, strlen(heads[i].text), 1);
		cr_assert_eq(seen.heads, 1, "%s", heads[i].text);
		cr_assert_eq(seen.reader.head.until_close && !seen.ends, heads[i].until_close, "%s", heads[i].text);
		md_http_reader_finish(&seen.reader);
	}
}

/* ---- addresses ---- */

Test(worker_http, addresses)
{
	static const struct {
		const char *text;
		int family; /* 0: refused */
		unsigned port;
	} cases[] = {
	    {"127.0.0.1:80", AF_INET, 80},
	    {"localhost:1", AF_INET, 1},
	    {":8080", AF_INET6, 8080},
	    {"[::1]:9", AF_INET6, 9},
	    {"unix:/tmp/a", AF_UNIX, 0},
	    {"127.0.0.1", 0, 0},
	    {"127.0.0.1:", 0, 0},
	    {"127.0.0.1:65536", 0, 0},
	    {"a.b:80", 0, 0},
	    {"127.0.0.1:8x", 0, 0},
	    {"unix:", 0, 0},
	    {"", 0, 0},
	    {"127.0.0.1:-1", 0, 0},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct md_http_address address;
		struct md_error err = {0};
		enum md_status status = md_http_address_parse(cases[i].text, &address, &err);
		cr_assert_eq(status, cases[i].family ? MD_OK : MD_ERR_INVALID, "%s: %s", cases[i].text, err.message);
		if (!cases[i].family)
			continue;
		cr_assert_eq(address.any.sa_family, cases[i].family, "%s", cases[i].text);
		if (cases[i].family == AF_INET)
			cr_assert_eq(ntohs(address.v4.sin_port), cases[i].port);
	}
}
