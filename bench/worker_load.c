/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients for bench/worker.sh.
 *   worker_load ttft RATE SECONDS ROUNDS ADDRESS ADDRESS   times to the first event, at the addresses in turns
 *   worker_load streams COUNT ADDRESS                      opens streams, says so, and ends with its input
 *   worker_load events STREAMS EVENTS GAP_US ADDRESS       counts events until all streams have ended
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/splitmix.h"
#include "http/call.h"

#define MOST 1000000u

static struct event_base *base;
static size_t begun, first, ended, failed, event_count;
static uint64_t state = 42;

struct request {
	uint64_t since;
	double *times; /* where the time to the first event goes; NULL: nowhere */
	bool seen;
	char last; /* byte */
};

static void check_done(struct request *request)
{
	free(request);
	if (ended + failed == begun)
		event_base_loopbreak(base);
}

static void on_head(void *context, const struct md_http_head *head)
{
	(void)context;
	if (head->status != 200) {
		fprintf(stderr, "worker_load: status %u\n", head->status);
		exit(1);
	}
}

/* Two line ends in a row are the end of an event. */
static void on_body(void *context, const char *bytes, size_t size)
{
	struct request *request = context;
	if (!request->seen) {
		request->seen = true;
		first++;
		if (request->times)
			*request->times = (double)(md_clock_ns() - request->since) / 1e6;
	}
	for (const char *at = bytes, *end = bytes + size; (at = memchr(at, '\n', (size_t)(end - at))) != NULL; at++)
		event_count += (at == bytes ? request->last : at[-1]) == '\n';
	request->last = bytes[size - 1];
}

static void on_end(void *context)
{
	ended++;
	check_done(context);
}

static void on_failed(void *context, const char *why)
{
	failed++;
	fprintf(stderr, "worker_load: %s\n", why);
	check_done(context);
}

static const struct md_http_call_events call_events = {on_head, on_body, on_end, on_failed};

static void ask(const struct md_http_address *address, unsigned events, unsigned gap_us, double *times)
{
	struct request *request = calloc(1, sizeof(*request));
	char body[160];
	int size = snprintf(body, sizeof(body),
			    "{\"model\":\"bench\",\"stream\":true,\"max_tokens\":%u,\"gap_us\":%u,\"messages\":[]}",
			    events, gap_us);
	if (!request)
		abort();
	request->times = times;
	request->since = md_clock_ns();
	struct md_http_call *call =
	    md_http_call_begin(base, address, "POST", "/v1/chat/completions", &call_events, request);
	md_http_call_header(call, "Host", "bench");
	md_http_call_header(call, "Content-Type", "application/json");
	md_http_call_send(call, body, (size_t)size, 60, 0);
	begun++;
}

static struct md_http_address address_of(const char *text)
{
	struct md_http_address address;
	struct md_error err;
	if (md_http_address_parse(text, &address, &err) != MD_OK) {
		fprintf(stderr, "worker_load: %s\n", err.message);
		exit(2);
	}
	return address;
}

/* ---- times to the first event ---- */

static int compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return (left > right) - (left < right);
}

static void wait_until(uint64_t time)
{
	for (uint64_t now; (now = md_clock_ns()) < time;) {
		struct timeval left = {.tv_sec = (long)((time - now) / 1000000000),
				       .tv_usec = (long)((time - now) / 1000 % 1000000)};
		event_base_loopexit(base, &left);
		event_base_loop(base, EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY);
	}
}

static size_t run_round(const struct md_http_address *address, double rate, double seconds, double *times)
{
	size_t count = 0;
	uint64_t start = md_clock_ns(), next = start;
	while ((double)(next - start) < seconds * 1e9) {
		wait_until(next);
		ask(address, 4, 0, &times[count++]);
		double unit = ((double)(md_random_next(&state) >> 11) + 0.5) / 9007199254740992.0;
		next += (uint64_t)(-log(unit) / rate * 1e9);
	}
	while (ended + failed < begun)
		event_base_loop(base, EVLOOP_ONCE);
	return count;
}

static void print_times(const char *name, double *times, size_t count)
{
	qsort(times, count, sizeof(*times), compare);
	printf("%s %zu %.4f %.4f %.4f\n", name, count, times[count / 2], times[count - 1 - count / 100],
	       times[count - 1]);
}

static int measure_first(char **words)
{
	double rate = atof(words[0]), seconds = atof(words[1]);
	struct md_http_address addresses[2] = {address_of(words[3]), address_of(words[4])};
	double *times[2] = {calloc(MOST, sizeof(double)), calloc(MOST, sizeof(double))};
	size_t counts[2] = {0, 0};
	for (int i = 0; i < 2; i++) /* warm */
		run_round(&addresses[i], rate, 0.5, times[i]);
	for (int round = 0; round < atoi(words[2]); round++)
		for (int i = 0; i < 2; i++)
			counts[i] += run_round(&addresses[i], rate, seconds, times[i] + counts[i]);
	print_times("direct", times[0], counts[0]);
	print_times("worker", times[1], counts[1]);
	return failed != 0;
}

/* ---- streams ---- */

static int open_streams(char **words)
{
	struct md_http_address address = address_of(words[1]);
	char byte;
	for (size_t i = 0, count = (size_t)atoi(words[0]); i < count; i++) {
		ask(&address, 1000000, 1000000, NULL);
		while (first + 64 < begun && !failed) /* not all at once: listeners have queues */
			event_base_loop(base, EVLOOP_ONCE);
	}
	while (first < begun && !failed)
		event_base_loop(base, EVLOOP_ONCE);
	printf("open %zu\n", first);
	fflush(stdout);
	return failed || read(0, &byte, 1) < 0;
}

static int count_events(char **words)
{
	struct md_http_address address = address_of(words[3]);
	size_t count = (size_t)atoi(words[0]);
	uint64_t start = md_clock_ns();
	for (size_t i = 0; i < count; i++)
		ask(&address, (unsigned)atoi(words[1]), (unsigned)atoi(words[2]), NULL);
	event_base_dispatch(base);
	printf("%zu %.4f\n", event_count, (double)(md_clock_ns() - start) / 1e9);
	return failed != 0;
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	struct event_config *config = event_config_new();
	event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
	base = event_base_new_with_config(config);
	if (argc == 7 && !strcmp(argv[1], "ttft"))
		return measure_first(argv + 2);
	if (argc == 4 && !strcmp(argv[1], "streams"))
		return open_streams(argv + 2);
	if (argc == 6 && !strcmp(argv[1], "events"))
		return count_events(argv + 2);
	return 2;
}
