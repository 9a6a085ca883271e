/* SPDX-License-Identifier: Apache-2.0 */
/* Token counts in answers, however they are cut into pieces; times that a user writes. */
#include <criterion/criterion.h>
#include <string.h>

#include "tools/worker_time.h"
#include "worker/accounting/usage_scan.h"

static const struct {
	const char *text;
	bool told;
	uint64_t prompt, completion;
} answers[] = {
    {"{\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":34,\"total_tokens\":46}}", true, 12, 34},
    /* in front of the rest, with spaces, and with objects inside */
    {"{\"usage\" : \n{\"prompt_tokens\": 5, \"prompt_tokens_details\": {\"cached_tokens\": 4}, \"x\": \"}\\\"{\"}, "
     "\"data\": []}",
     true, 5, 0},
    /* the last one of a stream counts */
    {"data: {\"usage\":null}\n\ndata: {\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}\n\n"
     "data: {\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n",
     true, 7, 2},
    {"event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n"
     "data: {\"usage\":{\"output_tokens\":20}}\n\n",
     true, 9, 20},
    /* what a model says is no count */
    {"{\"content\":\"\\\"usage\\\":{\\\"prompt_tokens\\\":1,\\\"completion_tokens\\\":1}\"}", false, 0, 0},
    {"{\"content\":\"ends with \\\\\",\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}", true, 3, 4},
    {"\"usage\"\"usage\"\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}", true, 3, 4},
    {"{\"usage\":[1],\"usage\":\"no\",\"usage\":{\"prompt_tokens\":-1,\"completion_tokens\":1.5}}", false, 0, 0},
    {"\"\"usage\":{\"prompt_tokens\":6}", true, 6, 0},
    {"{\"usage\":{\"prompt_tokens\":6", false, 0, 0},
    {"", false, 0, 0},
};

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
			struct md_usage_scan scan = {0};
			for (size_t at = 0; at < size; at += piece)
				md_usage_scan(&scan, answers[i].text + at, size - at < piece ? size - at : piece);
			assert_counts(&scan, i, piece);
		}
	}
}

Test(worker_usage, an_object_that_is_too_large_is_left_out)
{
	static const char begin[] = "{\"usage\":{\"x\":\"", end[] = "{\"usage\":{\"prompt_tokens\":8}}";
	char filler[MD_USAGE_OBJECT_MAX];
	struct md_usage_scan scan = {0};
	memset(filler, 'x', sizeof(filler));
	md_usage_scan(&scan, begin, strlen(begin));
	md_usage_scan(&scan, filler, sizeof(filler));
	cr_assert_not(scan.told, "an object without an end was understood");
	md_usage_scan(&scan, end, strlen(end));
	cr_assert_eq(scan.prompt, 8, "the next object was not found: %llu prompt tokens",
		     (unsigned long long)scan.prompt);
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
