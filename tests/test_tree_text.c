/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of JSON that are parsed and printed while memory fails, at each allocation in turn: whole, or not at all. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "json/tree_text.h"

/* ---- allocations that fail: the linker sends the library's calls here ---- */

static unsigned until_failure; /* 0: none fails */
static bool failed, for_good;

void *__real_malloc(size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

static bool fails(void)
{
	if (!until_failure || (until_failure > 1 && until_failure--))
		return false;
	failed = true;
	until_failure = for_good; /* the next one, too */
	return true;
}

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	void *made = count && size > SIZE_MAX / count ? NULL : __wrap_malloc(count * size);
	return made ? memset(made, 0, count * size) : NULL;
}

void *__wrap_realloc(void *old, size_t size)
{
	return fails() ? NULL : __real_realloc(old, size);
}

/* ---- the texts ---- */

#define TEN(text) text text text text text text text text text text

/* Buffers of 16, 32, 64 ... bytes are full within keys, strings, escapes, numbers, and at their last characters. */
static const char *const texts[] = {
    "{}",
    "[\"123456789012345\"]",
    "[\"12345678901234\", \"1234567890123\", \"123456789012\"]",
    "{\"a key of some length, which is longer than a buffer\": \"" TEN(TEN("text ")) "\"}",
    "{\"" TEN("0123456789") "\": {\"" TEN("abcdefghijklmnop") "\": [1, -2, 3.5e7, true, false, null]}}",
    "[12345678901234567, -1234567890123456, 0.12345678901234567890123456789012345678901234567890]",
    "[\"" TEN("\\u00e9\\n\\\"\\\\") "\", \"" TEN(TEN("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80")) "\"]",
    "{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,\"h\":8,\"i\":9,\"j\":10,\"k\":11,\"l\":12,\"m\":[{},{},{"
    "},{},{},"
    "{},{},{},{}]}",
};

#define COUNT (sizeof(texts) / sizeof(texts[0]))

static char *print(const json_t *value)
{
	char *text = md_jansson_print(value, JSON_COMPACT);
	cr_assert(text, "nothing fails");
	return text;
}

/* ---- tests ---- */

