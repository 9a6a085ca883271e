/* SPDX-License-Identifier: Apache-2.0 */
/* Token counts in answers, however they are cut into pieces, and where there are none; times that a user writes. */
#include <criterion/criterion.h>
#include <string.h>

#include "tools/worker_time.h"
#include "worker/accounting/usage_scan.h"

static const struct {
	const char *text;
	bool told;
	uint64_t prompt, completion;
	bool stream;
} answers[] = {
    {"{\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":34,\"total_tokens\":46}}", true, 12, 34,
     false},
    /* in front of the rest, with spaces, and with objects inside */
    {"{\"usage\" : \n{\"prompt_tokens\": 5, \"prompt_tokens_details\": {\"cached_tokens\": 4}, \"x\": \"}\\\"{\"}, "
     "\"data\": []}",
     true, 5, 0, false},
    /* what a model says is no count */
    {"{\"content\":\"\\\"usage\\\":{\\\"prompt_tokens\\\":1,\\\"completion_tokens\\\":1}\"}", false, 0, 0, false},
    {"{\"content\":\"ends with \\\\\",\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}", true, 3, 4, false},
    {"{\"content\":\"\\\\\\\"\",\"usage\":{\"prompt_tokens\":3}}", true, 3, 0, false},
    {"{\"content\":\"\\u0022usage\\u0022:{\\\\\",\"usage\":{\"prompt_tokens\":8}}", true, 8, 0, false},
    {"{\"usage\":[1],\"usage\":\"no\",\"usage\":{\"prompt_tokens\":-1,\"completion_tokens\":1.5}}", false, 0, 0, false},
    /* no answer has more than 10^12, and sums of such could overflow */
    {"{\"usage\":{\"prompt_tokens\":1000000000000,\"completion_tokens\":1000000000001}}", true, 1000000000000, 0,
     false},
    {"{\"usage\":{\"prompt_tokens\":4611686018427387904}}", false, 0, 0, false},
    /* a name that comes twice: each of its objects is looked at, so the last count wins, and no count takes none back */
    {"{\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2},\"usage\":{\"prompt_tokens\":3},\"usage\":null}", true,
     3, 2, false},
    {"{\"usage\":{\"prompt_tokens\":1,\"prompt_tokens\":4}}", true, 4, 0, false},
    /* where APIs have it, and nowhere else */
    {"{\"message\":{\"id\":{\"usage\":{\"input_tokens\":7}},\"usage\":{\"input_tokens\":9}},\"type\":1}", true, 9, 0,
     false},
    {" {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":2,\"output_tokens\":3}}}", true, 2, 3,
     false},
    {"{\"message\":{\"message\":{\"usage\":{\"input_tokens\":9}}},\"responses\":{\"usage\":{\"input_tokens\":9}}}",
     false, 0, 0, false},
    {"{\"message\":[{\"usage\":{\"input_tokens\":9}}],\"usages\":{\"input_tokens\":9}}", false, 0, 0, false},
    {"{\"message\":\"response\",\"x\":{\"usage\":{\"input_tokens\":9}},\"usag\":{\"input_tokens\":9}}", false, 0, 0,
     false},
    {"{\"choices\":[{\"message\":{\"tool_calls\":[{\"arguments\":{\"usage\":{\"prompt_tokens\":9}}}]}}],"
     "\"tool\":{\"usage\":{\"prompt_tokens\":9},\"message\":{\"usage\":{\"prompt_tokens\":9}}}}",
     false, 0, 0, false},
    {"[{\"usage\":{\"prompt_tokens\":9}}]", false, 0, 0, false},
    {"{\"data\":[[[[[[[[[[{\"usage\":{\"prompt_tokens\":9}}]]]]]]]]]],\"usage\":{\"prompt_tokens\":1}}", true, 1, 0,
     false},
    {"{\"x\":\"usage\",\"y\":{},\"z\":[{}],\"usage\":{\"prompt_tokens\":1}}", true, 1, 0, false},
    /* a name is what its characters are, however they are written */
    {"{\"\\u0075s\\u0061ge\":{\"prompt_tokens\":6}}", true, 6, 0, false},
    {"{\"\\u4e75s\\u0061ge\":{\"prompt_tokens\":6},\"us\\nage\":{\"prompt_tokens\":6},\"usage\\\"\":{\"prompt_tokens\":"
     "6},\"\\\"usage\":{\"prompt_tokens\":6},\"usag\xc3\xa9\":{\"prompt_tokens\":6}}",
     false, 0, 0, false},
    /* what is no JSON has no counts, wherever its fault is, and a text ends with its first value */
    {"\"usage\"\"usage\"\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}", false, 0, 0, false},
    {"\"\"usage\":{\"prompt_tokens\":6}", false, 0, 0, false},
    {"{\"a\" \"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"a\" 1,\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"a\":1 \"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"a\":1]\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{}{\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{}},\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"usage\":{\"prompt_tokens\":6", false, 0, 0, false},
    {"{\"usage\":{\"prompt_tokens\":6}", false, 0, 0, false},
    {"{\"usage\":{\"prompt_tokens\":6}}x", false, 0, 0, false},
    {"{\"usage\":{\"prompt_tokens\":6}}{}", false, 0, 0, false},
    {"{\"usage\":{\"prompt_tokens\":6},}", false, 0, 0, false},
    {"{\"usage\":{\"prompt_tokens\":6},\"x\":[1,]}", false, 0, 0, false},
    {"{\"usage\":{\"prompt_tokens\":6},\"x\":[1}}", false, 0, 0, false},
    {"{\"usage\":{\"prompt_tokens\":6]}", false, 0, 0, false},
    {"{\"x\":[[1 2]],\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"x\":nul,\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"x\":NaN,\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"x\":01,\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"x\":1.,\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"x\":.5,\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"x\":1e,\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"x\":--1,\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"x\":+1,\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"x\":\"\\a\",\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"x\":\"\\u00g0\",\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"x\":\"\\u00`0\",\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"x\":\"a\nb\",\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"x\":\"\x80\",\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"x\":\"\xc0\x80\",\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"x\":\"\xe0\x80\x80\",\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"x\":\"\xed\xa0\x80\",\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"x\":\"\xf4\x90\x80\x80\",\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"x\":\"\xc3\",\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{x:1,\"usage\":{\"prompt_tokens\":6}}", false, 0, 0, false},
    {"{\"usage\":{\"prompt_tokens\":6} /* */}", false, 0, 0, false},
    /* whatever JSON allows may stand beside the counts: numbers of any size, half surrogates, U+0000, names that come twice */
    {" {\"x\":[{},[],-0,-1.5E+3,0e-1,true,false,null,\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\xc3\xa9\xf0\x9f\x98\x80\"],"
     "\"usage\":{\"prompt_tokens\":6}}\r\n\t ",
     true, 6, 0, false},
    {"{\"usage\":{\"a\":1e999,\"b\":123456789012345678901234567890,\"c\":\"\\ud800\",\"d\":\"\\u0000\",\"\\u0000\":1,"
     "\"prompt_tokens\":6,\"e\":{\"prompt_tokens\":7},\"f\":[8],\"completion_tokens\":2}}",
     true, 6, 2, false},
    {"{\"usage\":{\"prompt_tokens\":null,\"input_tokens\":7,\"completion_tokens\":{},\"output_tokens\":8}}", false, 0,
     0, false},
    {"{\"usage\":{\"prompt_tokens\":-0,\"completion_tokens\":1000000000000}}", true, 0, 1000000000000, false},
    {"{\"usage\":{\"prompt_tokens\":1e2,\"completion_tokens\":\"3\"}}", false, 0, 0, false},
    {"data: {\"usage\":{\"prompt_tokens\":6}}\n\n", false, 0, 0, false},
    {"", false, 0, 0, false},
    /* the last one of a stream counts */
    {"data: {\"usage\":null}\n\ndata: {\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}\n\n"
     "data: {\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n",
     true, 7, 2, true},
    {"event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n"
     "data: {\"usage\":{\"output_tokens\":20}}\n\n",
     true, 9, 20, true},
    /* all ends of lines, and all ways to begin a value */
    {"data:{\"x\":\r\r\ndata: {\"usage\":{\"prompt_tokens\":7}}\r\n\r\n", true, 7, 0, true},
    {"data:{\"usage\":{\"prompt_tokens\":7}}\r\rdata:  {\"usage\":{\"completion_tokens\":2}}\r\r", true, 7, 2, true},
    {"\xef\xbb\xbf"
     "data: {\"usage\":{\"prompt_tokens\":7}}\n\n",
     true, 7, 0, true},
    {"\xef\xbb"
     "data: {\"usage\":{\"prompt_tokens\":7}}\n\n",
     false, 0, 0, true},
    /* several lines are one text */
    {"data: {\"usage\":\nid: 5\ndata: {\"prompt_tokens\":\r\n: a comment\r\ndata:7}\r\ndata\r\ndata:\rdata:}\n\n", true,
     7, 0, true},
    {"data: {\"x\":[{\ndata: \"usage\":{\"prompt_tokens\":7}}\n\n", false, 0, 0, true},
    {"data: {\"usage\":{\"prompt_tokens\":1\ndata:2}}\n\n", false, 0, 0, true},
    /* each event begins anew */
    {"data: {\"x\":\"\n\ndata: {\"usage\":{\"prompt_tokens\":7}}\n\n", true, 7, 0, true},
    {"data: {\"usage\":{\n\ndata: \"prompt_tokens\":7}}\n\n", false, 0, 0, true},
    /* what is not JSON does not count, nor does what no blank line has ended: clients don't get it */
    {"data: {\"usage\":{\"prompt_tokens\":7}}\ndata: x\n\n", false, 0, 0, true},
    {"data: {\"x\":tru,\"usage\":{\"prompt_tokens\":7}}\n\ndata: {\"usage\":{\"completion_tokens\":2}}\n\n", true, 0, 2,
     true},
    {"data: {\"usage\":{\"prompt_tokens\":7}}\n", false, 0, 0, true},
    {"data: {\"usage\":{\"prompt_tokens\":7}}\n\ndata: {\"usage\":{\"prompt_tokens\":8}}\n", true, 7, 0, true},
    /* other fields, and comments */
    {": {\"usage\":{\"prompt_tokens\":7}}\nevent: {\"usage\":{\"prompt_tokens\":7}}\ndatum: "
     "{\"usage\":{\"prompt_tokens\":7}}\n"
     "dat: {\"usage\":{\"prompt_tokens\":7}}\n data: "
     "{\"usage\":{\"prompt_tokens\":7}}\n{\"usage\":{\"prompt_tokens\":7}}\n\n",
     false, 0, 0, true},
};

