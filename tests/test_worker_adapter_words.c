/* SPDX-License-Identifier: Apache-2.0 */
/* What engines are told of adapters, and what is made of their answers. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "worker/core/adapter_words.h"

static void assert_order(const char *name, const char *path, const char *expected)
{
	char *order = md_adapter_order(name, path);
	cr_assert_str_eq(order, expected);
	free(order);
}

Test(worker_adapter_words, orders_are_json)
{
	assert_order("a \"b\"", "/p\\q", "{\"lora_name\":\"a \\\"b\\\"\",\"lora_path\":\"/p\\\\q\"}");
	assert_order("a", NULL, "{\"lora_name\":\"a\"}");
}

static void assert_words(unsigned status, const char *answer, const char *why, const char *expected)
{
	struct md_buf buf;
	char words[200];
	md_buf_init(&buf);
	md_buf_put(&buf, answer, strlen(answer));
	struct md_adapter_answer given = {.why = why, .status = status, .body = &buf};
	md_adapter_words("did", &given, words, sizeof(words));
	cr_assert_str_eq(words, expected);
	md_buf_finish(&buf);
}

Test(worker_adapter_words, failures_have_the_words_of_the_engine)
{
	assert_words(404, "{\"error\": {\"message\": \"no such file\", \"code\": 404}}", NULL,
		     "did: 404: no such file");
	assert_words(400, "{\"error\": \"it is there\"}", NULL, "did: 400: it is there");
	assert_words(400, "{\"message\": \"m\", \"detail\": \"d\"}", NULL, "did: 400: m");
	assert_words(422, "{\"detail\": \"d\"}", NULL, "did: 422: d");
	assert_words(500, "Internal Server Error", NULL, "did: 500: Internal Server Error");
	assert_words(500, "{\"error\": {\"message\": 5}}", NULL, "did: 500: {\"error\": {\"message\": 5}}");
	assert_words(500, "", NULL, "did: 500");
	assert_words(500, "\x1b[31m\n", NULL, "did: 500: \\x1b[31m\\x0a");
	assert_words(0, "", "connecting: refused", "did: connecting: refused");
	char longest[1001];
	memset(longest, 'x', 1000);
	longest[1000] = '\0';
	struct md_buf buf;
	char words[200];
	md_buf_init(&buf);
	md_buf_put(&buf, longest, 1000);
	md_adapter_words("did", &(struct md_adapter_answer){.status = 500, .body = &buf}, words, sizeof(words));
	cr_assert_lt(strlen(words), sizeof(words));
	md_buf_finish(&buf);
}

static void assert_listed(const char *answer, enum md_adapter_listed expected)
{
	enum md_adapter_listed found = md_adapter_find(answer, strlen(answer), "a", "/a");
	cr_assert_eq(found, expected, "%s: %d", answer, found);
}

Test(worker_adapter_words, lists_say_what_an_engine_has)
{
	assert_listed(
	    "{\"data\": [{\"id\": \"m\", \"root\": \"/a\"}, {\"id\": \"a\", \"root\": \"/a\", \"parent\": \"m\"}]}",
	    MD_ADAPTER_LISTED);
	assert_listed("{\"data\": [{\"id\": \"a\"}]}", MD_ADAPTER_LISTED);
	assert_listed("{\"data\": [{\"id\": \"a\", \"root\": \"/b\"}]}", MD_ADAPTER_OTHER);
	static const char *const none[] = {"",
					   "{",
					   "[]",
					   "7",
					   "{\"data\": 5}",
					   "{\"data\": [5, null, {}, [], {\"id\": 7}]}",
					   "{\"data\": {\"id\": \"a\"}}",
					   "{\"data\": [{\"id\": \"aa\", \"root\": \"/a\"}]}",
					   NULL};
	for (size_t i = 0; none[i]; i++)
		assert_listed(none[i], MD_ADAPTER_MISSING);
}

static void assert_in_command(bool expected, const char *word, const char *path)
{
	const char *const argv[] = {"serve", word, NULL};
	cr_assert_eq(md_adapter_is_in_command(argv, "a", path), expected, "%s has %s", word, path);
}

Test(worker_adapter_words, what_an_engine_has_from_its_start)
{
	assert_in_command(true, "/p/a", "/p/a");
	assert_in_command(true, "a=/p/a", "/p/a");
	assert_in_command(true, "a=/p/a/", "/p/a");
	assert_in_command(true, "--lora=/p/a", "/p/a");
	assert_in_command(true, "b=/p/b,a=/p/a", "/p/a");
	assert_in_command(true, "serve --lora-modules b=/p/b a=/p/a; true", "/p/a");
	assert_in_command(true, "{\"name\": \"a\", \"path\": \"/p/a\"}", "/p/a");
	assert_in_command(true, "/p/ab /p/a", "/p/a");
	assert_in_command(false, "/p/ab", "/p/a");
	assert_in_command(false, "/p/a/b", "/p/a");
	assert_in_command(false, "/p/a.bin", "/p/a");
	assert_in_command(false, "/x/p/a", "/p/a");
	assert_in_command(false, "b=/p/a", "/p/a");
	assert_in_command(false, "aa=/p/a", "/p/a");
	assert_in_command(false, "/p/a", "");
	cr_assert_not(md_adapter_is_in_command(NULL, "a", "/p/a"));
}