Test(tree_text, a_text_of_any_bytes_becomes_a_string)
{
	static const char *const cases[][2] = {
	    {"", ""},
	    {"caf\xc3\xa9\n", "caf\xc3\xa9\n"},
	    {"cut within caf\xc3", "cut within caf\\xc3"},
	    {"\xff\xfe", "\\xff\\xfe"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_t *made = md_jansson_text(cases[i][0]);
		cr_assert_str_eq(json_string_value(made), cases[i][1]);
		json_decref(made);
		for (until_failure = 1, failed = false;; until_failure++) {
			unsigned at = until_failure;
			failed = false;
			made = md_jansson_text(cases[i][0]);
			until_failure = at;
			cr_assert(failed != (made != NULL), "allocation %u of text %zu", at, i);
			json_decref(made);
			if (!failed)
				break;
		}
		until_failure = 0;
		free(md_jansson_print(NULL, 0)); /* forgets that memory has failed */
	}
}

/* Whether the text is parsed while the n-th allocation fails. */
static bool parsed_without(const char *text, const char *whole, unsigned n)
{
	json_error_t error;
	failed = false;
	until_failure = n;
	json_t *root = md_jansson_parse(text, strlen(text), JSON_REJECT_DUPLICATES, &error);
	until_failure = 0;
	if (root) {
		MD_AUTO_FREE char *again = print(root);
		cr_assert_not(failed, "%s: allocation %u has failed, and there is a tree: %s", text, n, again);
		cr_assert_str_eq(again, whole);
		json_decref(root);
		return true;
	}
	cr_assert_eq(json_error_code(&error), json_error_out_of_memory, "%s: allocation %u: %s", text, n, error.text);
	cr_assert(strstr(error.text, "out of memory for "), "%s", error.text);
	return false;
}

static void parse_each(void)
{
	for (size_t i = 0; i < COUNT; i++) {
		json_t *root = md_jansson_parse(texts[i], strlen(texts[i]), 0, NULL);
		cr_assert(root, "%s", texts[i]);
		MD_AUTO_FREE char *whole = print(root);
		unsigned n = 1;
		while (!parsed_without(texts[i], whole, n))
			cr_assert_lt(n++, 1000u, "%s: each time memory has failed", texts[i]);
		cr_assert_gt(n, 3u, "%s: only %u allocations", texts[i], n);
		json_decref(root);
	}
}

Test(tree_text, a_text_is_parsed_whole_or_not_at_all)
{
	parse_each();
}

Test(tree_text, a_text_is_not_parsed_when_there_is_no_memory_any_more)
{
	for_good = true;
	parse_each();
}

static char *printed_without(const json_t *value, unsigned n)
{
	failed = false;
	until_failure = n;
	char *text = md_jansson_print(value, JSON_COMPACT);
	until_failure = 0;
	cr_assert(!text == failed, "allocation %u: failed: %d, text: %s", n, failed, text);
	return text;
}

Test(tree_text, a_tree_is_printed_whole_or_not_at_all)
{
	for (size_t i = 0; i < COUNT; i++) {
		json_t *root = md_jansson_parse(texts[i], strlen(texts[i]), 0, NULL);
		MD_AUTO_FREE char *whole = json_dumps(root, JSON_COMPACT);
		char *text = NULL;
		for (unsigned n = 1; !text; n++)
			text = printed_without(root, n);
		cr_assert_str_eq(text, whole);
		free(text);
		json_decref(root);
	}
}

/* A list whose builder does not look at results lacks an item, and is not printed; the next one is. */
Test(tree_text, a_tree_that_lacks_something_is_not_printed)
{
	for (unsigned n = 1, ended = 0; !ended; n++) {
		failed = false;
		until_failure = n;
		json_t *list = json_array();
		for (int i = 0; i < 20; i++)
			json_array_append_new(list, json_pack("{s:i}", "a key", i));
		char *text = md_jansson_print(list, JSON_COMPACT);
		ended = until_failure != 0;
		until_failure = 0;
		cr_assert(!text == failed, "allocation %u: failed: %d, text: %s", n, failed, text);
		free(text);
		json_decref(list);
		list = json_pack("[i]", 7);
		text = md_jansson_print(list, JSON_COMPACT);
		cr_assert_str_eq(text, "[7]");
		free(text);
		json_decref(list);
	}
}

/* What jansson says of a text is said of it here, at the same place. */
Test(tree_text, what_is_no_json_is_refused_as_by_jansson)
{
	static const struct {
		const char *text;
		size_t size, flags;
	} cases[] = {{"", 0, 0},
		     {"{", 1, 0},
		     {"{\"a\": 01}", 9, 0},
		     {"[\"\xff\"]", 5, 0},
		     {"{\"a\": 1,\n\"a\": 2}", 17, JSON_REJECT_DUPLICATES},
		     {"[\"a\0b\"]", 7, 0},
		     {"[\"unfinished", 12, 0},
		     {"{} {}", 5, 0},
		     {"\"text\"", 6, 0},
		     {"[\"\\ud800\"]", 10, 0}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_error_t error = {0}, wanted = {0};
		json_t *root = md_jansson_parse(cases[i].text, cases[i].size, cases[i].flags, &error);
		cr_expect_null(root, "%s", cases[i].text);
		cr_expect_null(json_loadb(cases[i].text, cases[i].size, cases[i].flags, &wanted));
		cr_expect_str_eq(error.text, wanted.text);
		cr_expect_eq(json_error_code(&error), json_error_code(&wanted), "%s", cases[i].text);
		cr_expect(error.line == wanted.line && error.position == wanted.position, "%s: line %d, byte %d",
			  cases[i].text, error.line, error.position);
	}
	json_t *first = md_jansson_parse("{\"a\": 1} and more", 17, JSON_DISABLE_EOF_CHECK, NULL);
	cr_expect_eq(json_integer_value(json_object_get(first, "a")), 1);
	json_decref(first);
}

/* Out of a copy without anything behind it, so that a sanitizer sees it read too far. */
Test(tree_text, no_byte_behind_the_text_is_read)
{
	for (size_t i = 0; i < COUNT; i++)
		for (size_t size = 0; size <= strlen(texts[i]); size++) {
			MD_AUTO_FREE char *copy = malloc(size + !size);
			memcpy(copy, texts[i], size);
			json_t *root = md_jansson_parse(copy, size, 0, NULL);
			cr_assert_eq(root != NULL, size == strlen(texts[i]), "%zu bytes of %s", size, texts[i]);
			json_decref(root);
		}
}
