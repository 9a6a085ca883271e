/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP of the worker over real sockets: what is answered and passed on, and which clients are given up. */
#include <criterion/criterion.h>
#include <errno.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/address.h"
#include "http/call.h"
#include "http/connection.h"
#include "http/front.h"
#include "http/reader.h"

#define POST "POST / HTTP/1.1\r\nHost: a\r\n"
#define GET "GET / HTTP/1.1\r\nHost: a\r\n"

/* ---- the server and the client ---- */

static struct event_base *base;
static struct md_http_front *front;
static struct md_http_address address;

static char got[1 << 20]; /* by the client */
static size_t got_size;
static unsigned got_status, got_ends, gone, lacks, answer_s;
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

static void on_lacking(void *context, const char *why)
{
	lacks++;
	on_failed(context, why);
}

static const struct md_http_call_events calling = {
    .head = on_head, .body = on_body, .end = on_end, .failed = on_failed, .lacking = on_lacking};

static struct md_http_call *ask(const char *target, const char *body, size_t size)
{
	struct md_http_call *call = md_http_call_begin(base, &address, "POST", target, &calling, NULL);
	got_size = got_status = got_ends = 0;
	*failure = '\0';
	md_http_call_header(call, "Host", "x");
	md_http_call_header(call, "X-Bad", "a\nb");
	md_http_call_send(call, body, size, 0, answer_s);
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

static bool drips; /* after the end one letter is sent after the other */

/* Asks an engine that sends this text so many times, and then the end; seconds: the bound of the call. */
static void ask_engine(const char *text, unsigned times, const char *end, unsigned seconds)
{
	struct md_error err = {0};
	socklen_t size = sizeof(address.v4);
	base = event_base_new();
	cr_assert_eq(md_http_address_parse("127.0.0.1:0", &address, &err), MD_OK);
	int listening = socket(AF_INET, SOCK_STREAM, 0);
	cr_assert_eq(bind(listening, &address.any, size), 0);
	cr_assert_eq(listen(listening, 1), 0);
	cr_assert_eq(getsockname(listening, &address.any, &size), 0);
	md_http_call_bound(ask("/", "", 0), seconds);
	event_base_loop(base, EVLOOP_ONCE);
	int engine = accept(listening, NULL, NULL);
	for (unsigned i = 0; i < times; i++)
		cr_assert_eq(send(engine, text, strlen(text), 0), (ssize_t)strlen(text));
	send(engine, end, strlen(end), 0);
	while (!got_ends && !*failure) {
		event_base_loop(base, EVLOOP_NONBLOCK);
		if (drips)
			send(engine, "x", 1, MSG_NOSIGNAL);
		usleep(1000);
	}
	close(engine);
	close(listening);
	event_base_free(base);
}

Test(worker_http, an_engine_that_says_for_ever_that_an_answer_will_come_has_none, .timeout = 60)
{
	const char *later = "HTTP/1.1 102 Processing\r\n\r\n", *now = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
	ask_engine(later, 1024, now, 0);
	cr_assert_eq(got_ends, 1, "%s", failure);
	cr_assert_eq(got_size, 2);
	ask_engine(later, 1025, now, 0);
	cr_assert(strstr(failure, "more than 1,024 interim answers"), "%s", failure);
	ask_engine("HTTP/1.1 000 x\r\nContent-Length: 0\r\n\r\n", 1, now, 0);
	cr_assert(strstr(failure, "a status below 100"), "%s", failure);
}

Test(worker_http, an_answer_without_an_end_ends_at_its_bound, .timeout = 60)
{
	uint64_t before = md_clock_ns();
	drips = true;
	ask_engine("", 0, "HTTP/1.1 200 OK\r\n\r\n", 1);
	cr_assert(strstr(failure, "did not end its answer within 1 s"), "%s", failure);
	cr_assert_geq(md_clock_ns() - before, UINT64_C(990000000));
	ask_engine("", 0, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 50);
	cr_assert_eq(got_ends, 1, "%s", failure);
}

Test(worker_http, the_head_of_an_answer_has_a_time_and_what_follows_has_none, .timeout = 60)
{
	answer_s = 1;
	ask_engine("", 0, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", 2);
	cr_assert(strstr(failure, "did not end its answer within 2 s"), "%s", failure);
	ask_engine("", 0, "", 0);
	cr_assert(strstr(failure, "did not send anything within 1 s"), "%s", failure);
	drips = true;
	ask_engine("", 0, "HTTP/1.1 200 OK\r\nX: ", 0);
	cr_assert(strstr(failure, "did not send the head of its answer within 1 s"), "%s", failure);
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

static void say(int fd, const char *text)
{
	send(fd, text, strlen(text), MSG_NOSIGNAL);
}

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
	const char *text =
	    raw("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcPOST /chunked HTTP/1.1\r\n"
		"Host: a\r\nContent-Length: 0\r\n\r\nPOST /echo HTTP/1.0\r\nContent-Length: 1\r\n\r\nz");
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
	say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 65536\r\n\r\n");
	send(fd, body, sizeof(body), MSG_DONTWAIT | MSG_NOSIGNAL);
	const char *text = read_raw(fd);
	cr_assert_eq(count(text, "HTTP/1.1 413 "), 1, "%s", text);
	fd = connect_raw();
	say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n");
	send(fd, body, 1000, 0);
	say(fd, "\r\n1\r\n"); /* a size is enough */
	text = read_raw(fd);
	cr_assert_eq(count(text, "HTTP/1.1 413 "), 1, "%s", text);
	stop();
}

Test(worker_http, slow_clients_are_given_up, .timeout = 60)
{
	start(&(struct md_http_limits){.head_s = 1, .body_s = 1, .idle_s = 1});
	cr_assert(strstr(raw("GET /ec"), "HTTP/1.1 408 "));
	cr_assert(strstr(raw("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc"), "HTTP/1.1 408 "));
	cr_assert_str_eq(raw(""), "", "an idle connection stays open");
	cr_assert_eq(md_http_front_connections(front), 0);
	stop();
}

Test(worker_http, more_connections_than_allowed_are_turned_away, .timeout = 60)
{
	start(&(struct md_http_limits){.connections = 2, .idle_s = 60});
	int first = connect_raw(), second = connect_raw();
	say(first, "GET ");
	say(second, "GET ");
	while (md_http_front_connections(front) < 2 || event_base_loop(base, EVLOOP_NONBLOCK))
		event_base_loop(base, EVLOOP_ONCE);
	event_base_loop(base, EVLOOP_NONBLOCK);
	const char *text = raw("");
	cr_assert(strstr(text, "HTTP/1.1 503 ") && strstr(text, "too_many_connections"), "%s", text);
	close(first);
	close(second);
	stop();
}

Test(worker_http, a_connection_without_a_request_makes_room, .timeout = 60)
{
	char byte;
	start(&(struct md_http_limits){.connections = 1, .idle_s = 60});
	int first = connect_raw();
	while (!md_http_front_connections(front))
		event_base_loop(base, EVLOOP_ONCE);
	sleep(1); /* it may be on its way before */
	cr_assert(strstr(raw("GET /chunked HTTP/1.0\r\n\r\n"), "HTTP/1.1 200 "));
	cr_assert_eq(recv(first, &byte, 1, 0), 0);
	close(first);
	stop();
}

Test(worker_http, all_bodies_together_are_bounded, .timeout = 60)
{
	static char body[700];
	start(&(struct md_http_limits){.body_bytes = 1000, .bodies_bytes = 1000});
	memset(body, 'a', sizeof(body));
	int first = connect_raw(), second;
	for (int round = 0; round < 3; round++) {
		send(first, POST "Content-Length: 701\r\n\r\n", strlen(POST) + 23, 0);
		send(first, body, sizeof(body), 0);
		for (int i = 0; i < 20; i++) {
			event_base_loop(base, EVLOOP_NONBLOCK);
			usleep(1000);
		}
		second = connect_raw();
		send(second, POST "Content-Length: 700\r\n\r\n", strlen(POST) + 23, 0);
		send(second, body, sizeof(body), 0);
		const char *text = read_raw(second);
		cr_assert(strstr(text, "HTTP/1.1 503 "), "round %d: %s", round, text);
		close(first); /* its bytes count no more */
		first = connect_raw();
		while (md_http_front_connections(front) != 1)
			event_base_loop(base, EVLOOP_ONCE);
	}
	close(first);
	stop();
}

Test(worker_http, a_client_that_sends_no_more_gets_its_answer, .timeout = 60)
{
	start(NULL);
	int fd = connect_raw();
	say(fd, "POST /held HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
	shutdown(fd, SHUT_WR);
	while (!held)
		event_base_loop(base, EVLOOP_ONCE);
	for (int i = 0; i < 20; i++) { /* the end has come, too */
		event_base_loop(base, EVLOOP_NONBLOCK);
		usleep(1000);
	}
	cr_assert_eq(gone, 0, "a client that still listens counts as gone");
	answer(held, 5, "piece");
	const char *text = read_raw(fd);
	cr_assert(strstr(text, "HTTP/1.1 200 OK") && strstr(text, "\r\n\r\npiece"), "%s", text);
	/* requests that came before the end are all answered */
	fd = connect_raw();
	say(fd, GET "\r\nGET /chunked HTTP/1.1\r\nHost: a\r\n\r\nGET /chunked HTTP/1.1\r\nHost: a\r\n\r\n");
	shutdown(fd, SHUT_WR);
	for (held = NULL; !held;)
		event_base_loop(base, EVLOOP_ONCE);
	answer(held, 0, "");
	text = read_raw(fd);
	cr_assert_eq(count(text, "HTTP/1.1 200 OK"), 3, "%s", text);
	stop();
}

Test(worker_http, a_client_that_sends_no_more_and_goes_is_seen, .timeout = 60)
{
	start(NULL);
	int fd = connect_raw();
	say(fd, "POST /held HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
	while (!held)
		event_base_loop(base, EVLOOP_ONCE);
	close(fd);
	event_base_dispatch(base);
	cr_assert_eq(gone, 1);
	stop();
}

Test(worker_http, a_client_that_takes_nothing_is_given_up, .timeout = 60)
{
	static char much[1 << 20];
	start(&(struct md_http_limits){.write_s = 2});
	memset(much, 'a', sizeof(much));
	int fd = connect_raw();
	say(fd, "GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
	while (!held)
		event_base_loop(base, EVLOOP_ONCE);
	md_http_answer_begin(held, 200, -1);
	md_http_answer_body(held);
	for (int i = 0; held && !gone; i++) { /* more comes now and then, which must not count as taken */
		md_http_answer_write(held, much, i < 16 ? sizeof(much) : 1);
		event_base_loop(base, EVLOOP_NONBLOCK);
		usleep(10000);
	}
	cr_assert_eq(gone, 1);
	close(fd);
	stop();
}

/* A client of HTTP/1.0 gets a piece of an answer; then the server ends it in one of these ways. Returns what the client sees. */
static int end_open_answer(void (*end)(struct md_http_exchange *x))
{
	char text[4096];
	ssize_t more;
	int fd = connect_raw();
	say(fd, "GET /held HTTP/1.0\r\n\r\n");
	for (held = NULL; !held;)
		event_base_loop(base, EVLOOP_ONCE);
	md_http_answer_begin(held, 200, -1);
	md_http_answer_body(held);
	md_http_answer_write(held, "piece", 5);
	event_base_loop(base, EVLOOP_NONBLOCK);
	size_t size = 0;
	while (size < 5 || memcmp(text + size - 5, "piece", 5) != 0)
		size += (size_t)recv(fd, text + size, sizeof(text) - size, 0);
	end(held);
	for (;;) {
		event_base_loop(base, EVLOOP_NONBLOCK);
		more = recv(fd, text, sizeof(text), MSG_DONTWAIT);
		if (more >= 0 || errno != EAGAIN)
			break;
		usleep(1000);
	}
	int seen = more < 0 ? errno : 0;
	close(fd);
	return seen;
}

static void close_it(struct md_http_exchange *x)
{
	close(bufferevent_getfd(x->wire));
	bufferevent_setfd(x->wire, -1);
	md_http_exchange_drop(x);
}

Test(worker_http, an_answer_that_breaks_off_where_no_length_says_so_ends_with_a_reset, .timeout = 60)
{
	start(NULL);
	cr_assert_eq(end_open_answer(md_http_answer_end), 0, "a whole answer ends with a reset");
	cr_assert_eq(end_open_answer(md_http_answer_abort), ECONNRESET, "one that breaks off looks whole");
	cr_assert_eq(end_open_answer(md_http_exchange_drop), ECONNRESET, "one that is given up looks whole");
	cr_assert_eq(end_open_answer(close_it), ECONNRESET, "one that the system closes looks whole");
	stop();
}

static unsigned admit(void *context, const struct md_http_head *head, const char **why)
{
	(void)context;
	*why = "no key";
	return md_http_head_find(head, "Authorization") ? 0 : 401;
}

static void refused(void *context, struct md_http_exchange *x, unsigned status, const char *why)
{
	(void)context;
	cr_assert_null(md_http_head_find(md_http_exchange_head(x), "X"), "a head that is not whole has headers");
	md_http_answer_begin(x, status, (int64_t)strlen(why));
	md_http_answer_header(x, "X-Refused", "yes");
	md_http_answer_body(x);
	md_http_answer_write(x, why, strlen(why));
	md_http_answer_end(x);
}

Test(worker_http, who_may_not_ask_is_told_before_the_body, .timeout = 60)
{
	static const struct md_http_front_events events = {.request = serve, .admit = admit, .refused = refused};
	start(NULL);
	front->events = &events;
	const char *text = raw(POST "Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n");
	cr_assert(strstr(text, "HTTP/1.1 401 ") == text && strstr(text, "X-Refused: yes"), "%s", text);
	text = raw("POST /echo HTTP/1.0\r\nAuthorization: x\r\nContent-Length: 2\r\n\r\nab");
	cr_assert(strstr(text, "HTTP/1.1 200 "), "%s", text);
	text = raw("GET / HTTP/1.1\r\nX: 1\r\n Y");
	cr_assert(strstr(text, "HTTP/1.1 400 ") == text && strstr(text, "X-Refused: yes"), "%s", text);
	stop();
}

Test(worker_http, who_connects_to_a_drained_server_is_refused, .timeout = 60)
{
	start(NULL);
	md_http_front_drain(front);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	cr_assert_neq(connect(fd, &address.any, address.size), 0);
	close(fd);
	stop();
}

Test(worker_http, without_descriptors_connections_wait, .timeout = 60)
{
	struct rlimit limit, none;
	start(&(struct md_http_limits){.idle_s = 60});
	getrlimit(RLIMIT_NOFILE, &limit);
	int fd = connect_raw();
	say(fd, "GET /chunked HTTP/1.0\r\n\r\n");
	none = (struct rlimit){.rlim_cur = (rlim_t)fd + 1, .rlim_max = limit.rlim_max};
	setrlimit(RLIMIT_NOFILE, &none);
	unsigned turns = 0;
	for (uint64_t end = md_clock_ns() + 2500000000u; md_clock_ns() < end; turns++)
		event_base_loop(base, EVLOOP_ONCE);
	cr_assert_lt(turns, 100, "the loop spins");
	setrlimit(RLIMIT_NOFILE, &limit);
	cr_assert(strstr(read_raw(fd), "HTTP/1.1 200 "));
	stop();
}

static unsigned failing, allocations; /* the allocation of libevent that fails; 0: none */

static void *allocate(size_t size)
{
	return failing && ++allocations == failing ? NULL : malloc(size);
}

/* With headers and a body that need memory of their own. */
static void ask_long(unsigned fail)
{
	static char text[5000], body[100000];
	memset(text, 'x', sizeof(text) - 1);
	memset(body, 'y', sizeof(body));
	lacks = got_status = got_ends = allocations = 0;
	got_size = 0;
	struct md_http_call *call = md_http_call_begin(base, &address, "POST", "/echo", &calling, NULL);
	failing = fail;
	md_http_call_header(call, "X-Long", text);
	md_http_call_header(call, "X-Longer", text);
	md_http_call_header(call, "Host", "x");
	md_http_call_send(call, body, sizeof(body), 0, 0);
	failing = 0;
	event_base_dispatch(base);
}

/* Another server would answer 400 to one without its Host, and 401 to one without its key, for which the client is not to blame. */
Test(worker_http, a_request_that_there_is_no_memory_for_is_not_sent_in_part, .timeout = 60)
{
	unsigned fail = 0, told = 0;
	event_set_mem_functions(allocate, realloc, free);
	start(NULL);
	do {
		ask_long(++fail);
		told += lacks;
		cr_assert(lacks ? !got_status : got_status == 200 && got_size == 100000,
			  "allocation %u: status %u, %zu bytes", fail, got_status, got_size);
	} while (allocations >= fail);
	cr_assert_geq(told, 3, "the two headers, the body");
	cr_assert_eq(got_status, 200);
	stop();
}

Test(worker_http, without_descriptors_a_call_is_not_the_others_fault, .timeout = 60)
{
	struct rlimit limit, none;
	start(NULL);
	getrlimit(RLIMIT_NOFILE, &limit);
	int fd = dup(0); /* the lowest that is free */
	close(fd);
	none = (struct rlimit){.rlim_cur = (rlim_t)fd, .rlim_max = limit.rlim_max};
	ask("/echo", "", 0);
	setrlimit(RLIMIT_NOFILE, &none);
	event_base_dispatch(base);
	setrlimit(RLIMIT_NOFILE, &limit);
	cr_assert_eq(lacks, 1);
	cr_assert_str_eq(failure, "out of memory for a connection, or of descriptors");
	stop();
}

Test(worker_http, continue_is_said_before_a_body_that_waits_for_it, .timeout = 60)
{
	start(NULL);
	const char *text = raw("POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nConnection: "
			       "close\r\nContent-Length: 1\r\n\r\na");
	cr_assert(strstr(text, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK"), "%s", text);
	text = raw("POST /echo HTTP/1.1\r\nHost: a\r\nExpect: more\r\nContent-Length: 1\r\n\r\na");
	cr_assert(strstr(text, "HTTP/1.1 417 "), "%s", text);
	stop();
}

/* A file is what epoll does not take: as a connection it ends in the next turn of the loop, and does not wait until it is idle. */
Test(worker_http, a_connection_that_the_system_does_not_watch_ends, .timeout = 60)
{
	struct sockaddr_un local = {.sun_family = AF_UNIX};
	FILE *file = tmpfile();
	cr_assert(file);
	start(NULL);
	md_http_front_accept(front, dup(fileno(file)), (const struct sockaddr *)&local);
	cr_assert_eq(md_http_front_connections(front), 1, "not within the call of who accepts it");
	event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
	cr_assert_eq(md_http_front_connections(front), 0);
	fclose(file);
	stop();
}
