/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: any bytes as an engine's answer, as JSON and as a stream of events. It must not matter in which pieces it
 * comes; the counts are those that jansson finds in it, and none if it finds no JSON; and a stream that is cut at a border has lost no event, and has no
 * half of one.
 */
#include <jansson.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "worker/accounting/usage_scan.h"
#include "worker/core/event_border.h"

bool fuzz_accepted;

static struct md_usage_scan scan(enum md_answer_kind kind, const char *text, size_t size, size_t step)
{
	struct md_usage_scan made = {.kind = kind};
	for (size_t at = 0; at < size; at += step)
		md_usage_scan(&made, text + at, size - at < step ? size - at : step);
	md_usage_scan_end(&made);
	return made;
}

/* ---- what jansson finds ---- */

static void find_count(const json_t *object, const char *name, const char *other, bool *told, uint64_t *count)
{
	const json_t *value = json_object_get(object, name);
	value = value ? value : json_object_get(object, other);
	if (!json_is_integer(value) || json_integer_value(value) < 0 ||
	    json_integer_value(value) > (json_int_t)MD_USAGE_COUNT_MAX)
		return;
	*told = true;
	*count = (uint64_t)json_integer_value(value);
}

static void find_usage(const json_t *object, struct md_usage_scan *found)
{
	find_count(object, "prompt_tokens", "input_tokens", &found->told, &found->prompt);
	find_count(object, "completion_tokens", "output_tokens", &found->told, &found->completion);
}

/* A text that may have more levels than are followed. */
static bool is_deep(const char *text, size_t size)
{
	size_t levels = 0;
	for (size_t i = 0; i < size; i++)
		levels += text[i] == '{' || text[i] == '[';
	return levels > MD_USAGE_LEVELS_MAX;
}

/* jansson takes no numbers that its types can't hold, and no half surrogates, which JSON has. */
static bool is_json(const char *text, size_t size)
{
	json_error_t error;
	json_t *tree = json_loadb(text, size, JSON_ALLOW_NUL, &error);
	bool known = tree || json_error_code(&error) == json_error_numeric_overflow ||
		     json_error_code(&error) == json_error_null_byte_in_key || strstr(error.text, "invalid Unicode");
	json_decref(tree);
	return known;
}

static void check_json(const char *text, size_t size, const struct md_usage_scan *got)
{
	struct md_usage_scan found = {0};
	json_t *tree = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL), *value, *inner;
	const char *key, *inner_key;
	if (json_is_object(tree)) {
		json_object_foreach(tree, key, value)
		{
			if (!strcmp(key, "usage"))
				find_usage(value, &found);
			if (strcmp(key, "message") != 0 && strcmp(key, "response") != 0)
				continue;
			json_object_foreach(value, inner_key, inner) if (!strcmp(inner_key, "usage"))
			    find_usage(inner, &found);
		}
		bool deep = is_deep(text, size);
		FUZZ_REQUIRE(deep || found.told == got->told, "counts are told: %d", got->told);
		FUZZ_REQUIRE(deep || (found.prompt == got->prompt && found.completion == got->completion),
			     "%llu and %llu tokens", (unsigned long long)got->prompt,
			     (unsigned long long)got->completion);
	}
	json_decref(tree);
	FUZZ_REQUIRE(!got->told || is_json(text, size), "counts in what is no JSON");
}

/* ---- the lines of a stream ---- */

/* The events of a stream, as whoever reads it whole finds them: lines with a 0 behind each, an event with one more. */
static size_t read_events(const char *text, size_t size, char *events)
{
	size_t made = 0, event = 0; /* where the event begins that is not whole */
	size_t at = size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
	while (at < size) {
		size_t end = at;
		while (end < size && text[end] != '\n' && text[end] != '\r')
			end++;
		if (end == size)
			break;
		bool comment = text[at] == ':';
		if (end > at && !comment) {
			memcpy(events + made, text + at, end - at);
			made += end - at;
			events[made++] = '\0';
		} else if (end == at && made > event) {
			events[made++] = '\0';
			event = made;
		}
		at = end + (text[end] == '\r' && end + 1 < size && text[end + 1] == '\n' ? 2 : 1);
	}
	return event;
}

static void check_border(const char *text, size_t size, size_t cut, const char *events, size_t whole, char *room)
{
	struct md_event_border border = {0};
	size_t sent = md_event_border_find(&border, text, cut);
	size_t next = cut + md_event_border_find(&border, text + cut, size - cut);
	sent = next > cut ? next : sent;
	FUZZ_REQUIRE(sent <= size, "a border at %zu of %zu", sent, size);
	FUZZ_REQUIRE(read_events(text, sent, room) == whole && !memcmp(room, events, whole),
		     "cut at %zu, %zu of %zu bytes", cut, sent, size);
	memcpy(room, text, sent);
	memcpy(room + sent, "\n\nx\n\n", 5);
	char *again = room + size + 5;
	size_t more = read_events(room, sent + 5, again);
	FUZZ_REQUIRE(more == whole + 3 && !memcmp(again, events, whole) && !memcmp(again + whole, "x\0", 3),
		     "cut at %zu, an event behind %zu of %zu bytes is not the only one more", cut, sent, size);
}

static void check_stream(const char *text, size_t size)
{
	char *events = malloc(2 * size + 1), *room = malloc(3 * (size + 10));
	FUZZ_REQUIRE(events && room, "memory");
	size_t whole = read_events(text, size, events);
	fuzz_accepted = fuzz_accepted || whole;
	for (size_t cut = 0; cut <= size && cut < 300; cut++)
		check_border(text, size, cut, events, whole, room);
	free(room);
	free(events);
}

/* ---- both ---- */

static void check(const char *text, size_t size)
{
	static const size_t steps[] = {1, 2, 3, 7, 64};
	struct md_usage_scan json = scan(MD_ANSWER_JSON, text, size, SIZE_MAX);
	struct md_usage_scan stream = scan(MD_ANSWER_EVENTS, text, size, SIZE_MAX);
	fuzz_accepted = json.told || stream.told;
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		struct md_usage_scan one = scan(MD_ANSWER_JSON, text, size, steps[i]);
		FUZZ_REQUIRE(one.told == json.told && one.prompt == json.prompt && one.completion == json.completion,
			     "in steps of %zu", steps[i]);
		one = scan(MD_ANSWER_EVENTS, text, size, steps[i]);
		FUZZ_REQUIRE(one.told == stream.told && one.prompt == stream.prompt &&
				 one.completion == stream.completion,
			     "of a stream in steps of %zu", steps[i]);
	}
	check_json(text, size, &json);
	check_stream(text, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* memory of its own, whose end the sanitizer watches */
	char *text = malloc(size + 1);
	FUZZ_REQUIRE(text, "memory");
	memcpy(text, data, size);
	check(text, size);
	free(text);
	return 0;
}
