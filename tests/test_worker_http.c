/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP of the worker: what is read, refused and passed on, over real sockets. */
#include <criterion/criterion.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "http/address.h"
#include "http/call.h"
#include "http/front.h"
#include "http/reader.h"

/* ---- the reader ---- */

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

static const struct refusal refusals[] = {
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, ""},
    {"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400, ""},
    {"POST / HTTP/1.1\r\nContent-Length: 3, 3\r\n\r\nabc", 400, ""},
    {"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, ""},
    {"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\na", 400, ""},
    {"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400, ""},
    {"POST / HTTP/1.1\r\nContent-Length: 9223372036854775809\r\n\r\n", 413, "Content-Length is too large"},
    {"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, "Transfer-Encoding is not chunked"},
    {"POST / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501, ""},
    {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, ""},
    {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "HTTP/1.0"},
    {"POST / HTTP/1.1\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400, ""},
    {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400, ""},
    {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 400, ""},
    {"GET / HTTP/2.0\r\n\r\n", 505, "HTTP/1"},
    {"GET / HTTP/1.1\r\nX: a\x01z\r\n\r\n", 400, ""},
    {"GET / HTTP/1.1\r\nX: a\rb\r\n\r\n", 400, ""},
    {"GET /a b HTTP/1.1\r\n\r\n", 400, ""},
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
	    "GET /a HTTP/1.1\r\nHost: b\r\nX-Empty:\r\nAccept: a, b\r\nconnection: close, X-Hop\r\n"
	    "x-hop: 1\r\n\r\n";
	struct seen seen;
	see(&seen, HTTP_REQUEST, text, sizeof(text) - 1, 1);
	const struct md_http_head *head = &seen.reader.head;
	cr_assert_str_eq(md_http_head_target(head), "/a");
	cr_assert_str_eq(head->method, "GET");
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

/* ---- the server and the client ---- */

static struct event_base *base;
static struct md_http_front *front;
static struct md_http_address address;

static char got[1 << 20]; /* by the client */
static size_t got_size;
static unsigned got_status, got_ends, gone;
static char failure[200];
static struct md_http_exchange *held;

static void answer(struct md_http_exchange *x, int64_t length, const char *text)
{
	md_http_answer_begin(x, 200, length);
	md_http_answer_header(x, "X-Bad", "a\r\nX-Smuggled: 1");
	md_http_answer_body(x);
	if (*text)
		md_http_answer_write(x, text, strlen(text));
	md_http_answer_end(x);
}

static void client_gone(void *context)
{
	(void)context;
	gone++;
	held = NULL;
	event_base_loopbreak(base);
}

static const struct md_http_exchange_events watching = {.gone = client_gone};

static void serve(void *context, struct md_http_exchange *x)
{
	const char *target = md_http_head_target(md_http_exchange_head(x));
	size_t size;
	const char *body = md_http_exchange_body(x, &size);
	(void)context;
	if (!strcmp(target, "/echo"))
		answer(x, (int64_t)size, body);
	else if (!strcmp(target, "/chunked"))
		answer(x, -1, "piece");
	else if (!strcmp(target, "/short"))
		answer(x, 99, "piece");
	else {
		held = x;
		md_http_exchange_watch(x, &watching, NULL);
	}
}

static void start(const struct md_http_limits *limits)
{
	static const struct md_http_front_events events = {.request = serve};
	struct md_error err = {0};
	char text[32];
	base = event_base_new();
	cr_assert_eq(md_http_front_create(base, "127.0.0.1:0", limits, &events, NULL, &front, &err), MD_OK, "%s",
		     err.message);
	snprintf(text, sizeof(text), "127.0.0.1:%u", md_http_front_port(front));
	md_http_address_parse(text, &address, &err);
}

static void stop(void)
{
	md_http_front_destroy(front);
	event_base_free(base);
}

static void on_head(void *context, const struct md_http_head *head)
{
	(void)context;
	got_status = head->status;
	cr_assert_null(md_http_head_find(head, "X-Bad"));
	cr_assert_null(md_http_head_find(head, "X-Smuggled"));
}

static void on_body(void *context, const char *bytes, size_t size)
{
	(void)context;
	memcpy(got + got_size, bytes, size);
	got_size += size;
}

static void on_end(void *context)
{
	(void)context;
	got_ends++;
	event_base_loopbreak(base);
}

static void on_failed(void *context, const char *why)
{
	(void)context;
	snprintf(failure, sizeof(failure), "%s", why);
	event_base_loopbreak(base);
}

static const struct md_http_call_events calling = {
    .head = on_head, .body = on_body, .end = on_end, .failed = on_failed};

static struct md_http_call *ask(const char *target, const char *body, size_t size)
{
	struct md_http_call *call = md_http_call_begin(base, &address, "POST", target, &calling, NULL);
	got_size = got_status = got_ends = 0;
	*failure = '\0';
	md_http_call_header(call, "Host", "x");
	md_http_call_header(call, "X-Bad", "a\nb");
	md_http_call_send(call, body, size, 0, 0);
	return call;
}

Test(worker_http, an_answer_comes_back_whole, .timeout = 60)
{
	static char large[300000];
	memset(large, 'x', sizeof(large));
	start(NULL);
	ask("/echo", large, sizeof(large));
	event_base_dispatch(base);
	cr_assert_eq(got_ends, 1, "%s", failure);
	cr_assert_eq(got_status, 200);
	cr_assert_eq(got_size, sizeof(large));
	ask("/chunked", "", 0);
	event_base_dispatch(base);
	cr_assert_eq(got_ends, 1, "%s", failure);
	cr_assert_eq(got_size, 5);
	stop();
}

Test(worker_http, an_answer_that_is_cut_is_a_failure, .timeout = 60)
{
	start(NULL);
	ask("/short", "", 0);
	event_base_dispatch(base);
	cr_assert_eq(got_ends, 0, "an answer that lacks 94 bytes counts as whole");
	cr_assert(*failure);
	stop();
	base = event_base_new();
	address.v4.sin_port = htons(1);
	ask("/echo", "", 0);
	event_base_dispatch(base);
	cr_assert(strstr(failure, "connecting"), "%s", failure);
	event_base_free(base);
}

Test(worker_http, a_client_that_goes_is_seen, .timeout = 60)
{
	start(NULL);
	struct md_http_call *call = ask("/held", "", 0);
	while (!held)
		event_base_loop(base, EVLOOP_ONCE);
	md_http_call_cancel(call);
	event_base_dispatch(base);
	cr_assert_eq(gone, 1);
	stop();
}

Test(worker_http, a_server_that_ends_tells_of_what_it_held, .timeout = 60)
{
	start(NULL);
	ask("/held", "", 0);
	while (!held)
		event_base_loop(base, EVLOOP_ONCE);
	md_http_front_destroy(front);
	front = NULL;
	cr_assert_eq(gone, 1);
	event_base_dispatch(base);
	event_base_dispatch(base);
	cr_assert(strstr(failure, "closed the connection"), "%s", failure);
	event_base_free(base);
}

/* ---- raw clients ---- */

static int connect_raw(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	cr_assert_eq(connect(fd, &address.any, address.size), 0);
	return fd;
}

/* Runs the loop until the server has closed the connection; returns what it sent. */
static const char *read_raw(int fd)
{
	static char text[65536];
	size_t size = 0;
	for (;;) {
		event_base_loop(base, EVLOOP_NONBLOCK);
		ssize_t more = recv(fd, text + size, sizeof(text) - 1 - size, MSG_DONTWAIT);
		if (more == 0)
			break;
		size += more > 0 ? (size_t)more : 0;
		usleep(1000);
	}
	text[size] = '\0';
	close(fd);
	return text;
}

static const char *raw(const char *request)
{
	int fd = connect_raw();
	cr_assert_eq(send(fd, request, strlen(request), 0), (ssize_t)strlen(request));
	return read_raw(fd);
}

static unsigned count(const char *text, const char *word)
{
	unsigned times = 0;
	while ((text = strstr(text, word))) {
		times++;
		text++;
	}
	return times;
}

Test(worker_http, requests_that_come_at_once_are_answered_in_turn, .timeout = 60)
{
	start(NULL);
	const char *text = raw("POST /echo HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcPOST /chunked HTTP/1.1\r\n"
			       "Content-Length: 0\r\n\r\nPOST /echo HTTP/1.0\r\nContent-Length: 1\r\n\r\nz");
	cr_assert_eq(count(text, "HTTP/1.1 200 OK"), 3, "%s", text);
	cr_assert(strstr(text, "\r\n\r\nabcHTTP/1.1"), "%s", text);
	cr_assert(strstr(text, "5\r\npiece\r\n0\r\n\r\n"), "%s", text);
	cr_assert_str_eq(text + strlen(text) - 5, "\r\n\r\nz");
	stop();
}

Test(worker_http, a_refusal_is_read_although_the_client_still_sends, .timeout = 60)
{
	static char body[1 << 16];
	start(&(struct md_http_limits){.body_bytes = 1000});
	memset(body, 'a', sizeof(body));
	int fd = connect_raw();
	send(fd, "POST /echo HTTP/1.1\r\nContent-Length: 65536\r\n\r\n", 46, 0);
	send(fd, body, sizeof(body), MSG_DONTWAIT | MSG_NOSIGNAL);
	const char *text = read_raw(fd);
	cr_assert_eq(count(text, "HTTP/1.1 413 "), 1, "%s", text);
	fd = connect_raw();
	send(fd, "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n", 56, 0);
	send(fd, body, 1001, 0);
	text = read_raw(fd);
	cr_assert_eq(count(text, "HTTP/1.1 413 "), 1, "%s", text);
	stop();
}

Test(worker_http, slow_clients_are_given_up, .timeout = 60)
{
	start(&(struct md_http_limits){.head_s = 1, .body_s = 1, .idle_s = 1});
	cr_assert(strstr(raw("GET /ec"), "HTTP/1.1 408 "));
	cr_assert(strstr(raw("POST /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc"), "HTTP/1.1 408 "));
	cr_assert_str_eq(raw(""), "", "an idle connection stays open");
	cr_assert_eq(md_http_front_connections(front), 0);
	stop();
}

Test(worker_http, more_connections_than_allowed_are_closed, .timeout = 60)
{
	start(&(struct md_http_limits){.connections = 2, .idle_s = 60});
	int first = connect_raw(), second = connect_raw();
	while (md_http_front_connections(front) < 2)
		event_base_loop(base, EVLOOP_ONCE);
	cr_assert_str_eq(raw(""), "");
	close(first);
	close(second);
	stop();
}

Test(worker_http, continue_is_said_before_a_body_that_waits_for_it, .timeout = 60)
{
	start(NULL);
	const char *text =
	    raw("POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: 1\r\n\r\na");
	cr_assert(strstr(text, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK"), "%s", text);
	text = raw("POST /echo HTTP/1.1\r\nExpect: more\r\nContent-Length: 1\r\n\r\na");
	cr_assert(strstr(text, "HTTP/1.1 417 "), "%s", text);
	stop();
}
