/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters in host memory: within their limit, as long as somebody uses them, and under names that can be said. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "models/llama/adapters/store.h"

static struct lora_store store;

static void open_store(void)
{
	lora_store_init(&store, 1000);
}

static void close_store(void)
{
	lora_store_finish(&store);
	cr_assert_eq(store.bytes, 0, "%zu bytes are left", store.bytes);
}

TestSuite(lora_store, .init = open_store, .fini = close_store);

static enum md_status put(const char *name, size_t bytes, bool pinned)
{
	struct md_error err;
	struct lora_adapter adapter = {.bytes = bytes, .weights = malloc(bytes), .layers = 1};
	enum md_status status = lora_store_put(&store, name, "/path", pinned, &adapter, &err);
	cr_assert_eq(adapter.weights == NULL, status == MD_OK, "the store has it, or else the caller");
	if (status != MD_OK)
		cr_assert(strstr(err.message, "--lora-bytes 1000"), "%s", err.message);
	lora_adapter_finish(&adapter);
	return status;
}

static bool is_there(const char *name)
{
	const struct lora_name *found = lora_store_find(&store, name);
	return found && found->weights;
}

static void touch(const char *name)
{
	lora_store_leave(&store, lora_store_take(&store, name));
}

Test(lora_store, forgets_what_was_asked_for_longest_ago)
{
	cr_assert_eq(put("a", 400, false), MD_OK);
	cr_assert_eq(put("b", 400, false), MD_OK);
	touch("a");
	cr_assert_eq(put("c", 400, false), MD_OK);
	cr_assert(is_there("a") && is_there("c") && !is_there("b"));
	cr_assert(lora_store_find(&store, "b"), "its name stays");
	cr_assert_null(lora_store_take(&store, "b"));
	cr_assert_eq(store.bytes, 800);
	cr_assert_eq(store.forgotten, 1);
	cr_assert_eq(store.name_count, 3);
	cr_assert_eq(put("b", 400, false), MD_OK, "read again");
	cr_assert(!is_there("a") && is_there("c") && is_there("b"), "asking in vain is asking");
	cr_assert_eq(store.name_count, 3);
}

Test(lora_store, keeps_what_is_pinned_or_used)
{
	struct lora_weights *used;
	cr_assert_eq(put("pinned", 300, true), MD_OK);
	cr_assert_eq(put("used", 300, false), MD_OK);
	used = lora_store_take(&store, "used");
	cr_assert_eq(put("other", 300, false), MD_OK);
	cr_assert_eq(put("large", 401, false), MD_ERR_NO_MEMORY, "400 bytes can be had");
	cr_assert(is_there("other"), "what does not fit moves nothing");
	cr_assert_null(lora_store_find(&store, "large"));
	cr_assert_eq(put("large", 400, false), MD_OK);
	cr_assert(is_there("pinned") && is_there("used") && !is_there("other"));
	lora_store_leave(&store, used);
	cr_assert_eq(put("last", 700, false), MD_OK);
	cr_assert(is_there("pinned") && !is_there("used") && !is_there("large"));
}

Test(lora_store, weights_outlive_their_name_while_they_are_used)
{
	struct lora_weights *first, *second;
	cr_assert_eq(put("a", 400, false), MD_OK);
	first = lora_store_take(&store, "a");
	lora_store_use(first);
	cr_assert_eq(put("a", 500, false), MD_OK, "in place");
	second = lora_store_take(&store, "a");
	cr_assert_neq(first->version, second->version);
	cr_assert_eq(store.bytes, 900);
	lora_store_remove(&store, "a");
	cr_assert_null(lora_store_find(&store, "a"));
	cr_assert_eq(store.bytes, 900);
	lora_store_leave(&store, first);
	cr_assert_eq(store.bytes, 900, "it has another user");
	lora_store_leave(&store, first);
	cr_assert_eq(store.bytes, 500);
	lora_store_leave(&store, second);
	cr_assert_eq(store.bytes, 0);
	lora_store_remove(&store, "a");
}

Test(lora_store, what_replaces_a_name_has_its_room)
{
	cr_assert_eq(put("a", 600, true), MD_OK);
	cr_assert_eq(put("a", 1000, true), MD_OK, "the old weights go first");
	cr_assert_eq(store.bytes, 1000);
	cr_assert_eq(put("a", 1001, true), MD_ERR_NO_MEMORY);
	cr_assert(is_there("a"), "an error leaves everything as it was");
	struct lora_weights *used = lora_store_take(&store, "a");
	cr_assert_eq(put("a", 1, true), MD_ERR_NO_MEMORY, "the old weights are in use");
	lora_store_leave(&store, used);
}

Test(lora_store, unnamed_weights_are_their_users_alone)
{
	struct lora_adapter adapter = {.bytes = 70, .weights = malloc(70), .layers = 1};
	struct lora_weights *weights = lora_store_put_unnamed(&store, &adapter);
	lora_store_use(weights);
	cr_assert_eq(store.bytes, 70);
	lora_store_leave(&store, weights);
	cr_assert_eq(store.bytes, 0);
}

Test(lora_store, should_fail_names)
{
	static const struct {
		const char *name, *wrong;
	} cases[] = {
	    {"", "is empty"},
	    {"base", "is that of the base model"},
	    {"a\nb", "has a control character"},
	    {"a\x7f", "has a control character"},
	    {"a\xc2\x85", "has a control character"},
	    {"a\xff", "is not valid UTF-8"},
	    {"a b", NULL},
	    {"org/name", NULL},
	    {"\xc3\xa9", NULL},
	};
	char name[258];
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *wrong = lora_name_wrong(cases[i].name, "base");
		cr_assert(wrong == cases[i].wrong || (wrong && cases[i].wrong && !strcmp(wrong, cases[i].wrong)),
			  "case %zu: %s", i, wrong ? wrong : "fine");
	}
	memset(name, 'x', 257);
	name[257] = '\0';
	cr_assert_str_eq(lora_name_wrong(name, "base"), "has more than 256 bytes");
	name[256] = '\0';
	cr_assert_null(lora_name_wrong(name, "base"));
	cr_assert_str_eq(lora_path_wrong(""), "is empty");
	cr_assert_null(lora_path_wrong("a/b"));
}
