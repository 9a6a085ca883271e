/* SPDX-License-Identifier: Apache-2.0 */
/* What a client gets of a model's text: whole characters, and nothing of a stop text, however the bytes come. */
#include <criterion/criterion.h>

#include "models/llama/serve/text_out.c"

static const struct text_case {
	const char *bytes, *stops[3];
	const char *text;
	bool stopped;
} cases[] = {
    {"plain text", {NULL}, "plain text", false},
    {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", {NULL}, "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", false},
    {"a\xff"
     "b\xc0\x80",
     {NULL},
     "a\xef\xbf\xbd"
     "b\xef\xbf\xbd\xef\xbf\xbd",
     false},
    {"cut \xe2\x82", {NULL}, "cut \xef\xbf\xbd", false},
    {"\xe2"
     "A\xed\xa0\x80",
     {NULL},
     "\xef\xbf\xbd"
     "A\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd",
     false},
    {"\xf4\x90\x80\x80", {NULL}, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", false},
    {"one STOP two", {"STOP"}, "one ", true},
    {"one ST", {"STOP"}, "one ST", false},
    {"STSTOP", {"STOP"}, "ST", true},
    {"aab", {"ab"}, "a", true},
    {"aaab", {"aab"}, "a", true},
    {"x\n\ny", {"\n\n", "y"}, "x", true},
    {"abcde", {"cd", "bc"}, "a", true},
    {"abcd", {"cd", "abcdef"}, "ab", true},
    {"\xe2\x82\xac end", {"\xe2\x82\xac"}, "", true},
};

static size_t stop_count(const struct text_case *c)
{
	size_t count = 0;
	while (count < 3 && c->stops[count])
		count++;
	return count;
}

/* In pieces of so many bytes; every piece that goes out is checked as it goes. */
static void check(const struct text_case *c, size_t piece)
{
	struct text_out out;
	char got[128] = "";
	size_t size = strlen(c->bytes), length;
	text_out_init(&out, (char *const *)c->stops, stop_count(c));
	for (size_t at = 0; at < size && !out.stopped; at += piece) {
		md_buf_put(&out.raw, c->bytes + at, size - at < piece ? size - at : piece);
		cr_assert(text_out_judge(&out, false));
		const char *ready = text_out_ready(&out, false, &length);
		strncat(got, length ? ready : "", length);
		cr_assert(!strncmp(got, c->text, strlen(got)), "\"%s\" by %zu: \"%s\" went out", c->bytes, piece, got);
	}
	cr_assert(out.stopped || text_out_judge(&out, true));
	const char *ready = text_out_ready(&out, true, &length);
	strncat(got, length ? ready : "", length);
	cr_assert_str_eq(got, c->text, "\"%s\" by %zu", c->bytes, piece);
	cr_assert_eq(out.stopped, c->stopped, "\"%s\" by %zu", c->bytes, piece);
	text_out_finish(&out);
}

Test(text_out, gives_the_same_text_whatever_the_pieces_are)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (size_t piece = 1; piece <= 16; piece++)
			check(&cases[i], piece);
}

Test(text_out, holds_back_no_more_than_it_must)
{
	char *const stops[] = {"STOP"};
	struct text_out out;
	size_t size;
	text_out_init(&out, stops, 1);
	md_buf_put(&out.raw, "one S", 5);
	cr_assert(text_out_judge(&out, false));
	text_out_ready(&out, false, &size);
	cr_assert_eq(size, 4);
	md_buf_put(&out.raw, "un", 2);
	cr_assert(text_out_judge(&out, false));
	text_out_ready(&out, false, &size);
	cr_assert_eq(size, 3);
	text_out_finish(&out);
}

Test(text_out, has_a_text_even_when_all_is_held_back)
{
	struct text_out out;
	size_t size;
	text_out_init(&out, NULL, 0);
	md_buf_put(&out.raw, "\xe2\x82", 2); /* two bytes of three */
	cr_assert(text_out_judge(&out, false));
	cr_expect_not_null(text_out_ready(&out, false, &size), "NULL is no text for JSON, and ended the stream");
	cr_expect_eq(size, 0);
	text_out_finish(&out);
}
