/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: any bytes as requests of a client, or, if they begin with HTTP/, as answers of an engine. It must not
 * matter in which pieces they come; and a request that is passed on is the same one request for whoever reads it next.
 */
#include <string.h>
#include <strings.h>

#include "http/reader.h"
#include "http/text.h"
#include "tests/fuzz/fuzz.h"

#define BODY_MAX 5000u

bool fuzz_accepted;

/* What a reader has told. */
struct seen {
	struct md_http_reader reader;
	struct md_buf told;
	struct md_buf body; /* of the message that is being read */
	unsigned ends;
	void (*check)(struct seen *seen); /* a message is whole; NULL: nothing is checked */
};

static void tell(struct seen *seen, const char *what, const char *text)
{
	md_buf_put(&seen->told, what, strlen(what));
	md_buf_put(&seen->told, text, strlen(text) + 1);
}

static bool on_head(void *context, const struct md_http_head *head)
{
	struct seen *seen = context;
	char numbers[100];
	snprintf(numbers, sizeof(numbers), "%u %u %d %d %lld", head->minor, head->status, head->keep_alive,
		 head->chunked, (long long)head->length);
	tell(seen, "head ", numbers);
	tell(seen, "target ", md_http_head_target(head));
	for (uint32_t i = 0; i < head->count; i++) {
		tell(seen, "name ", md_http_head_name(head, i));
		tell(seen, "value ", md_http_head_value(head, i));
	}
	md_buf_clear(&seen->body);
	return true;
}

static bool on_body(void *context, const char *bytes, size_t size)
{
	struct seen *seen = context;
	FUZZ_REQUIRE(size, "an empty piece");
	md_buf_put(&seen->told, bytes, size);
	md_buf_put(&seen->body, bytes, size);
	FUZZ_REQUIRE(seen->body.size <= BODY_MAX || seen->reader.parser.type == HTTP_RESPONSE, "more than is allowed");
	return true;
}

static void on_end(void *context)
{
	struct seen *seen = context;
	tell(seen, "end", "");
	seen->ends++;
	if (seen->check)
		seen->check(seen);
}

static const struct md_http_reader_events events = {.head = on_head, .body = on_body, .end = on_end};

/* Reads all of it in pieces of `step` bytes, to the first refusal. */
static void see(struct seen *seen, enum http_parser_type type, const char *text, size_t size, size_t step,
		void (*check)(struct seen *seen))
{
	*seen = (struct seen){.check = check};
	md_http_reader_init(&seen->reader, type, &events, seen);
	seen->reader.body_most = type == HTTP_REQUEST ? BODY_MAX : 0;
	for (size_t at = 0; at < size && !seen->reader.status;) {
		size_t part = size - at < step ? size - at : step;
		size_t used = md_http_reader_feed(&seen->reader, text + at, part);
		FUZZ_REQUIRE(used <= part, "%zu bytes of %zu", used, part);
		FUZZ_REQUIRE(used || seen->reader.status, "no progress at byte %zu", at);
		at += used;
		md_http_reader_next(&seen->reader);
	}
	if (type == HTTP_RESPONSE)
		md_http_reader_close(&seen->reader);
	FUZZ_REQUIRE(!seen->reader.status || *seen->reader.why, "refused without a reason");
}

static void forget(struct seen *seen)
{
	md_http_reader_finish(&seen->reader);
	md_buf_finish(&seen->told);
	md_buf_finish(&seen->body);
}

/* ---- what is passed on ---- */

static void put(struct md_buf *out, const char *text)
{
	md_buf_put(out, text, strlen(text));
}

/* As http/call.c writes it. */
static void write_request(const struct seen *seen, struct md_buf *out)
{
	const struct md_http_head *head = &seen->reader.head;
	char length[60];
	put(out, head->method);
	put(out, " ");
	put(out, md_http_head_target(head));
	put(out, md_http_head_find(head, "Host") ? " HTTP/1.1\r\n" : " HTTP/1.1\r\nHost: x\r\n");
	for (uint32_t i = 0; i < head->count; i++) {
		const char *name = md_http_head_name(head, i), *value = md_http_head_value(head, i);
		FUZZ_REQUIRE(md_http_is_token(name) && md_http_is_clean(value), "a header that could hide another");
		if (md_http_head_is_hop(head, name) && strcasecmp(name, "Host") != 0)
			continue;
		put(out, name);
		put(out, ": ");
		put(out, value);
		put(out, "\r\n");
	}
	snprintf(length, sizeof(length), "Content-Length: %zu\r\n\r\n", seen->body.size);
	put(out, length);
	md_buf_put(out, seen->body.data, seen->body.size);
}

static void check_passed_on(struct seen *seen)
{
	struct md_buf out;
	struct seen again;
	md_buf_init(&out);
	write_request(seen, &out);
	see(&again, HTTP_REQUEST, (const char *)out.data, out.size, SIZE_MAX, NULL);
	/* its own framing may be shorter than the new one, and the head at its limit */
	bool too_long = again.reader.status == 431;
	FUZZ_REQUIRE(too_long || (!again.reader.status && again.ends == 1), "passed on, it is %u requests: %s",
		     again.ends, again.reader.why);
	FUZZ_REQUIRE(too_long || (again.body.size == seen->body.size &&
				  (!seen->body.size || !memcmp(again.body.data, seen->body.data, seen->body.size))),
		     "passed on, its body is another one");
	FUZZ_REQUIRE(too_long ||
			 !strcmp(md_http_head_target(&again.reader.head), md_http_head_target(&seen->reader.head)),
		     "passed on, its target is another one");
	forget(&again);
	md_buf_finish(&out);
}

/* ---- pieces ---- */

static void check_pieces(enum http_parser_type type, const char *text, size_t size)
{
	static const size_t steps[] = {1, 3, 64};
	struct seen whole, pieces;
	see(&whole, type, text, size, SIZE_MAX, type == HTTP_REQUEST ? check_passed_on : NULL);
	fuzz_accepted = whole.ends && !whole.reader.status;
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		see(&pieces, type, text, size, steps[i], NULL);
		FUZZ_REQUIRE(!pieces.reader.status == !whole.reader.status && pieces.ends == whole.ends,
			     "in steps of %zu: %u messages (%s), at once %u (%s)", steps[i], pieces.ends,
			     pieces.reader.why, whole.ends, whole.reader.why);
		FUZZ_REQUIRE(pieces.told.size == whole.told.size &&
				 (!whole.told.size || !memcmp(pieces.told.data, whole.told.data, whole.told.size)),
			     "in steps of %zu something else is told", steps[i]);
		forget(&pieces);
	}
	forget(&whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* memory of its own, whose end the sanitizer watches */
	char *text = malloc(size + 1);
	FUZZ_REQUIRE(text, "memory");
	memcpy(text, data, size);
	check_pieces(size >= 5 && !memcmp(text, "HTTP/", 5) ? HTTP_RESPONSE : HTTP_REQUEST, text, size);
	free(text);
	return 0;
}
