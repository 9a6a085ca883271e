/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of requests: what is JSON and what is not, where it fails, and changes that leave all other bytes as they are. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "worker/core/body_edit.h"
#include "worker/core/body_text.h"

/* ---- reading ---- */

static const char *const good[] = {
    "{}",
    " \t\r\n{ } \n",
    "{\"a\":0,\"b\":-0.5e+10,\"c\":1E400,\"d\":123456789012345678901234567890}",
    "{\"a\":[true,false,null,[],{},\"\"]}",
    "{\"a\":\"\\u0000\\ud800\\\"\\\\\\/\\b\\f\\n\\r\\t\"}",
    "{\"a\":\"\x7f\xc2\x80\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\"}",
    "{\"a\":\"0123456789abcdef0123456789abcdef\"}",
};

Test(worker_body, what_json_allows_is_taken)
{
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		struct md_body_object object;
		struct md_body_failure failure;
		bool taken = md_body_scan(good[i], strlen(good[i]), &object, &failure);
		cr_assert(taken, "%s: byte %zu: %s", good[i], failure.at, failure.why);
		md_body_object_finish(&object);
	}
}

static const struct {
	const char *text;
	size_t at;
	const char *why;
} bad[] = {
    {"", 0, "too early"},
    {"  ", 2, "too early"},
    {"[]", 0, "object is wanted"},
    {"\xef\xbb\xbf{}", 0, "object is wanted"},
    {"{} x", 3, "something follows"},
    {"{}{}", 2, "something follows"},
    {"{\"a\":1,}", 7, "name in quotation marks"},
    {"{,}", 1, "name in quotation marks"},
    {"{a:1}", 1, "name in quotation marks"},
    {"{\"a\" 1}", 5, "colon"},
    {"{\"a\":}", 5, "value is wanted"},
    {"{\"a\":1", 6, "too early"},
    {"{\"a\":1 2}", 7, "comma or }"},
    {"{\"a\":[1 2]}", 8, "comma or ]"},
    {"{\"a\":[1,]}", 8, "value is wanted"},
    {"{\"a\":[1}}", 7, "comma or ]"},
    {"{\"a\":01}", 6, "comma or }"},
    {"{\"a\":-}", 6, "digit"},
    {"{\"a\":1.}", 7, "digit"},
    {"{\"a\":.5}", 5, "value is wanted"},
    {"{\"a\":1e}", 7, "digit"},
    {"{\"a\":+1}", 5, "value is wanted"},
    {"{\"a\":NaN}", 5, "value is wanted"},
    {"{\"a\":nul}", 5, "value is wanted"},
    {"{\"a\":truefalse}", 9, "comma or }"},
    {"{\"a\":'b'}", 5, "value is wanted"},
    {"{\"a\":\"b", 7, "within quotation marks"},
    {"{\"a\":\"\t\"}", 6, "control character"},
    {"{\"a\":\"12345678\x01\"}", 14, "control character"},
    {"{\"a\":\"\\x\"}", 6, "escape"},
    {"{\"a\":\"\\u12g4\"}", 6, "escape"},
    {"{\"a\":\"\\u12", 6, "escape"},
    {"{\"a\":\"\\", 6, "escape"},
    {"{\"a\":\"\x80\"}", 6, "UTF-8"},
    {"{\"a\":\"\xc0\xaf\"}", 6, "UTF-8"},
    {"{\"a\":\"\xed\xa0\x80\"}", 6, "UTF-8"},
    {"{\"a\":\"\xf4\x90\x80\x80\"}", 6, "UTF-8"},
    {"{\"a\":\"\xe4\xb8\"}", 6, "UTF-8"},
    {"{\"a\":\"\xe4\xb8", 6, "UTF-8"},
    {"{\"a\":1/**/}", 6, "comma or }"},
};

Test(worker_body, what_is_no_json_is_refused_with_its_place)
{
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct md_body_object object;
		struct md_body_failure failure = {0};
		cr_assert_not(md_body_scan(bad[i].text, strlen(bad[i].text), &object, &failure), "%s", bad[i].text);
		cr_assert(failure.at == bad[i].at && strstr(failure.why, bad[i].why),
			  "%s: byte %zu: %s; expected byte %zu: %s", bad[i].text, failure.at, failure.why, bad[i].at,
			  bad[i].why);
	}
}

