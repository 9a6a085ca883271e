/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: any bytes from a client that sends them and then no more, to a server that answers in each of its ways.
 * Every request has one answer that an HTTP reader takes, a refusal is the last one, and nothing is left of the client.
 */
#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "http/connection.h"
#include "tests/fuzz/fuzz.h"

#define REQUESTS_MAX 8192u
#define TURNS_MAX 100000u

bool fuzz_accepted;

static struct event_base *base;
static struct md_http_front *front;

/* What the server has answered, in order: whether an answer has no body because the request was HEAD. */
static bool heads[REQUESTS_MAX];
static unsigned requests, refusals, aborts;

static void note(struct md_http_exchange *x)
{
	const char *method = md_http_exchange_head(x)->method;
	FUZZ_REQUIRE(requests < REQUESTS_MAX, "more requests than bytes");
	FUZZ_REQUIRE(!refusals && !aborts, "a request behind a refusal");
	heads[requests++] = method && !strcmp(method, "HEAD");
}

static void answer(struct md_http_exchange *x, unsigned status, int64_t length, const char *text, size_t size)
{
	md_http_answer_begin(x, status, length);
	md_http_answer_header(x, "X-From", md_http_exchange_peer(x));
	md_http_answer_body(x);
	md_http_answer_write(x, text, size);
	md_http_answer_end(x);
}

/* An answer that is held, taken back and made anew. */
static void change_mind(struct md_http_exchange *x)
{
	md_http_answer_hold(x);
	md_http_answer_begin(x, 200, -1);
	md_http_answer_body(x);
	md_http_answer_write(x, "never", 5);
	FUZZ_REQUIRE(md_http_answer_retract(x), "not held");
	answer(x, 502, 6, "failed", 6);
}

static void on_request(void *context, struct md_http_exchange *x)
{
	size_t size;
	const char *body = md_http_exchange_body(x, &size);
	(void)context;
	FUZZ_REQUIRE(!body[size], "no NUL behind the body");
	note(x);
	md_http_exchange_share(x);
	switch ((strlen(md_http_head_target(md_http_exchange_head(x))) + size) % 5) {
	case 0:
		answer(x, 200, (int64_t)size, body, size);
		break;
	case 1:
		answer(x, 200, -1, body, size);
		break;
	case 2:
		answer(x, 204, 0, "", 0);
		break;
	case 3:
		change_mind(x);
		break;
	default:
		aborts++;
		answer(x, 200, (int64_t)size + 1, body, size); /* which is aborted, but for HEAD */
		aborts -= heads[requests - 1];
	}
}

static unsigned on_admit(void *context, const struct md_http_head *head, const char **why)
{
	(void)context;
	*why = "an even length is wanted";
	return head->length > 0 && head->length % 7 == 6 ? 401 : 0;
}

static void on_refused(void *context, struct md_http_exchange *x, unsigned status, const char *why)
{
	(void)context;
	FUZZ_REQUIRE(status >= 400 && *why, "refused without a reason");
	md_http_exchange_share(x);
	note(x);
	refusals++;
	answer(x, status, (int64_t)strlen(why), why, strlen(why));
}

static void start(void)
{
	static const struct md_http_front_events events = {
	    .request = on_request, .admit = on_admit, .refused = on_refused};
	static const struct md_http_limits limits = {.body_bytes = 5000, .bodies_bytes = 6000};
	struct md_error err = {0};
	base = event_base_new();
	FUZZ_REQUIRE(base && md_http_front_create(base, "127.0.0.1:0", &limits, &events, NULL, &front, &err) == MD_OK,
		     "%s", err.message);
}

/* ---- the answers ---- */

static unsigned answers, ends;

static bool saw_head(void *context, const struct md_http_head *head)
{
	struct md_http_reader *reader = context;
	if (head->status < 200)
		return true;
	FUZZ_REQUIRE(answers < requests, "an answer without a request");
	reader->no_body = heads[answers++];
	return true;
}

static bool saw_body(void *context, const char *bytes, size_t size)
{
	(void)context, (void)bytes, (void)size;
	return true;
}

static void saw_end(void *context)
{
	const struct md_http_reader *reader = context;
	ends += reader->head.status >= 200;
}

static void check_answers(const struct md_buf *got)
{
	static const struct md_http_reader_events events = {.head = saw_head, .body = saw_body, .end = saw_end};
	struct md_http_reader reader;
	const char *text = (const char *)got->data;
	answers = ends = 0;
	md_http_reader_init(&reader, HTTP_RESPONSE, &events, &reader);
	for (size_t at = 0; at < got->size && !reader.status;) {
		at += md_http_reader_feed(&reader, text + at, got->size - at);
		md_http_reader_next(&reader);
	}
	FUZZ_REQUIRE(!reader.status, "an answer that is none: %s", reader.why);
	md_http_reader_close(&reader);
	FUZZ_REQUIRE(answers == requests || aborts, "%u answers to %u requests", answers, requests);
	FUZZ_REQUIRE(ends + aborts >= requests && ends <= requests, "%u whole answers to %u requests", ends, requests);
	md_http_reader_finish(&reader);
}

/* ---- a client ---- */

/* Sends all, then ends its direction, and reads until the server has ended its own. */
static void talk(int fd, const uint8_t *data, size_t size, struct md_buf *got)
{
	char bytes[4096];
	bool ended = false;
	unsigned turns = 0;
	for (ssize_t more = 1; more; turns++) {
		FUZZ_REQUIRE(turns < TURNS_MAX, "the server does not end");
		ssize_t sent = size ? send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
		data += sent > 0 ? sent : 0;
		size -= sent > 0 ? (size_t)sent : 0;
		if ((!size || (sent < 0 && errno != EAGAIN)) && !ended)
			ended = !shutdown(fd, SHUT_WR);
		event_base_loop(base, EVLOOP_NONBLOCK);
		more = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		if (more > 0)
			md_buf_put(got, bytes, (size_t)more);
		else if (more < 0 && errno != EAGAIN)
			break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct sockaddr_un local = {.sun_family = AF_UNIX};
	struct md_buf got;
	int wire[2];
	if (!front)
		start();
	requests = refusals = aborts = 0;
	FUZZ_REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, wire), "socketpair");
	md_buf_init(&got);
	md_http_front_accept(front, wire[1], (const struct sockaddr *)&local);
	talk(wire[0], data, size, &got);
	close(wire[0]);
	for (unsigned turns = 0; md_http_front_connections(front); turns++) {
		FUZZ_REQUIRE(turns < TURNS_MAX, "the connection stays");
		event_base_loop(base, EVLOOP_NONBLOCK);
	}
	FUZZ_REQUIRE(!front->bodies, "%zu bytes of bodies are left", front->bodies);
	check_answers(&got);
	fuzz_accepted = requests && !refusals;
	md_buf_finish(&got);
	return 0;
}
