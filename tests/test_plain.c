/* SPDX-License-Identifier: Apache-2.0 */
/* Text from elsewhere: what is UTF-8, what a terminal acts upon, and what is shown instead. */
#include "base/plain.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

static const struct {
	const char *text, *shown, *json;
} cases[] = {
    {"plain", "plain", "\"plain\""},
    {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
     "\"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\""},
    {"\x1b[31m", "\\x1b[31m", "\"\\u001b[31m\""},
    {"a\nb\tc\r\x7f", "a\\x0ab\\x09c\\x0d\\x7f", "\"a\\nb\\u0009c\\u000d\\u007f\""},
    {"\xc2\x9b"
     "1m",
     "\\xc2\\x9b1m", "\"\\u009b1m\""},
    {"\xe2\x80\xae", "\\xe2\\x80\\xae", "\"\\u202e\""},
    {"\xff\xc3", "\\xff\\xc3", "\"\\ufffd\\ufffd\",\n  \"text_hex\": \"ffc3\""},
    {"\xed\xa0\x80", "\\xed\\xa0\\x80", "\"\\ufffd\\ufffd\\ufffd\",\n  \"text_hex\": \"eda080\""},
    {"\xc0\x80", "\\xc0\\x80", "\"\\ufffd\\ufffd\",\n  \"text_hex\": \"c080\""},
    {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80", NULL},
    {"back\\slash", "back\\slash", "\"back\\\\slash\""},
};

Test(plain, nothing_acts)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char copy[64], *put = NULL, *json = NULL, wanted[128];
		size_t size;
		md_plain_copy(copy, sizeof(copy), cases[i].text);
		cr_expect_str_eq(copy, cases[i].shown);
		FILE *out = open_memstream(&put, &size);
		md_plain_line(out, "%s/%d", cases[i].text, 7);
		fclose(out);
		snprintf(wanted, sizeof(wanted), "%s/7\n", cases[i].shown);
		cr_expect_str_eq(put, wanted);
		out = open_memstream(&json, &size);
		struct md_json writer;
		md_json_init(&writer, out);
		md_json_object(&writer, NULL);
		md_json_text(&writer, "text", cases[i].text);
		md_json_end(&writer);
		fclose(out);
		snprintf(wanted, sizeof(wanted), "{\n  \"text\": %s\n}\n", cases[i].json ? cases[i].json : "");
		cr_expect(!cases[i].json || !strcmp(json, wanted), "%s, not %s", json, wanted);
		free(put);
		free(json);
	}
}

Test(plain, nothing_is_cut_in_two)
{
	char out[8];
	for (size_t room = 1; room <= sizeof(out); room++) {
		memset(out, 'x', sizeof(out));
		size_t size = md_plain_copy(out, room, "\xf0\x9f\x98\x80\x1b");
		cr_expect_eq(size, room > 4 ? 4 : 0, "room for %zu", room);
		cr_expect_eq(out[size], '\0');
	}
	char *text = NULL;
	size_t size;
	FILE *stream = open_memstream(&text, &size);
	md_plain_print(stream, "%2000s", "\n");
	fclose(stream);
	cr_expect_eq(size, 1999 + 4, "longer than what fits on the stack");
	free(text);
}