Test(worker_body, a_zero_byte_ends_nothing)
{
	static const char inside[] = "{\"a\":\0 1}", behind[] = "{\"a\":1}\0";
	struct md_body_object object;
	struct md_body_failure failure;
	cr_assert_not(md_body_scan(inside, sizeof(inside) - 1, &object, &failure));
	cr_assert_eq(failure.at, 5);
	cr_assert_not(md_body_scan(behind, sizeof(behind) - 1, &object, &failure));
	cr_assert_eq(failure.at, 7);
}

/* {"a":[[[...]]]} or {"a":[0,0,0...]}, or so many members; scanned, and its failure returned. */
static const char *scan_large(const char *before, const char *piece, size_t count, const char *after, size_t times)
{
	size_t size = strlen(before), most = size + strlen(piece) * count + strlen(after) * times;
	char *text = malloc(most + 1);
	struct md_body_object object;
	struct md_body_failure failure = {0};
	memcpy(text, before, size);
	for (size_t i = 0; i < count; i++, size += strlen(piece))
		memcpy(text + size, piece, strlen(piece));
	for (size_t i = 0; i < times; i++, size += strlen(after))
		memcpy(text + size, after, strlen(after));
	text[size] = '\0';
	if (md_body_scan(text, size, &object, &failure))
		md_body_object_finish(&object);
	free(text);
	return failure.why ? failure.why : "";
}

Test(worker_body, levels_values_and_members_are_bounded)
{
	cr_assert_str_eq(scan_large("{\"a\":", "[", 9999, "]", 9999), "the text ends too early",
			 "9,999 levels and one");
	cr_assert(strstr(scan_large("{\"a\":", "[", 10000, "]", 10000), "10,000 levels"));
	cr_assert(strstr(scan_large("{\"a\":[0", ",0", 10000000, "]}", 1), "10,000,000 values"));
	cr_assert_str_eq(scan_large("{\"a\":[0", ",0", 9999997, "]}", 1), "");
	cr_assert_str_eq(scan_large("{\"a\":0", ",\"a\":0", 4095, "}", 1), "");
	cr_assert(strstr(scan_large("{\"a\":0", ",\"a\":0", 4096, "}", 1), "4,096 members"));
}