static const enum md_answer_kind kinds[] = {MD_ANSWER_JSON, MD_ANSWER_EVENTS};

static void assert_counts(const struct md_usage_scan *scan, size_t number, size_t piece)
{
	cr_assert_eq(scan->told, answers[number].told, "answer %zu in pieces of %zu: told is %d", number, piece,
		     scan->told);
	cr_assert_eq(scan->prompt, answers[number].prompt, "answer %zu in pieces of %zu: %llu prompt tokens", number,
		     piece, (unsigned long long)scan->prompt);
	cr_assert_eq(scan->completion, answers[number].completion,
		     "answer %zu in pieces of %zu: %llu completion tokens", number, piece,
		     (unsigned long long)scan->completion);
}

Test(worker_usage, counts_are_found_however_an_answer_is_cut)
{
	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		size_t size = strlen(answers[i].text);
		for (size_t piece = 1; piece <= size + 1; piece++) {
			struct md_usage_scan scan = {.kind = kinds[answers[i].stream]};
			for (size_t at = 0; at < size; at += piece)
				md_usage_scan(&scan, answers[i].text + at, size - at < piece ? size - at : piece);
			md_usage_scan_end(&scan);
			assert_counts(&scan, i, piece);
		}
	}
}

/* What is told and can't be is not known, although the other count is. */
Test(worker_usage, counts_that_can_not_be)
{
	static const struct {
		const char *text;
		bool prompt, completion, stream;
	} cases[] = {
	    {"{\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":34}}", false, false, false},
	    {"{\"usage\":{\"prompt_tokens\":-12,\"completion_tokens\":34}}", true, false, false},
	    {"{\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":1.5}}", false, true, false},
	    {"{\"usage\":{\"input_tokens\":\"12\",\"output_tokens\":[34]}}", true, true, false},
	    {"{\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":1000000000001}}", false, true, false},
	    {"{\"usage\":{\"prompt_tokens\":true,\"completion_tokens\":{}}}", true, true, false},
	    {"{\"usage\":{\"prompt_tokens\":null,\"completion_tokens\":7}}", false, false, false},
	    {"{\"usage\":{\"prompt_tokens\":12}}", false, false, false},
	    {"{\"usage\":{\"prompt_tokens\":-1},\"usage\":{\"prompt_tokens\":5}}", false, false, false},
	    {"{\"usage\":{\"prompt_tokens\":5},\"usage\":{\"prompt_tokens\":-1}}", true, false, false},
	    {"{\"usage\":{\"prompt_tokens\":-1}", false, false, false},
	    {"data: {\"usage\":{\"prompt_tokens\":-1}}\n\ndata: {\"usage\":{\"completion_tokens\":2}}\n\n", true, false,
	     true},
	    {"data: {\"usage\":{\"prompt_tokens\":-1}}\n\ndata: {\"usage\":{\"prompt_tokens\":2}}\n\n", false, false,
	     true},
	    {"data: {\"usage\":{\"prompt_tokens\":2}}\n\ndata: {\"usage\":{\"prompt_tokens\":\"x\"}}\n\n", true, false,
	     true},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (size_t piece = 1; piece < 120; piece += 3) {
			struct md_usage_scan scan = {.kind = kinds[cases[i].stream]};
			size_t size = strlen(cases[i].text);
			for (size_t at = 0; at < size; at += piece)
				md_usage_scan(&scan, cases[i].text + at, size - at < piece ? size - at : piece);
			md_usage_scan_end(&scan);
			cr_assert(scan.wrong[0] == cases[i].prompt && scan.wrong[1] == cases[i].completion,
				  "answer %zu in pieces of %zu: %d, %d", i, piece, scan.wrong[0], scan.wrong[1]);
		}
}

static void feed(struct md_usage_scan *scan, const char *text)
{
	md_usage_scan(scan, text, strlen(text));
}

/* What a cache had of the prompt, as APIs tell it. */
Test(worker_usage, cached_tokens)
{
	static const struct {
		const char *text;
		bool told;
		uint64_t cached, of;
	} cases[] = {
	    {"{\"usage\":{\"prompt_tokens\":12,\"prompt_tokens_details\":{\"cached_tokens\":8}}}", true, 8, 12},
	    {"{\"usage\":{\"prompt_tokens_details\":{\"audio_tokens\":1,\"cached_tokens\":0},\"prompt_tokens\":12}}",
	     true, 0, 12},
	    {"{\"usage\":{\"prompt_tokens\":12,\"prompt_tokens_details\":null}}", false, 0, 0},
	    {"{\"usage\":{\"prompt_tokens\":12,\"prompt_tokens_details\":{\"cached_tokens\":null}}}", false, 0, 0},
	    {"{\"usage\":{\"prompt_tokens\":12,\"prompt_tokens_details\":{\"cached_tokens\":-1}}}", false, 0, 0},
	    {"{\"usage\":{\"prompt_tokens\":12,\"prompt_tokens_details\":[{\"cached_tokens\":8}]}}", false, 0, 0},
	    {"{\"usage\":{\"prompt_tokens\":12,\"cached_tokens\":8,\"completion_tokens_details\":{\"cached_tokens\":8}}"
	     "}",
	     false, 0, 0},
	    {"{\"usage\":{\"prompt_tokens\":12,\"prompt_tokens_details\":{\"x\":{\"cached_tokens\":8}}}}", false, 0, 0},
	    {"{\"prompt_tokens_details\":{\"cached_tokens\":8},\"usage\":{\"prompt_tokens\":12}}", false, 0, 0},
	    {"{\"response\":{\"usage\":{\"input_tokens\":12,\"input_tokens_details\":{\"cached_tokens\":8},\"output_"
	     "tokens\":1}}}",
	     true, 8, 12},
	    {"{\"usage\":{\"input_tokens\":4,\"cache_read_input_tokens\":8,\"cache_creation_input_tokens\":1}}", true,
	     8, 12},
	    {"{\"usage\":{\"prompt_tokens_details\":{\"prompt_tokens\":5,\"cached_tokens\":3},\"completion_tokens\":1}"
	     "}",
	     true, 3, 0},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (size_t piece = 1; piece < 120; piece += 7) {
			struct md_usage_scan scan = {.kind = MD_ANSWER_JSON};
			size_t size = strlen(cases[i].text);
			for (size_t at = 0; at < size; at += piece)
				md_usage_scan(&scan, cases[i].text + at, size - at < piece ? size - at : piece);
			md_usage_scan_end(&scan);
			cr_assert(scan.told_cached == cases[i].told && scan.cached == cases[i].cached &&
				      scan.of == cases[i].of,
				  "answer %zu: %d, %llu of %llu", i, scan.told_cached, (unsigned long long)scan.cached,
				  (unsigned long long)scan.of);
		}
}

Test(worker_usage, an_object_with_counts_may_be_of_any_size)
{
	char filler[100000];
	struct md_usage_scan scan = {.kind = MD_ANSWER_JSON};
	memset(filler, 'x', sizeof(filler));
	feed(&scan, "{\"usage\":{\"prompt_tokens\":7,\"");
	md_usage_scan(&scan, filler, sizeof(filler));
	feed(&scan, "\":\"");
	md_usage_scan(&scan, filler, sizeof(filler));
	feed(&scan, "\",\"completion_tokens\":8}}");
	md_usage_scan_end(&scan);
	cr_assert(scan.told && scan.prompt == 7 && scan.completion == 8, "%llu and %llu tokens",
		  (unsigned long long)scan.prompt, (unsigned long long)scan.completion);
}

Test(worker_usage, what_is_not_whole_has_no_counts_yet)
{
	struct md_usage_scan scan = {.kind = MD_ANSWER_JSON};
	feed(&scan, "{\"usage\":{\"prompt_tokens\":7}}");
	cr_assert_not(scan.told, "counts before the end");
	md_usage_scan_end(&scan);
	cr_assert(scan.told, "no counts at the end");
}

Test(worker_usage, an_answer_may_say_that_it_is_whole)
{
	static const struct {
		const char *text;
		enum md_answer_kind kind;
		bool whole;
	} said[] = {
	    {"{\"a\":[1]}", MD_ANSWER_JSON, true},
	    {" {} \n", MD_ANSWER_JSON, true},
	    {"{\"a\":[1]", MD_ANSWER_JSON, false},
	    {"{} x", MD_ANSWER_JSON, false},
	    {"[1]", MD_ANSWER_JSON, false},
	    {"", MD_ANSWER_JSON, false},
	    {"{}", MD_ANSWER_OPAQUE, false},
	    {"data: a\n\ndata: [DONE]\n\n", MD_ANSWER_EVENTS, true},
	    {"data:[DONE]\r\n\r\n", MD_ANSWER_EVENTS, true},
	    {"data: [DONE]\n\n: a comment\n\n", MD_ANSWER_EVENTS, true},
	    {"data: [DONE]\n\ndata: a\n\n", MD_ANSWER_EVENTS, false},
	    {"data: [DONE]\n", MD_ANSWER_EVENTS, false},
	    {"data: [DONE\n\n", MD_ANSWER_EVENTS, false},
	    {"data: [DONE]]\n\n", MD_ANSWER_EVENTS, false},
	    {"data: x[DONE]\n\n", MD_ANSWER_EVENTS, false},
	    {"data: a\n\n", MD_ANSWER_EVENTS, false},
	    {"", MD_ANSWER_EVENTS, false},
	};
	for (size_t i = 0; i < sizeof(said) / sizeof(*said); i++)
		for (size_t piece = 1, size = strlen(said[i].text); piece <= size + 1; piece++) {
			struct md_usage_scan scan = {.kind = said[i].kind};
			for (size_t at = 0; at < size; at += piece)
				md_usage_scan(&scan, said[i].text + at, size - at < piece ? size - at : piece);
			cr_assert_eq(md_usage_scan_is_whole(&scan), said[i].whole, "\"%s\" in pieces of %zu",
				     said[i].text, piece);
		}
}

Test(worker_usage, levels_are_followed_up_to_a_limit)
{
	for (unsigned levels = MD_USAGE_LEVELS_MAX - 1; levels <= MD_USAGE_LEVELS_MAX; levels++) {
		struct md_usage_scan scan = {.kind = MD_ANSWER_JSON};
		feed(&scan, "{\"x\":");
		for (unsigned i = 0; i < levels; i++)
			feed(&scan, i % 2 ? "{\"usage\":" : "[");
		feed(&scan, "1");
		for (unsigned i = levels; i--;)
			feed(&scan, i % 2 ? "}" : "]");
		feed(&scan, ",\"usage\":{\"prompt_tokens\":8}}");
		md_usage_scan_end(&scan);
		cr_assert_eq(scan.told, levels < MD_USAGE_LEVELS_MAX, "%u levels", levels + 1);
	}
}

Test(worker_usage, what_is_no_json_and_no_stream_has_no_counts)
{
	struct md_usage_scan scan = {0};
	feed(&scan, "{\"usage\":{\"prompt_tokens\":8}}");
	feed(&scan, "data: {\"usage\":{\"prompt_tokens\":8}}\n\n");
	md_usage_scan_end(&scan);
	cr_assert_not(scan.told, "counts were found in an answer of no known kind");
}

Test(worker_usage, times_that_a_user_writes)
{
	static const struct {
		const char *text;
		int64_t seconds; /* -1: it is none */
	} times[] = {
	    {"0", 0},
	    {"90s", 999910},
	    {"30m", 998200},
	    {"24h", 913600},
	    {"7d", 395200},
	    {"100d", 0},
	    {"1790000000", 1790000000},
	    {"1970-01-02", 86400},
	    {"1970-01-02T01:00", 90000},
	    {"1970-01-02T01:00:05Z", 90005},
	    {"2026-11-01", 1793491200},
	    {"-1h", -1},
	    {"1w", -1},
	    {"1hh", -1},
	    {"h", -1},
	    {"", -1},
	    {"2026-13-01", -1},
	    {"2026-11-01 ", -1},
	    {"99999999999999999999", -1},
	};
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		int64_t seconds = -1;
		bool good = md_worker_time_parse(times[i].text, 1000000, &seconds);
		cr_assert_eq(good, times[i].seconds >= 0, "\"%s\" is %s", times[i].text, good ? "taken" : "refused");
		cr_assert(!good || seconds == times[i].seconds, "\"%s\" is %lld", times[i].text, (long long)seconds);
	}
}