Test(worker_body, escapes_of_texts_are_undone)
{
	cr_assert_not(md_body_text_is("model", 4, "model"), "a beginning of a name is not the name");
	cr_assert_not(md_body_text_is("mod\\u0065", 9, "model"), "a beginning of a name is not the name");
	static const struct {
		const char *text, *meant; /* NULL: it is not copied */
	} cases[] = {
	    {"model", "model"},
	    {"m\\u006fdel", "model"},
	    {"\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t"},
	    {"\\u00e9\\u20AC\\ud83d\\ude00", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
	    {"a\\u0000", NULL},
	    {"\\ud800", NULL},
	    {"\\ude00\\ud83d", NULL},
	    {"\\ud83dx", NULL},
	    {"0123456789012345", NULL},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char out[16];
		const char *text = cases[i].text;
		bool done = md_body_text_copy(text, strlen(text), out, sizeof(out));
		cr_assert_eq(done, cases[i].meant != NULL, "%s", text);
		cr_assert(!done || !strcmp(out, cases[i].meant), "%s: %s", text, out);
		cr_assert(!done || md_body_text_is(text, strlen(text), out), "%s", text);
		cr_assert_not(md_body_text_is(text, strlen(text), "mode"), "%s", text);
	}
}

/* ---- changing ---- */

/* "-a.b" removes, "a.b=VALUE" sets. */
static const struct {
	const char *text, *changes[4], *wanted;
} edits[] = {
    {"{\"a\":1.10, \"b\" : 1E2}", {"-x"}, "{\"a\":1.10, \"b\" : 1E2}"},
    {" {\"a\":1, \"b\" :2,\"c\":0.1000000000000000055}\n", {"-b"}, " {\"a\":1,\"c\":0.1000000000000000055}\n"},
    {"{ \"a\":1, \"b\":2 }", {"-a"}, "{ \"b\":2 }"},
    {"{ \"a\":1, \"b\":2 }", {"-b"}, "{ \"a\":1 }"},
    {"{ \"a\":1, \"b\":2 }", {"-a", "-b"}, "{ }"},
    {"{\"a\":1,\"b\":2,\"a\":3,\"c\":1e400}", {"-a"}, "{\"b\":2,\"c\":1e400}"},
    {"{\"a\" : 1 , \"b\":2}", {"a=\"x\""}, "{\"a\" : \"x\" , \"b\":2}"},
    {"{\"a\":1,\"a\":2}", {"a=3"}, "{\"a\":3,\"a\":3}"},
    {"{}", {"a=1", "b=[2]"}, "{\"a\":1,\"b\":[2]}"},
    {"{\"x\":1 }", {"a=1"}, "{\"x\":1,\"a\":1 }"},
    {"{\"\\u0061\":1}", {"-a"}, "{}"},
    {"{\"e\":{\"a\":1.0,\"b\":[ ]},\"f\":1.0}", {"-e.a"}, "{\"e\":{\"b\":[ ]},\"f\":1.0}"},
    {"{\"e\":{\"a\":1.0}}", {"e.b=2"}, "{\"e\":{\"a\":1.0,\"b\":2}}"},
    {"{\"e\":5}", {"e.b=2"}, "{\"e\":{\"b\":2}}"},
    {"{\"e\":5}", {"-e.b"}, "{\"e\":5}"},
    {"{}", {"e.b.c=2"}, "{\"e\":{\"b\":{\"c\":2}}}"},
    {"{}", {"-e.b"}, "{}"},
    {"{\"e\":{\"a\":1,\"b\":2}}", {"-e", "e.c=3"}, "{\"e\":{\"c\":3}}"},
    {"{\"e\":{\"a\":1,\"b\":2}}", {"e={\"d\":1}", "e.c=3", "-e.d"}, "{\"e\":{\"c\":3}}"},
    {"{\"e\":{\"a\":1,\"b\":2}}", {"e.a=7", "-e.a"}, "{\"e\":{\"b\":2}}"},
    {"{\"e\":{\"a\":1},\"e\":{}}", {"e.a=7"}, "{\"e\":{\"a\":7},\"e\":{\"a\":7}}"},
    {"{\"e\":[{\"a\":1}]}", {"-e.a"}, "{\"e\":[{\"a\":1}]}"},
    {"{\"a\":1}", {"a=\"\xc3\xa9\\\"\""}, "{\"a\":\"\xc3\xa9\\\"\"}"},
};

static void prepare(struct md_body_edit *edit, const char *change)
{
	const char *equals = strchr(change, '=');
	if (*change == '-') {
		cr_assert(md_body_edit_remove(edit, change + 1));
		return;
	}
	char path[32] = "";
	strncat(path, change, (size_t)(equals - change));
	json_t *value = json_loads(equals + 1, JSON_DECODE_ANY, NULL);
	cr_assert(value && md_body_edit_set(edit, path, value), "%s", change);
	json_decref(value);
}

Test(worker_body, changes_leave_all_other_bytes)
{
	for (size_t i = 0; i < sizeof(edits) / sizeof(*edits); i++) {
		const char *text = edits[i].text;
		struct md_body_edit edit = {0};
		struct md_body_object object;
		struct md_body_failure failure;
		struct md_buf out;
		md_buf_init(&out);
		for (size_t c = 0; c < 4 && edits[i].changes[c]; c++)
			prepare(&edit, edits[i].changes[c]);
		cr_assert(md_body_scan(text, strlen(text), &object, &failure), "%s: %s", text, failure.why);
		cr_assert(md_body_edit_apply(&edit, text, strlen(text), &object, &out, &failure), "%s", failure.why);
		md_buf_put_u8(&out, 0);
		cr_assert_str_eq((char *)out.data, edits[i].wanted, "%s with %s: %s", text, edits[i].changes[0],
				 (char *)out.data);
		md_body_object_finish(&object);
		md_body_edit_finish(&edit);
		md_buf_finish(&out);
	}
}
